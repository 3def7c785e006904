"""Our schedulers' decisions compared with those of the real engines' own code."""
