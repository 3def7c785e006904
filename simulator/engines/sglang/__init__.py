"""SGLang's arguments under its own names, its scheduler's settings, and its radix tree in plain Python."""
