"""How traces are written: rows of text made many at once, and ids of the blocks that prompts share."""
