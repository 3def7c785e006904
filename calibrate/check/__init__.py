"""A profile or an answer beside measurements."""
