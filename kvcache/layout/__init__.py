"""How KV blocks are laid out: groups of layers, page sizes, the block pool."""
