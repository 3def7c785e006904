"""Reference implementations: the engines' schedulers in plain Python, under the engines' own names."""
