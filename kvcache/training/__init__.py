"""The memory budget of training."""
