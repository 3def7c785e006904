"""The arrays of host tiers before a run; empty where no engine has one."""

import numpy as np
from numpy.typing import NDArray

from simulator.core import sparse
from simulator.core.layout import LMCACHE, NIXL, NONE, OFFLOADING
from simulator.core.types import AnyArray, Pool
from simulator.core.vllm.host_tier import layout
from simulator.engines.vllm.connectors.host_cache import ARC
from simulator.engines.vllm.connectors.pulling import KV_CONSUMER, KV_PRODUCER
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from workloads.requests import RequestTable


def num_holders(engine: EngineConfig, table: RequestTable) -> int:
    """The most requests that wait and hold blocks at once: each has one of each group at least."""
    waits = engine.kv_role or (engine.host_tier and not engine.host_tier.is_lmcache)
    most = engine.num_gpu_blocks // len(engine.kv_groups)
    return min(table.num_requests * table.num_attempts, most) if waits else 0


def num_rows(engine: EngineConfig, table: RequestTable, max_num_seqs: int) -> int:
    """Block tables of an engine: beside those that run and hold, those that have just ended keep theirs for a step."""
    if engine.host_tier is None and engine.kv_role is None:
        return max_num_seqs + 1
    requests, holders = table.num_requests * table.num_attempts, num_holders(engine, table)
    most = min(3 * max_num_seqs + 2 * holders, requests) + 1
    return most + holders if engine.host_tier and engine.host_tier.is_shared else most  # those that stores hold


def tier_arrays(fleet: Fleet, table: RequestTable, tables: tuple[int, ...]) -> dict[str, AnyArray]:
    """By their names in `layout.Arrays`; `tables`: the shape of the block tables."""
    engines = [pool.engine for pool in fleet.pools if isinstance(pool.engine, EngineConfig)]
    has_tier = any(engine.host_tier for engine in engines)
    count = fleet.num_engines if has_tier or fleet.is_disaggregated else 0
    requests = table.num_requests * table.num_attempts * fleet.num_legs if count else 0
    blocks = sum(pool.num_engines * pool.engine.num_gpu_blocks for pool in fleet.pools) if has_tier else 0
    tiers = np.zeros(count, layout.TIER)
    for end in (f"{queue}_{side}" for queue in QUEUES for side in ("head", "tail")):
        tiers[end] = NONE
    tiers["is_idle"] = 1
    is_shared = any(engine.host_tier and engine.host_tier.is_shared for engine in engines)
    tiers["cache"] = 0 if is_shared else np.arange(count)
    caches = np.zeros(min(count, 1) if is_shared else count, layout.CACHE)
    caches["oldest"] = caches["newest"] = NONE
    chunks = max((engine.host_tier.num_chunks for engine in engines if engine.host_tier), default=0)
    has_arc = any(engine.host_tier and engine.host_tier.eviction_policy == ARC for engine in engines)
    records = chunks * RECORDS[has_arc]
    offloads = np.zeros(requests, layout.OFFLOAD)
    if has_tier:
        offloads["note_bytes"] = np.resize(_note_bytes(engines, table), requests)
        offloads["notes"] = np.cumsum(offloads["note_bytes"], dtype=np.int64) - offloads["note_bytes"]
    has_windows = any(group.window for engine in engines if engine.host_tier for group in engine.kv_groups)
    return {
        "tiers": tiers,
        "caches": caches,
        "offloads": offloads,
        "used_chunks": np.zeros((NOTES[has_arc], int(offloads["note_bytes"].sum(dtype=np.int64))), np.uint8),
        "chunks": np.zeros((len(caches), records), layout.CHUNK),
        "chunk_heap": np.zeros((len(caches), chunks), np.int32),
        "chunk_buckets": np.zeros((len(caches), _ring(2 * records)), np.int32),
        "stores": np.zeros((count, max(map(_num_stores, engines), default=0)), layout.TRANSFER),
        "loads": np.zeros(
            (count, max((_ring(num_holders(engine, table)) for engine in engines), default=0)), layout.TRANSFER
        ),
        "told": np.zeros((count, max((engine.plans_in_flight for engine in engines), default=0), 2), np.int64),
        "fences": np.zeros(blocks, np.int32),
        "handed_out": np.zeros(blocks, np.int32),
        "registered": sparse.zeros(tables if has_windows else (0, 0), np.int32),
    }


QUEUES = ("holding", "ended", "deferred")
RECORDS = {False: 1, True: 3}  # of a chunk that host memory has room for: ARC remembers twice as many that went
NOTES = {False: 1, True: 3}  # bits of a request's chunk, see `host_cache`


def _note_bytes(engines: list[EngineConfig], table: RequestTable) -> NDArray[np.int64]:
    """By request, a bit for each of its full blocks."""
    blocks = (table.prompt_tokens.astype(np.int64) + table.output_tokens) // min(of.block_size for of in engines)
    return -(-blocks * max(len(of.kv_groups) for of in engines) // 8)


def fill_tier(values: Pool, engine: EngineConfig, table: RequestTable) -> None:
    """An engine's connector under the names of the core."""
    if engine.kv_role is not None:
        values["connector"] = NIXL
        values["defers_frees"] = engine.kv_role != KV_PRODUCER
        values["drops_stale"] = engine.kv_role != KV_CONSUMER
    if engine.host_tier is None:
        return
    values["connector"], values["defers_frees"] = LMCACHE if engine.host_tier.is_lmcache else OFFLOADING, 1
    values["host_chunks"] = engine.host_tier.num_chunks
    values["host_chunk_tokens"] = engine.host_tier.blocks_per_chunk * engine.block_size
    values["evicts_by_arc"] = engine.host_tier.eviction_policy == ARC
    values["is_shared"] = engine.host_tier.is_shared
    values["ranks_requests"] = engine.host_tier.ranks_requests(engine.host_lru_ranks_requests)
    values["offers_again"] = engine.restart_offers_again
    values["chunk_mask"] = _ring(2 * engine.host_tier.num_chunks * RECORDS[engine.host_tier.eviction_policy == ARC]) - 1
    values["store_mask"] = _num_stores(engine) - 1
    values["load_mask"] = _ring(num_holders(engine, table)) - 1
    for name in ("chunk_s", "transfer_s", "store_chunk_s"):
        values[name] = getattr(engine.host_tier, name)


def _num_stores(engine: EngineConfig) -> int:
    """Places in the ring of stores; of LMCache one for each request of a step."""
    if engine.host_tier is None:
        return 0
    each_step = engine.max_num_seqs * engine.plans_in_flight
    if engine.host_tier.is_lmcache:
        return _ring(each_step)
    if engine.host_tier.is_shared:  # each holds a block of its request alone, where at most two stores end
        return _ring(2 * engine.num_gpu_blocks)
    return _ring(engine.host_tier.num_chunks)


def _ring(count: int) -> int:
    """Places of a ring for so many at once: a power of two."""
    return 1 << count.bit_length()
