"""Random cases for laying our scheduler beside vLLM's."""

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np

from calibrate.interpreters.recipe import find_recipe, recipe_lines
from conformance.cases.engine_settings import SUM_BLOCK, compressed_groups, random_engine
from conformance.cases.image_cases import image_settings
from conformance.cases.request_tables import cancellations, random_table
from conformance.cases.scheduler_case import MAX_STEPS, SEED, STEP_S, SchedulerCase
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.adapters import Adapters
from simulator.engines.vllm.connectors.host_cache import EVICTION_POLICIES, LRU
from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.engines.vllm.engine import EngineConfig, with_release_rules
from simulator.engines.vllm.speculation import Speculation
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation, StalledError
from workloads.requests import RequestTable, with_waits

STORM_EVERY, MIN_STORM_PREEMPTIONS = 5, 10
TEN, WATERMARK_ALONE, REFUND = 10, 3, 8  # which of each ten cases is about one rule
TWENTY, EAGLE, SELF_PREEMPTION = 20, 1, 6


def random_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed: any number of cases of one seed begins with the same ones.

    Every fifth is a storm: a pool so small that there are at least MIN_STORM_PREEMPTIONS preemptions. Some are about
    what cases drawn at large hardly meet: of each ten, one about the watermark while nothing runs, one about tokens
    that a preempted request gives back to the budget; of each twenty, one about EAGLE's prefix hits, one about requests
    that preempt themselves ahead of others.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    if number % STORM_EVERY == 0:
        return _storm(rng)
    of_ten = {WATERMARK_ALONE: _watermark_alone, REFUND: _refund}
    of_twenty = {EAGLE: _eagle, SELF_PREEMPTION: _self_preemption}
    return of_ten.get(number % TEN, of_twenty.get(number % TWENTY, _drawn))(rng)


def states_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed, with states that the prefix cache keeps, in pools from hardly enough to ample ones."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    block_size = int(rng.choice([8, 16, 16, 32, 64, 128]))
    table = random_table(rng, num_requests=int(rng.integers(4, 60)), block_size=block_size)
    is_storm = bool(rng.random() < 0.3)
    return SchedulerCase(
        engine=random_engine(rng, table, block_size, is_storm=is_storm, caches_states=True), table=table
    )


def cancelled_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed, in which clients cancel: while they wait, in mid-prompt, in mid-answer, at the end.

    Without pipelines: where all are cancelled, vLLM queues an empty step to clear up, and decides fewer ahead then.
    """
    case = random_case(seed, number)
    case = replace(case, engine=replace(case.engine, pipeline_parallel_size=1))
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 1]))
    return replace(case, table=with_waits(case.table, cancellations(rng, case.table)))


def offloading_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with a host tier, in pools of any size; clients cancel in a third."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 2]))
    block_size = int(rng.choice([8, 16, 32]))
    table = random_table(rng, num_requests=int(rng.integers(8, 60)), block_size=block_size)
    if number % 3 == 0:
        table = with_waits(table, cancellations(rng, table))
    return _narrow_case(
        rng,
        table,
        block_size=block_size,
        spare_blocks=int(rng.choice([0, 2, 6, 20, 100])),
        enable_prefix_caching=bool(rng.random() < 0.85),
        scheduling_policy="priority" if rng.random() < 0.3 else "fcfs",
        max_num_seqs=int(rng.choice([2, 5, 32])),
        max_num_batched_tokens=int(rng.choice([32, 64, 256, 2048])),
        long_prefill_token_threshold=int(rng.choice([0, 0, 7])),
        watermark=float(rng.choice([0.0, 0.0, 0.1])),
        scheduler_reserve_full_isl=bool(rng.random() < 0.7),
        host_tier=HostTier(
            num_chunks=int(rng.choice([3, 20, 60, 1000])),
            chunk_s=float(rng.choice([0.0, STEP_S / 64, STEP_S / 8, STEP_S / 2])),
            transfer_s=float(rng.choice([0.0, STEP_S / 8, 2 * STEP_S])),
            eviction_policy=EVICTION_POLICIES[number % len(EVICTION_POLICIES)],
        ),
    )


def windowed_offloading_case(seed: int, number: int) -> SchedulerCase:
    """The same case with windows of up to six blocks in some groups of layers or in all."""
    case = offloading_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 9]))
    size = case.engine.block_size
    full, one, other = KVGroup(None), *(KVGroup(int(rng.integers(2, 6 * size))) for _ in range(2))
    groups = [(full, one), (full, one, one), (one,), (full, one, other), (full, full, one)][int(rng.integers(5))]
    engine = replace(
        case.engine,
        kv_groups=groups,
        num_gpu_blocks=1 + len(groups) * (case.engine.num_gpu_blocks - 1),
        prefix_cache_retention_interval=[None, 0, 0, 4 * size][int(rng.integers(4))],
    )
    return replace(case, engine=engine)


def lmcache_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with LMCache, whose chunks are of one to a few blocks; clients cancel in a third."""
    case = offloading_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 3]))
    assert case.engine.host_tier is not None
    tier = replace(
        case.engine.host_tier, eviction_policy=LRU, blocks_per_chunk=int(rng.choice([1, 2, 4])), is_lmcache=True
    )
    return replace(case, engine=replace(case.engine, host_tier=tier))


