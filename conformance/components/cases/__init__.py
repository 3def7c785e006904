"""The models and layers that are compared."""
