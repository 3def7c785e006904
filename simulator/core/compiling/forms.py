"""The forms in which the kernels are compiled: without what a fleet has no use for they compile sooner and run faster.

A plain fleet has vLLM's engines, whose layers attend to the whole context and which draft nothing, and a router that
sees its own requests alone; a routed one has any compiled router. All others run the kernels whole. What a fleet needs
is compiled when the first such fleet is simulated.
"""

from typing import Any

from simulator.core.layout import SERVE, VLLM

_OF_ENGINES = {
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
}
_OF_ROUTING = {
    "sees_metrics": 0,
    "sees_tokens": 0,
    "sees_active": 0,
    "sees_cache": 0,
    "chunk_tokens": 0,
    "only_changes": 0,
}
FORMS: dict[str, dict[str, int]] = {"plain": {**_OF_ENGINES, **_OF_ROUTING}, "routed": _OF_ENGINES, "whole": {}}
"""Fields of records that are the same in all fleets of a form, and that no kernel changes; the narrowest form first."""
EMPTY = ("gateways", "handovers", "deciding")
"""Arrays that are empty in all but whole fleets."""
_RECORDS = ("pools", "groups", "cursor", "routing")


def form_of(arrays: Any) -> str:
    """The narrowest form that has all a run needs."""
    records = [getattr(arrays, name) for name in _RECORDS]
    if not any(len(getattr(arrays, name)) for name in EMPTY):
        for form, fields in FORMS.items():
            held = (
                (record[name] == value).all()
                for record in records
                for name, value in fields.items()
                if name in record.dtype.names
            )
            if all(held):
                return form
    return "whole"
