"""Scripts that another interpreter runs: they import vLLM with the standard library alone."""
