"""Random engine settings for laying our scheduler beside vLLM's."""

from dataclasses import replace

import numpy as np

from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import Speculation
from workloads.requests import RequestTable

SUM_BLOCK = 4  # tokens in the smallest block of compressed attention


def random_engine(
    rng: np.random.Generator,
    table: RequestTable,
    block_size: int,
    *,
    is_storm: bool,
    caches_states: bool = False,
    groups: tuple[KVGroup, ...] = (),
) -> EngineConfig:
    """Settings of any kind, with a pool for the table's longest request; a storm's has hardly more.

    `caches_states`: with states, which the prefix cache keeps. `groups`: those of the layers, random ones where empty.
    """
    longest = int((table.prompt_tokens + table.output_tokens).max())
    max_model_len = longest + int(rng.integers(1, 20))
    if rng.random() < 0.15:  # some answers are cut off by it
        max_model_len = max(int(table.prompt_tokens.max()) + 1, longest - int(rng.integers(0, 12)))
    chunked_prefill = bool(rng.random() < 0.75)
    budget = int(rng.choice([64, 256, 2048] if is_storm else [16, 32, 64, 256, 2048]))
    prefix_caching = bool(rng.random() < 0.7)
    is_given, groups = bool(groups), groups or _groups(rng, block_size)
    stages = int(rng.choice([2, 3, 4])) if rng.random() < 0.25 else 1
    speculation = _speculation(rng, groups) if stages == 1 and rng.random() < 0.35 else None
    slides = any(group.window is not None and not group.chunked for group in groups)
    draft_slots = speculation.draft_slots if speculation else 0
    max_num_seqs = min(int(rng.choice([5, 32, 256] if is_storm else [1, 2, 5, 32, 256])), budget // (1 + draft_slots))
    if not chunked_prefill:  # older releases take the drafting slots of all sequences off beforehand
        budget = max(budget, max_model_len + draft_slots * max_num_seqs)
    engine = EngineConfig(
        num_gpu_blocks=2,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        enable_prefix_caching=prefix_caching,
        async_scheduling=bool(rng.random() < 0.6),
        scheduling_policy="priority" if rng.random() < 0.3 else "fcfs",
        long_prefill_token_threshold=min(int(rng.choice([0, 7, 40])), max_model_len),
        enable_chunked_prefill=chunked_prefill,
        scheduler_reserve_full_isl=bool(rng.random() < 0.7),
        watermark=float(rng.choice([0.0, 0.0, 0.02, 0.1])),
        kv_groups=groups,
        prefix_cache_retention_interval=_retention_interval(rng, block_size) if slides and not is_given else 0,
        pipeline_parallel_size=stages,
        speculation=speculation,
    )
    if is_given and slides and prefix_caching:
        interval = _retention_interval(rng, engine.block_size * engine.cache_unit)
        engine = replace(engine, prefix_cache_retention_interval=interval)
    if caches_states:
        engine = _with_cached_states(rng, engine)
    elif not is_given and not prefix_caching and rng.random() < 0.6:
        engine = replace(engine, kv_groups=_unequal(rng, engine), prefix_cache_retention_interval=0)
    return replace(engine, num_gpu_blocks=1 + _pool(rng, engine, longest, is_storm=is_storm))


def _with_cached_states(rng: np.random.Generator, engine: EngineConfig) -> EngineConfig:
    """States beside the other groups; those of Mamba 2 leave checkpoints, which take a third block."""
    states = (KVGroup(None, is_state=True, states_per_request=int(rng.choice([2, 3]))),) * int(rng.integers(1, 4))
    groups = engine.kv_groups
    return replace(
        engine,
        kv_groups=(*states, *groups) if rng.random() < 0.5 else (*groups, *states),
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        speculation=None,
        max_num_batched_tokens=int(rng.choice([16, 32, 64, 256, 2048])),
        max_num_seqs=int(rng.choice([1, 2, 5, 16])),
        prefix_cache_retention_interval=_retention_interval(rng, engine.block_size) if rng.random() < 0.6 else 0,
    )


def _unequal(rng: np.random.Generator, engine: EngineConfig) -> tuple[KVGroup, ...]:
    """The groups with states beside them, as in Qwen3-Next, or with larger blocks in one kind, as in Gemma 4."""
    groups = engine.kv_groups
    if len(groups) > 1 and rng.random() < 0.5:
        is_larger, ratio = bool(rng.random() < 0.5), int(rng.choice([2, 3, 4]))
        sizes = [ratio * engine.block_size if (group.window is None) is is_larger else None for group in groups]
        groups = tuple(replace(group, block_size=size) for group, size in zip(groups, sizes, strict=True))
    if engine.speculation is None and rng.random() < 0.7:
        states = (KVGroup(None, is_state=True),) * int(rng.integers(1, 4))
        groups = (*states, *groups) if rng.random() < 0.5 else (*groups, *states)
    return groups


def compressed_groups(rng: np.random.Generator) -> tuple[KVGroup, ...]:
    """DeepSeek-V4's groups with smaller blocks and windows, or Gemma 4's two, with the smaller blocks in either."""
    large, middle = (SUM_BLOCK * int(rng.choice(sizes)) for sizes in ([2, 4, 8, 16], [1, 2, 4]))
    window = int(rng.integers(2, 6 * middle + 2))
    slides = KVGroup(window, block_size=None if middle == SUM_BLOCK else middle)
    if rng.random() < 0.2:
        pair = [KVGroup(None), replace(slides, block_size=max(middle, 2 * SUM_BLOCK))]
        return tuple(pair) if rng.random() < 0.5 else tuple(pair[::-1])
    groups = [KVGroup(None, block_size=large), KVGroup(int(rng.choice([4, 8, 9])))]
    groups += [slides] * int(rng.integers(0, 3)) + [replace(slides, block_size=2 * SUM_BLOCK)] * int(rng.integers(0, 2))
    order = rng.permutation(len(groups))
    return tuple(groups[place] for place in order)


def _groups(rng: np.random.Generator, block_size: int) -> tuple[KVGroup, ...]:
    """Full attention, or with it windows of any length, Gemma 3's way, gpt-oss's or Llama 4's; or windows alone."""
    kind = rng.choice(["full", "sliding", "chunked", "windows"], p=[0.5, 0.3, 0.1, 0.1])
    if kind == "full":
        return (KVGroup(None),)
    window = int(rng.integers(2, 6 * block_size))
    if kind == "windows":
        other = window + int(rng.integers(1, 200))
        groups = [KVGroup(window)]
        if rng.random() < 0.6:
            groups.append(KVGroup(other))
        if rng.random() < 0.5:
            groups.append(KVGroup(None))
        return tuple(groups)
    if kind == "chunked":
        window = block_size * int(rng.integers(1, 8)) if rng.random() < 0.7 else window
    local = (KVGroup(window, chunked=kind == "chunked"),) * int(rng.integers(1, 4))
    full = (KVGroup(None),) * int(rng.choice([1, 1, 2]))
    return (*local, *full) if rng.random() < 0.5 else (*full, *local)


def _speculation(rng: np.random.Generator, groups: tuple[KVGroup, ...]) -> Speculation:
    method = str(
        rng.choice(["eagle", "draft_model", "ngram"] if groups == (KVGroup(None),) else ["draft_model", "ngram"])
    )
    return Speculation(
        method=method,
        num_speculative_tokens=int(rng.integers(1, 6)),  # narrower than any threshold above, or vLLM's assertions fail
        acceptance_rate=float(rng.choice([0.0, 0.4, 0.8, 1.0])),
    )


def _retention_interval(rng: np.random.Generator, block_size: int) -> int | None:
    choice = rng.integers(0, 3)
    return None if choice == 0 else 0 if choice == 1 else block_size * int(rng.integers(1, 9))


def _pool(rng: np.random.Generator, engine: EngineConfig, longest: int, *, is_storm: bool) -> int:
    """Usable blocks: a little more than the longest request ever holds, up to plenty."""
    tokens = longest + (engine.plans_in_flight + 1) * (1 + engine.num_speculative_tokens) + engine.num_lookahead_tokens
    tokens = min(tokens, engine.max_model_len)
    needed = 0
    for group, block_size in zip(engine.kv_groups, engine.group_block_sizes, strict=True):
        most = group.blocks_per_request(tokens, engine.max_in_flight_tokens, block_size)
        if group.is_state and engine.caches_states:
            most += engine.plans_in_flight  # steps that are not over keep theirs
        if group.chunked and group.window is not None and group.window % block_size:
            most += 1  # a chunk may begin within a block
        needed += min(-(-tokens // block_size), most)
    if is_storm:
        return needed + int(rng.choice([0, 1, 2, 4]))
    return needed + (int(rng.choice([0, 1, 2, 4, 12, 60])) if rng.random() < 0.75 else 4000)