def store_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with a store that nothing has to leave; clients cancel in a third."""
    case = offloading_case(seed, number)
    assert case.engine.host_tier is not None
    tier = replace(case.engine.host_tier, eviction_policy=LRU, is_shared=True, num_chunks=20_000)
    return replace(case, engine=replace(case.engine, host_tier=tier))


def sparse_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with sparse attention: an indexer's keys and latents under the same block ids."""
    case = random_case(seed, number)
    widths = (132, 656) if number % 2 else (132, 1152, 1152)  # bytes of a token: with and without FP8, in some layers
    pages = tuple(case.engine.block_size * width for width in widths)
    group = KVGroup(None, layers=tuple(range(len(pages))), page_bytes=pages)
    engine = replace(case.engine, kv_groups=(group,), prefix_cache_retention_interval=0)
    return replace(case, engine=engine, has_latent_attention=True)


def context_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with decode context parallelism: each rank has a part of a block's tokens."""
    case = random_case(seed, number)
    engine = replace(case.engine, kv_groups=(KVGroup(None),), speculation=None, prefix_cache_retention_interval=0)
    return replace(case, engine=engine, has_latent_attention=number % 2 == 0, context_ranks=2 if number % 3 else 8)


def compressed_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed with compressed attention: entries, windows, sums, in blocks of unequal size."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 4]))
    groups = compressed_groups(rng)
    largest = max(group.block_size or 1 for group in groups)
    table = random_table(rng, num_requests=int(rng.integers(4, 60)), block_size=max(largest, 8))
    engine = random_engine(rng, table, SUM_BLOCK, is_storm=bool(rng.random() < 0.3), groups=groups)
    return SchedulerCase(engine=engine, table=table)


def lora_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed whose requests use LoRA adapters, mostly more than may run; clients cancel in a third."""
    case = random_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 5]))
    max_loras = int(rng.choice([1, 1, 2, 3, 8]))
    adapters = Adapters(
        num_adapters=int(rng.choice([1, 2, 4, 12])),
        skew=float(rng.choice([0.0, 1.0])),
        max_loras=max_loras,
        max_cpu_loras=max_loras + int(rng.choice([0, 2])),
    )
    table = with_waits(case.table, cancellations(rng, case.table)) if number % 3 == 0 else case.table
    stages = case.engine.pipeline_parallel_size  # with more adapters than slots 0.32 stops; when cancelled: see above
    stages = stages if adapters.all_fit and number % 3 else 1
    engine = replace(case.engine, adapters=adapters, speculation=None, pipeline_parallel_size=stages)
    return replace(case, engine=engine, table=table)


def images_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed whose prompts have images, under encoder budgets and caches of any size."""
    table, engine = image_settings(np.random.default_rng(np.random.SeedSequence([seed, number, 6])), number)
    return SchedulerCase(engine=engine, table=table)


