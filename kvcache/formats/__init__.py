"""The formats of weights and of the KV cache."""
