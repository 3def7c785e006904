"""Finished simulations, kept under a digest of all that decides them."""
