"""Our schedulers' decisions beside those of the real engines' own code."""
