"""Like groups of layers are kept as one, and decide as the reference does where their blocks differ, too."""

import numpy as np
import pytest

from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.simulation import Simulation
from tests.simulator.core.test_core_against_reference import assert_same
from tests.simulator.random_cases import TICK_S, Case, random_step_times
from tests.simulator.test_laws import check_blocks
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

BLOCK_SIZE, BUDGET, MAX_NUM_SEQS = 4, 64, 5
BANDS = (
    (*(KVGroup(20),) * 3, KVGroup(None)),
    (*(KVGroup(13),) * 6,),
    (*(KVGroup(24, chunked=True),) * 2, *(KVGroup(13),) * 2, KVGroup(None)),
)


def crowded_case(seed: int, groups: tuple[KVGroup, ...]) -> Case:
    """Few conversations that come again and again, to an engine which can barely hold some of them."""
    rng = np.random.default_rng(seed)
    count, longest = 150, 160
    conversations = rng.integers(0, 8, count)
    prompt = rng.integers(1, longest, count).astype(np.int32)
    output = rng.integers(1, 30, count).astype(np.int32)
    follows = np.where(np.arange(count) < 6, NO_PREDECESSOR, np.arange(count) - 6)
    table = RequestTable(
        arrival_s=np.where(follows < 0, 0.0, np.nan),
        follows=follows,
        think_s=np.where(follows >= 0, rng.integers(0, 200, count) * TICK_S, 0.0),
        prompt_tokens=prompt,
        output_tokens=output,
        priority=np.zeros(count, np.int32),
        span_start=np.arange(count, dtype=np.int64) * 2,
        span_count=np.full(count, 2, np.int32),
        span_content=np.stack([conversations % 2, 2 + conversations], axis=1).ravel(),
        span_end=np.stack([np.where(conversations % 2, 30, 50), np.full(count, OPEN_END)], axis=1)
        .astype(np.int32)
        .ravel(),
    )
    needed = (longest + 30) // BLOCK_SIZE + 1
    engine = EngineConfig(
        num_gpu_blocks=1 + len(groups) * needed + int(rng.choice([8, 40, 2 * needed])) * len(groups),
        max_model_len=longest + 40,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=BUDGET,
        block_size=BLOCK_SIZE,
        kv_groups=groups,
        prefix_cache_retention_interval=None,
    )
    return Case(Fleet(pools=(Pool(engine=engine, step_times=random_step_times(rng, BUDGET, MAX_NUM_SEQS)),)), table)


@pytest.mark.parametrize("groups", BANDS)
def test_lanes_that_are_not_cached_alike_are_found_held_and_evicted_as_single_blocks_are(
    groups: tuple[KVGroup, ...],
) -> None:
    num_split = 0
    for seed in range(8):
        case = crowded_case(seed, groups)
        assert_same(case)
        simulation = Simulation(case.fleet, case.table)
        for until_s in np.linspace(0.0, 8.0, 17):
            simulation.run(until_s)
            check_blocks(simulation)
        simulation.run()
        check_blocks(simulation)
        arrays = simulation.arrays
        lanes = arrays.groups["lanes"][arrays.segments["key"] % len(groups)]
        num_split += int(((arrays.segments["end_lane"] > 0) & (arrays.segments["end_lane"] < lanes)).sum())
    assert num_split > 0  # some hits had their lanes from more than one segment
