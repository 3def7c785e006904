"""What a model is: its layers, its tensors, its parameter counts, and which models are known by name."""
