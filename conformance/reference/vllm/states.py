"""Where a prompt's chunks end so that the prefix cache can keep states: vLLM's cache mode `align`, in plain Python.

A state exists where a chunk ends, and is worth keeping at a block's end alone. Read from vLLM 0.32 and 0.33:
`vllm/v1/core/sched/scheduler.py` (`_mamba_block_aligned_split`), `vllm/v1/kv_cache_interface.py`.
"""

from typing import NamedTuple

from simulator.engines.vllm.engine import EngineConfig


class Chunk(NamedTuple):
    """A request's tokens of one step, from `start` to before `end`.

    `prefill_end`: where its prompt ends, or what it computes again once it was preempted.
    """

    start: int
    end: int
    prefill_end: int


def leaves_checkpoint(config: EngineConfig, chunk: Chunk) -> bool:
    """Whether a chunk leaves a state at the last block's end before its own, in a block of its own.

    Where the prefix cache keeps the end of a prompt alone, only its last chunk does.
    """
    is_kept = chunk.end >= chunk.prefill_end or config.prefix_cache_retention_interval != 0
    return config.keeps_state_checkpoints and is_kept and _passes_block_end(config, chunk.start, chunk.end)


def tokens_up_to_state(config: EngineConfig, chunk: Chunk, num_known_tokens: int, shared_prefix: int) -> int:
    """A chunk's tokens, shortened to end where the state must be cached; 0: it has to wait for a larger budget.

    That is at a block's end; at the last one of what is known, unless the chunk leaves a state there on its way; and
    where another request's prefix goes on, at `shared_prefix` tokens.
    """
    start, end, prefill_end = chunk
    if not config.caches_states or start >= prefill_end:
        return end - start
    size = config.block_size
    stops = []
    leaves_state = config.keeps_state_checkpoints and _passes_block_end(config, start, prefill_end)
    if not (leaves_state and end >= prefill_end):
        stops.append((num_known_tokens - 1) // size * size)
        if start % size:
            stops.append((start // size + 1) * size)
    if end < prefill_end:
        end = _aligned_end(config, start, end)
    if start < shared_prefix < end:
        stops.append(start + (shared_prefix - start) // size * size)
    return max(min((stop for stop in stops if start < stop < end), default=end) - start, 0)


def _aligned_end(config: EngineConfig, start: int, end: int) -> int:
    """The last block's end within a chunk; a block larger than any chunk is computed in several."""
    most = min(config.token_budget, config.long_prefill_token_threshold or config.token_budget)
    aligned = end // config.block_size * config.block_size
    return aligned if aligned > start or config.block_size <= most else end


def _passes_block_end(config: EngineConfig, start: int, end: int) -> bool:
    """Whether tokens that begin with a block go on in a later one."""
    return start % config.block_size == 0 and (end - 1) // config.block_size > start // config.block_size
