"""Which requests use which LoRA adapter, and that these share no prefixes."""

from dataclasses import replace

import numpy as np

from simulator.engines.vllm.adapters import Adapters
from workloads.randomness import hashed_uniforms
from workloads.requests import Int32Array, RequestTable


def adapters_of(table: RequestTable, adapters: Adapters, seed: int) -> Int32Array:
    """[n] which adapter each request uses: that of its session, drawn by the adapters' shares."""
    session = (np.cumsum(table.follows < 0) - 1)[table.first_turns()]
    drawn = hashed_uniforms(seed, "adapter", session)
    return np.searchsorted(np.cumsum(adapters.shares)[:-1], drawn, side="right").astype(np.int32)


def apart_by_adapter(table: RequestTable, of: Int32Array) -> RequestTable:
    """The same requests, which share prefixes only with those of their own adapter.

    vLLM hashes the adapter with each block (v1/core/kv_cache_utils.py, _gen_lora_extra_hash_keys).
    """
    counts = table.span_count.astype(np.int64)
    ends = np.cumsum(counts)
    spans = np.repeat(table.span_start - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)
    content = np.unique(table.span_content[spans], return_inverse=True)[1].astype(np.int64)
    most = int(of.max(initial=0)) + 1
    return replace(
        table,
        span_start=ends - counts,
        span_content=content * most + np.repeat(of, counts),
        span_end=np.ascontiguousarray(table.span_end[spans]),
    )
