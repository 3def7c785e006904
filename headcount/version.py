"""Which release this is, and which form its JSON has."""

__version__ = "0.2.0"
SCHEMA_VERSION = 2
