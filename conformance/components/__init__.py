"""Our parameter counts, weights, KV-cache layouts and schedules beside those of transformers and of vLLM."""
