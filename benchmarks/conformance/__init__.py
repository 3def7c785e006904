"""Our parameter counts, weights and KV-cache layouts beside those of transformers and of vLLM."""
