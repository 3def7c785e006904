"""Scripts that other interpreters run, with a real vLLM."""
