"""What a model is made of: its layers, their tensors, its parameter counts."""
