"""The compiled twin of vLLM's KV offloading to host memory."""
