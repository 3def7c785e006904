"""As compiled code: vLLM's KV offloading to host memory."""
