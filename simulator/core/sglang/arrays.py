"""The state of SGLang's engines before a run."""

from random import Random

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError
from simulator.core.layout import NONE
from simulator.core.sglang import layout
from simulator.core.sglang.layout import SGLangArrays
from simulator.core.types import SGLangPool
from simulator.engines.sglang.engine import SCHEDULE_POLICIES, EngineConfig
from simulator.engines.sglang.new_token_ratio import NewTokenRatio
from simulator.fleet.fleet import Fleet
from workloads.requests import RequestTable

NODES_PER_REQUEST = 8  # about as many as a request leaves in the tree
MOST_BUCKETS = 1 << 17


def build_sglang_arrays(fleet: Fleet, table: RequestTable, seed: int) -> SGLangArrays:
    """Allocate; what a run does not touch costs no memory. Raises `ValueError` for what is not simulated."""
    policies = {pool.engine.schedule_policy for pool in fleet.pools if isinstance(pool.engine, EngineConfig)}
    keys = _routing_keys(table) if "routing-key" in policies else np.zeros(table.num_requests, np.int32)
    num_nodes = [_num_nodes(pool.engine) for pool in fleet.pools for _ in range(pool.num_engines)]
    pools, num_buckets = np.zeros(len(fleet.pools), layout.POOL), 1
    for place, pool in enumerate(fleet.pools):
        if isinstance(pool.engine, EngineConfig):
            buckets = _num_buckets(pool.engine, table)
            _fill_pool(pools[place], pool.engine, buckets)
            num_buckets = max(num_buckets, buckets)
    if sum(num_nodes) >= 2**31:
        raise HeadcountError(f"{sum(num_nodes):,} pages of KV cache are more than one run can hold (2**31)")
    engines = np.zeros(fleet.num_engines, layout.ENGINE)
    engines["root"] = np.cumsum(num_nodes) - num_nodes
    engines_of = [pool.engine for pool in fleet.pools if isinstance(pool.engine, EngineConfig)]
    has_windows = any(engine.sliding_window_size for engine in engines_of)
    has_states = any(engine.max_mamba_cache_size for engine in engines_of)
    num_attempts = table.num_requests * table.num_attempts
    most_waiting = table.num_requests if policies else 0
    most_compared = most_waiting if "shortest-prefill-first" in policies else layout.MATCHED_AT_MOST
    return SGLangArrays(
        pools=pools,
        engines=engines,
        requests=_requests(table, keys) if policies else np.zeros(1, layout.REQUEST),
        nodes=np.zeros(sum(num_nodes), layout.NODE),
        window_requests=np.zeros(num_attempts if has_windows else 1, layout.WINDOW_REQUEST),
        state_requests=np.zeros(num_attempts if has_states else 1, layout.STATE_REQUEST),
        side_nodes=np.zeros(sum(num_nodes) if has_windows or has_states else 1, layout.SIDE_NODE),
        leaves=np.zeros(sum(num_nodes), np.int32),
        buckets=np.zeros((fleet.num_engines, num_buckets), np.int32),
        order=np.zeros(most_waiting, np.int32),
        sort_key=np.zeros(most_waiting, np.float64),
        contents=np.zeros(1 << (2 * most_compared).bit_length(), np.int32),
        key_counts=np.zeros(1 + int(keys.max(initial=0)), np.int32),
        shuffles=_shuffles(fleet, seed) if "random" in policies else np.zeros((0, 1), np.int64),
    )


def _shuffles(fleet: Fleet, seed: int) -> NDArray[np.int64]:
    """Each engine's generator as Python's `random` module begins it; by default, servers draw their seeds.

    Ranks of a server begin alike.
    """
    servers = [pool for pool in fleet.pools for _ in range(pool.num_servers)]
    begun = [
        Random(
            (pool.engine.random_seed if isinstance(pool.engine, EngineConfig) else 0) + place + (seed << 32)
        ).getstate()[1]
        for place, pool in enumerate(servers)
        for _ in range(pool.data_parallel_size)
    ]
    return np.array(begun, np.int64)


def _routing_keys(table: RequestTable) -> NDArray[np.int32]:
    """[n] a request's key is its tenant's name."""
    names = [tenant.name for tenant in table.tenancy.tenants] if table.tenancy is not None else []
    if table.tenancy is None or not any(names):
        raise HeadcountError(
            "schedule_policy routing-key orders requests by their routing keys, and these requests have none; name "
            "tenants (--tenants), whose requests then have the tenant's name for a key, or choose fcfs, which decides "
            "the same without keys"
        )
    places = {name: place for place, name in enumerate(sorted({"", *names}))}
    return np.array([places[name] for name in names], np.int32)[table.tenancy.of]


def _num_nodes(engine: object) -> int:
    """A node has at least a page; and the root."""
    return engine.num_usable_blocks + 1 if isinstance(engine, EngineConfig) else 0


def _num_buckets(engine: EngineConfig, table: RequestTable) -> int:
    most = min(engine.num_usable_blocks, NODES_PER_REQUEST * table.num_requests)
    return int(min(1 << most.bit_length(), MOST_BUCKETS))


def _fill_pool(values: SGLangPool, engine: EngineConfig, num_buckets: int) -> None:
    ratio = NewTokenRatio(engine.schedule_conservativeness)
    tail = engine.radix_eviction_tail
    for name in ("page_size", "context_len", "max_running_requests", "max_prefill_tokens", "is_mixed_chunk"):
        values[name] = getattr(engine, name)
    values["num_pages"] = engine.num_usable_blocks
    values["chunked_prefill_size"] = engine.chunked_prefill_size or NONE
    values["is_tree_disabled"] = engine.disable_radix_cache
    values["schedule_policy"] = SCHEDULE_POLICIES.index(engine.effective_policy)
    values["eviction_policy"] = layout.EVICTION_POLICIES.index(engine.radix_eviction_policy)
    values["tail_tokens"] = tail.next_prompt_estimate - tail.threshold
    values["bucket_mask"] = num_buckets - 1
    values["kept_window"] = engine.sliding_window_size or 0
    values["num_window_pages"] = engine.swa_max_total_num_tokens // engine.page_size
    if engine.max_mamba_cache_size:
        values["has_states"], values["num_state_slots"] = 1, engine.max_mamba_cache_size
        values["num_tracking_slots"] = engine.num_tracking_slots
        values["state_chunk"], values["kernel_chunk"] = engine.mamba_cache_chunk_size, engine.mamba_chunk_size
        values["track_interval"] = engine.state_track_interval
    if engine.speculation is not None:
        values["draft_tokens"], values["draft_width"] = len(engine.speculation.rates), engine.speculation.width
        values["draft_reserve"], values["bigrams"] = engine.draft_reserve, engine.tree_has_bigrams
    values["init_ratio"], values["min_ratio"], values["ratio_decay"] = ratio.init, ratio.min, ratio.decay


def _requests(table: RequestTable, routing_keys: NDArray[np.int32]) -> NDArray[np.void]:
    """Answers may become as long as they do."""
    values = np.zeros(table.num_requests * table.num_attempts, layout.REQUEST)
    values["max_new_tokens"] = np.tile(table.output_tokens, table.num_attempts)
    values["routing_key"] = np.tile(routing_keys, table.num_attempts)
    values["lock"] = values["last_node"] = NONE
    return values
