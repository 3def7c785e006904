"""The cases that are compared."""
