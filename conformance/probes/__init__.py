"""Scripts that another interpreter runs, with vLLM or SGLang."""
