"""Python interpreters with a real vLLM."""
