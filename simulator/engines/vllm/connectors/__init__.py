"""KV outside of the GPUs: CPU memory, a remote KV cache, another engine; what of it requests find and load."""
