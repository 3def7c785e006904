"""From a `config.json` to the fields that an architecture is made of."""
