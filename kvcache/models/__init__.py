"""Which models are known by name, and how a config.json is read."""
