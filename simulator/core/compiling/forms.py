"""The forms in which the kernels are compiled: without what a fleet has no use for they compile sooner and run faster.

A plain fleet has vLLM's engines, whose layers attend to the whole context and which draft nothing, and a router that
sees its own requests alone. A routed one has any compiled router, a windowed one groups of layers with and without
windows too, a layered one states and blocks of unequal size, one of `adapters` LoRA, one of `images` those of prompts.
SGLang's engines have windows in a pool of their own in one form, states in one, with or without draft tokens, those
alone in one, and none in the plain one.
What a fleet needs is compiled when the first such fleet is simulated.
"""

from simulator.core.layout import SERVE, SGLANG, VLLM
from simulator.core.state import Arrays
from simulator.core.vllm.layout import ALONE

_PLAIN_SERVING = {"ranks": 1, "role": SERVE, "connector": 0, "has_clients": 0, "log_steps": 0}
_PLAIN_VLLM = {
    **_PLAIN_SERVING,
    "engine": VLLM,
    "speculative_tokens": 0,
    "lookahead_tokens": 0,
    "draft_slots": 0,
    "hash_lookahead_tokens": 0,
    "drops_last_hit": 0,
    "decode_stagger": 0,
    "by_priority": 0,
    "prefill_interval": 1,
    "defers_frees": 0,
}
_TEXT = {"encoder_budget": 0}
_WITHOUT_ADAPTERS = {"max_loras": 0}
_MODEL_ALONE = {**_WITHOUT_ADAPTERS, **_TEXT}
_PLAIN_SGLANG = {**_PLAIN_SERVING, **_MODEL_ALONE, "engine": SGLANG}
_WITHOUT_DRAFTS = {"draft_tokens": 0, "draft_width": 0, "draft_reserve": 0, "bigrams": 0}
_EQUAL_BLOCKS = {"num_states": 0, "block_ratio": 1, "cache_unit": 1, "is_state": 0, "in_segments": 1}
_ONE_LANE = {"lanes": 1, "lane": 0, "end_lane": 1, "bundle": ALONE, "in_chunks": 0}
_FULL_ATTENTION = {**_EQUAL_BLOCKS, **_ONE_LANE, "num_groups": 1, "num_kinds": 1, "num_windows": 0}
_COUNTING_ROUTER = {
    "sees_metrics": 0,
    "sees_tokens": 0,
    "sees_active": 0,
    "sees_cache": 0,
    "chunk_tokens": 0,
    "only_changes": 0,
}
FORMS: dict[str, dict[str, int]] = {
    "plain": {**_PLAIN_VLLM, **_MODEL_ALONE, **_FULL_ATTENTION, **_COUNTING_ROUTER},
    "routed": {**_PLAIN_VLLM, **_MODEL_ALONE, **_FULL_ATTENTION},
    "windowed": {**_PLAIN_VLLM, **_MODEL_ALONE, **_EQUAL_BLOCKS},
    "layered": {**_PLAIN_VLLM, **_MODEL_ALONE, "in_segments": 0, "lanes": 1},
    "adapters": {**_PLAIN_VLLM, **_TEXT, **_EQUAL_BLOCKS},
    "images": {**_PLAIN_VLLM, **_WITHOUT_ADAPTERS, **_EQUAL_BLOCKS},
    "sglang": {**_PLAIN_SGLANG, **_WITHOUT_DRAFTS, "kept_window": 0, "has_states": 0},
    "sglang_drafting": {**_PLAIN_SGLANG, "kept_window": 0, "has_states": 0},
    "sglang_windowed": {**_PLAIN_SGLANG, **_WITHOUT_DRAFTS, "has_states": 0},
    "sglang_stateful": {**_PLAIN_SGLANG, "bigrams": 0, "kept_window": 0},
    "whole": {},
}
"""Fields of records that are the same in all fleets of a form, and that no kernel changes; the narrowest form first."""
EMPTY = ("gateways", "handovers", "deciding")
"""Arrays that are empty in all but whole fleets."""
_RECORDS = ("pools", "groups", "cursor", "routing")


def form_of(arrays: Arrays) -> str:
    """The narrowest form that has all a run needs."""
    records = [*(getattr(arrays, name) for name in _RECORDS), arrays.sglang.pools]
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