def interval_case(seed: int, number: int) -> SchedulerCase:
    """Case `number` of a seed that computes prompts every few steps alone, in an engine that shares no experts."""
    case = random_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 7]))
    interval = int(rng.choice([2, 2, 3, 4, 8]))
    return replace(case, engine=replace(case.engine, prefill_schedule_interval=interval))


CASES = {
    "all": random_case,
    "states": states_case,
    "cancelled": cancelled_case,
    "sparse": sparse_case,
    "context": context_case,
    "compressed": compressed_case,
    "lora": lora_case,
    "images": images_case,
    "interval": interval_case,
}  # by topic
ABOUT = {
    **CASES,
    "offloading": offloading_case,
    "offloading-windows": windowed_offloading_case,
    "lmcache": lmcache_case,
    "store": store_case,
}


def is_storm(number: int) -> bool:
    """Whether a seed's case of that number is one."""
    return number % STORM_EVERY == 0


def _storm(rng: np.random.Generator) -> SchedulerCase:
    """One under the rules of each release that can be installed to compare with."""
    tried = [find_recipe(f"{line}.0").tried for line in recipe_lines()]
    while True:
        case = _drawn(rng, is_storm=True)
        counts = (num_preemptions(case, release) for release in tried)
        if all(count >= MIN_STORM_PREEMPTIONS for count in counts):
            return case


def num_preemptions(case: SchedulerCase, vllm_version: str) -> int:
    """By our own scheduler under a release's rules, within MAX_STEPS."""
    simulation = simulate(replace(case, engine=with_release_rules(case.engine, vllm_version)))
    return sum(len(step.preempted) for step in simulation.steps[:MAX_STEPS])


def simulate(case: SchedulerCase) -> Simulation:
    """Run a case in the compiled core, up to MAX_STEPS steps at least, or to where a request can never be scheduled."""
    engine = case.engine
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    simulation = Simulation(
        Fleet(pools=(Pool(engine=engine, step_times=times),)), case.table, log_steps=True, seed=SEED
    )
    with contextlib.suppress(StalledError):  # vLLM would wait for ever
        simulation.run(MAX_STEPS * STEP_S + float(np.nanmax(case.table.arrival_s)))
    return simulation


def _drawn(rng: np.random.Generator, *, is_storm: bool = False) -> SchedulerCase:
    block_size = int(rng.choice([8, 16, 32, 64, 128]))
    num_requests = int(rng.integers(8, 60) if is_storm else rng.integers(4, 70))
    table = random_table(rng, num_requests=num_requests, block_size=block_size)
    engine = random_engine(rng, table, block_size, is_storm=is_storm)
    is_dense = engine.kv_groups == (KVGroup(None),)
    return SchedulerCase(engine=engine, table=table, has_latent_attention=bool(is_dense and rng.random() < 0.4))


def _watermark_alone(rng: np.random.Generator) -> SchedulerCase:
    """Short answers in a pool that the longest request fills: it enters only if the watermark does not count."""
    block_size = int(rng.choice([8, 16, 32]))
    table = random_table(rng, num_requests=int(rng.integers(3, 12)), block_size=block_size)
    table = replace(table, output_tokens=rng.integers(1, 9, table.num_requests).astype(np.int32))
    return _narrow_case(
        rng,
        table,
        block_size=block_size,
        spare_blocks=int(rng.integers(0, 3)),
        watermark=float(rng.choice([0.1, 0.2, 0.4])),
        scheduling_policy="priority" if rng.random() < 0.3 else "fcfs",
        max_num_seqs=int(rng.choice([2, 5, 32])),
        max_num_batched_tokens=int(rng.choice([64, 256, 2048])),
        scheduler_reserve_full_isl=bool(rng.random() < 0.7),
    )


