"""The settings of an engine's host tier, as a part of its pool's record."""

HOST_TIER = [
    ("host_chunks", "i4"),  # 0: no host tier
    ("host_chunk_tokens", "i4"),
    ("evicts_by_arc", "i4"),
    ("is_shared", "i4"),  # 1: one store for all engines
    ("ranks_requests", "i4"),  # 1: LRU goes by the request that used a chunk, see `ranks`
    ("offers_again", "i4"),  # 1: a request that begins anew offers all its chunks again
    ("chunk_mask", "i4"),
    ("store_mask", "i4"),
    ("load_mask", "i4"),
    ("chunk_s", "f8"),
    ("transfer_s", "f8"),
    ("store_chunk_s", "f8"),  # that a shared store takes for a chunk, beside the engine's own way
]
