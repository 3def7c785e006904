"""SGLang's engine: its scheduler and its radix tree in plain Python, under SGLang's names."""