def _eagle(rng: np.random.Generator) -> SchedulerCase:
    """EAGLE with prefix hits; requests part at the end of a block, or one token later."""
    block_size = int(rng.choice([8, 16]))
    table = random_table(rng, num_requests=int(rng.integers(20, 60)), block_size=block_size)
    ends, families = table.span_end.reshape(-1, 2).copy(), table.span_content.reshape(-1, 2)[:, 0]
    ends[:, 0] = np.maximum(ends[:, 0] // block_size, 1) * block_size + families % 2
    return _narrow_case(
        rng,
        replace(table, span_end=ends.ravel()),
        block_size=block_size,
        spare_blocks=int(rng.choice([2, 12, 100])),
        enable_prefix_caching=True,
        speculation=Speculation(
            method="eagle",
            num_speculative_tokens=int(rng.integers(1, 5)),
            acceptance_rate=float(rng.choice([0.4, 1.0])),
        ),
        max_num_seqs=int(rng.choice([3, 8, 32])),
        max_num_batched_tokens=int(rng.choice([32, 64, 512])),
    )


def _self_preemption(rng: np.random.Generator) -> SchedulerCase:
    """Long answers of requests that arrive in any order of priority: the lowest runs ahead of others, and gives up."""
    table = random_table(rng, num_requests=int(rng.integers(20, 60)), block_size=8)
    table = replace(
        table,
        prompt_tokens=rng.integers(5, 60, table.num_requests).astype(np.int32),
        output_tokens=rng.integers(20, 90, table.num_requests).astype(np.int32),
        priority=rng.integers(0, 6, table.num_requests).astype(np.int32),
    )
    drafts = Speculation(
        method=str(rng.choice(["eagle", "draft_model", "ngram"])), num_speculative_tokens=2, acceptance_rate=0.4
    )
    return _narrow_case(
        rng,
        table,
        block_size=8,
        spare_blocks=int(rng.choice([4, 12, 24])),
        speculation=drafts if rng.random() < 0.4 else None,
        scheduling_policy="priority",
        max_num_seqs=int(rng.choice([5, 8, 16])),
        max_num_batched_tokens=int(rng.choice([64, 256])),
    )


def _refund(rng: np.random.Generator) -> SchedulerCase:
    """Long prompts in small chunks, and a pool that takes a request of low priority out in the middle of a step."""
    table = random_table(rng, num_requests=int(rng.integers(20, 60)), block_size=8)
    table = replace(
        table,
        prompt_tokens=rng.integers(30, 160, table.num_requests).astype(np.int32),
        priority=rng.integers(0, 6, table.num_requests).astype(np.int32),
    )
    drafts = Speculation(method="draft_model", num_speculative_tokens=int(rng.integers(1, 4)), acceptance_rate=0.4)
    return _narrow_case(
        rng,
        table,
        block_size=8,
        spare_blocks=int(rng.choice([1, 4, 12, 24])),
        speculation=drafts if rng.random() < 0.5 else None,
        scheduling_policy="priority",
        max_num_seqs=int(rng.choice([5, 8])),
        max_num_batched_tokens=int(rng.choice([16, 24, 32])),
        long_prefill_token_threshold=int(rng.choice([5, 7, 11])),
        scheduler_reserve_full_isl=bool(rng.random() < 0.2),
    )


def _narrow_case(rng: np.random.Generator, table: RequestTable, **settings: Any) -> SchedulerCase:
    """As `narrow_engine`."""
    return SchedulerCase(engine=narrow_engine(rng, table, **settings), table=table)


def narrow_engine(
    rng: np.random.Generator, table: RequestTable, *, block_size: int, spare_blocks: int, **settings: Any
) -> EngineConfig:
    """Full attention in all layers unless groups are given, and a pool for the longest request and a few blocks."""
    longest = max(int((table.prompt_tokens + table.output_tokens).max()), 12)
    num_groups = len(settings.get("kv_groups", [None]))
    drawn = {"enable_prefix_caching": bool(rng.random() < 0.5), "async_scheduling": bool(rng.random() < 0.5)}
    return EngineConfig(
        num_gpu_blocks=1 + num_groups * -(-longest // block_size) + spare_blocks,
        max_model_len=longest + 1,
        block_size=block_size,
        **(drawn | settings),
    )
