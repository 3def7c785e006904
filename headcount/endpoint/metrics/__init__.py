"""What `/metrics` says of a running emulation, in the names of each engine's own server."""
