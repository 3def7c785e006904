"""How simulations run: the unit of work, where it runs, what is found in the store."""

DEFAULT_EXECUTOR = "threads"
