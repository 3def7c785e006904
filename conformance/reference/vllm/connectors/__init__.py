"""Schedulers of vLLM's KV connectors in plain Python: CPU offloading, LMCache, remote KV cache, KV transfer."""
