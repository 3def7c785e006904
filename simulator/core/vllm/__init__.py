"""vLLM's scheduler and KV-cache manager, compiled."""
