"""vLLM's V1 engine: its arguments, its scheduler and its KV-cache manager in plain Python, under vLLM's names."""
