"""SGLang's scheduler in plain Python, under SGLang's names."""
