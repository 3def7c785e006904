"""The state of SGLang's engines before a run."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.core.layout import NONE
from simulator.core.sglang import layout
from simulator.core.sglang.layout import SGLangArrays
from simulator.engines.sglang.engine import EngineConfig
from simulator.engines.sglang.new_token_ratio import NewTokenRatio
from simulator.fleet.fleet import Fleet
from workloads.requests import RequestTable

NODES_PER_REQUEST = 8  # about as many as a request leaves in the tree
MOST_BUCKETS = 1 << 17


def build_sglang_arrays(fleet: Fleet, table: RequestTable) -> SGLangArrays:
    """Allocate; what a run does not touch costs no memory. Raises `ValueError` for what is not simulated."""
    has_any = any(isinstance(pool.engine, EngineConfig) for pool in fleet.pools)
    num_nodes = [_num_nodes(pool.engine) for pool in fleet.pools for _ in range(pool.num_engines)]
    pools, num_buckets = np.zeros(len(fleet.pools), layout.POOL), 1
    for place, pool in enumerate(fleet.pools):
        if isinstance(pool.engine, EngineConfig):
            buckets = _num_buckets(pool.engine, table)
            _fill_pool(pools[place], pool.engine, buckets)
            num_buckets = max(num_buckets, buckets)
    if sum(num_nodes) >= 2**31:
        raise ValueError(f"{sum(num_nodes):,} pages of KV cache are more than one run can hold (2**31)")
    engines = np.zeros(fleet.num_engines, layout.ENGINE)
    engines["root"] = np.cumsum(num_nodes) - num_nodes
    most_waiting = table.num_requests if has_any else 0
    return SGLangArrays(
        pools=pools,
        engines=engines,
        requests=_requests(table) if has_any else np.zeros(1, layout.REQUEST),
        nodes=np.zeros(sum(num_nodes), layout.NODE),
        leaves=np.zeros(sum(num_nodes), np.int32),
        buckets=np.zeros((fleet.num_engines, num_buckets), np.int32),
        order=np.zeros(most_waiting, np.int32),
        sort_key=np.zeros(most_waiting, np.float64),
        contents=np.zeros(layout.MATCHED_AT_MOST, np.int32),
    )


def _num_nodes(engine: Any) -> int:
    """A node has at least a page; and the root."""
    return engine.num_usable_blocks + 1 if isinstance(engine, EngineConfig) else 0


def _num_buckets(engine: EngineConfig, table: RequestTable) -> int:
    most = min(engine.num_usable_blocks, NODES_PER_REQUEST * table.num_requests)
    return int(min(1 << most.bit_length(), MOST_BUCKETS))


def _fill_pool(values: Any, engine: EngineConfig, num_buckets: int) -> None:
    ratio = NewTokenRatio(engine.schedule_conservativeness)
    tail = engine.radix_eviction_tail
    for name in ("page_size", "context_len", "max_running_requests", "max_prefill_tokens", "is_mixed_chunk"):
        values[name] = getattr(engine, name)
    values["num_pages"] = engine.num_usable_blocks
    values["chunked_prefill_size"] = engine.chunked_prefill_size or NONE
    values["is_tree_disabled"] = engine.disable_radix_cache
    values["schedule_policy"] = _place(engine.effective_policy, layout.SCHEDULE_POLICIES, "schedule_policy")
    values["eviction_policy"] = layout.EVICTION_POLICIES.index(engine.radix_eviction_policy)
    values["tail_tokens"] = tail.next_prompt_estimate - tail.threshold
    values["bucket_mask"] = num_buckets - 1
    values["init_ratio"], values["min_ratio"], values["ratio_decay"] = ratio.init, ratio.min, ratio.decay


def _place(name: str, known: tuple[str, ...], what: str) -> int:
    if name not in known:
        raise ValueError(f"{what} {name} is not simulated over a load; choose one of {', '.join(known)}")
    return known.index(name)


def _requests(table: RequestTable) -> NDArray[np.void]:
    """Answers may become as long as they do."""
    values = np.zeros(table.num_requests * table.num_attempts, layout.REQUEST)
    values["max_new_tokens"] = np.tile(table.output_tokens, table.num_attempts)
    values["lock"] = values["last_node"] = NONE
    return values
