"""vLLM's V1 scheduler and KV-cache manager in plain Python, under vLLM's names."""
