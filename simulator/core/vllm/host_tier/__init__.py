"""The compiled form of vLLM's CPU KV-cache offloading."""
