"""How far KV that lies in host memory goes on from a request's hits on the GPU, in plain Python.

Groups of layers that attend to everything need every chunk from there on; of one with a window, the last ones are
enough. Read from vLLM 0.33, `vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`.
"""

from collections.abc import Sequence

from conformance.reference.vllm.requests import Request
from simulator.engines.vllm.connectors.host_cache import WRITING, ChunkKey, HostCache
from simulator.engines.vllm.engine import EngineConfig


def key_of(config: EngineConfig, request: Request, group: int, index: int) -> ChunkKey:
    """What host memory knows a block of one group by."""
    return request.table.content((index + 1) * config.block_size - 1), index, group


def loaded_window(config: EngineConfig, group: int) -> int | None:
    """Chunks at a hit's end that a group with a window loads; None: all of them.

    vLLM counts tokens that are missing to the end of a block; without draft tokens there is at most one.
    """
    window = config.table_groups[group].window
    return None if window is None else -(-window // config.block_size)


def find_hit(config: EngineConfig, cache: HostCache, request: Request, num_local_tokens: int) -> int | None:
    """Tokens beyond `num_local_tokens` that all groups have; None: a chunk is being written, ask again.

    A group that has less shortens the hit, and what others have is looked up again up to there.
    """
    groups, size = config.table_groups, config.block_size
    full = [number for number, group in enumerate(groups) if group.window is None]
    windowed = sorted(
        (number for number, group in enumerate(groups) if group.window is not None),
        key=lambda number: loaded_window(config, number) or 0,
        reverse=True,
    )
    num_keys = request.num_tokens // size
    most = request.num_tokens - bool(windowed)  # with a window, a hit must stay one without the last token
    start, num_hit, waits, remaining = num_local_tokens // size, 0, False, [*full, *windowed]
    while remaining:
        turn, remaining, has_seen_window = remaining, [], False
        for number in turn:
            most = min(most, num_keys * size)
            if most - num_local_tokens < size:
                return 0
            num_chunks = min(-(-most // size), num_keys)
            keys = [key_of(config, request, number, index) for index in range(start, num_chunks)]
            window = loaded_window(config, number)
            found = _leading(cache, keys) if window is None else _last_window(cache, keys, window)
            if found == 0:
                return 0
            if found is None:
                waits = True
            else:
                most = min(most, size * (start + found))
            if most - num_local_tokens < size:
                return 0
            if most - num_local_tokens < num_hit:
                if waits:
                    waits, remaining = False, [*full, *windowed]
                elif has_seen_window and not remaining:
                    remaining = windowed
            has_seen_window |= window is not None
            num_hit = most - num_local_tokens
    return None if waits else num_hit


def _leading(cache: HostCache, keys: Sequence[ChunkKey]) -> int | None:
    """How many are there, one after the other from the first on; None: one of them is being written."""
    count, waits = 0, False
    for key in keys:
        if cache.reads(key) is None:
            break
        waits |= cache.reads(key) == WRITING
        count += 1
    return None if waits else count


def _last_window(cache: HostCache, keys: Sequence[ChunkKey], window: int) -> int | None:
    """Where the last run of `window` chunks ends, or a shorter one at the start; None: one of it is being written."""
    count, waits = 0, False
    for place in reversed(range(len(keys))):
        reads = cache.reads(keys[place])
        if reads is None:
            count, waits = 0, False
            continue
        waits |= reads == WRITING
        count += 1
        if count == window:
            return None if waits else place + window
    return None if waits else count
