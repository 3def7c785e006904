"""What a plain fleet is: kernels compiled for one leave the rest out, compile in a quarter of the time and run faster.

Its engines are vLLM's, their layers attend to the whole context, nothing speculates, and its router sees requests
alone. Every other fleet runs the same kernels compiled whole, once the first of them is simulated.
"""

from typing import Any

from simulator.core.layout import SERVE, VLLM

FIELDS = {
    # pools
    "engine": VLLM,
    "ranks": 1,
    "role": SERVE,
    "connector": 0,
    "num_groups": 1,
    "num_kinds": 1,
    "num_windows": 0,
    "num_states": 0,
    "speculative_tokens": 0,
    "lookahead_tokens": 0,
    "draft_slots": 0,
    "hash_lookahead_tokens": 0,
    "drops_last_hit": 0,
    "decode_stagger": 0,
    "by_priority": 0,
    "defers_frees": 0,
    # groups
    "block_ratio": 1,
    "is_state": 0,
    # cursor
    "has_clients": 0,
    "log_steps": 0,
    # routing
    "sees_metrics": 0,
    "sees_tokens": 0,
    "sees_active": 0,
    "sees_cache": 0,
    "chunk_tokens": 0,
    "only_changes": 0,
}
"""Fields of records that are the same in all plain fleets, and that no kernel changes."""
EMPTY = ("gateways", "handovers", "deciding")
"""Arrays that are empty there."""
_RECORDS = ("pools", "groups", "cursor", "routing")


def is_plain(arrays: Any) -> bool:
    """Whether a run needs nothing but the kernels of a plain fleet."""
    records = [getattr(arrays, name) for name in _RECORDS]
    has_all = all(
        (record[field] == value).all()
        for record in records
        for field, value in FIELDS.items()
        if field in record.dtype.names
    )
    return has_all and not any(len(getattr(arrays, name)) for name in EMPTY)
