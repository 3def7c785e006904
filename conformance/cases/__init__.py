"""Random cases that both sides decide."""
