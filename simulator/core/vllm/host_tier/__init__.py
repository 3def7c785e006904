"""vLLM's CPU KV-cache offloading, compiled."""
