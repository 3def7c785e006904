"""Pools that differ, behind one router."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.results import whole_run
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases
from workloads.requests import independent_requests


def served(fleet: Fleet, case: Case) -> Simulation:
    simulation = Simulation(fleet, case.table, seed=1)
    simulation.run()
    return simulation


@pytest.mark.slow
@settings(max_examples=60)
@given(cases(max_replicas=4))
def test_two_equal_pools_are_one_pool_of_their_sum(case: Case) -> None:
    first = case.fleet.pools[0]
    one = served(replace(case.fleet, pools=(replace(first, num_servers=2 * first.num_servers),)), case)
    two = served(replace(case.fleet, pools=(first, first)), case)
    np.testing.assert_array_equal(two.requests, one.requests)
    np.testing.assert_array_equal(two.totals, one.totals)
    np.testing.assert_array_equal(two.samples, one.samples)


def pool_of(step_s: float, blocks: int, *, max_model_len: int = 512, **settings: int) -> Pool:
    engine = EngineConfig(
        num_gpu_blocks=blocks, max_model_len=max_model_len, max_num_seqs=8, max_num_batched_tokens=256
    )
    times = constant_step_times(step_s, max_num_batched_tokens=256, max_num_seqs=8)
    return Pool(engine=engine, step_times=times, **settings)


def test_the_faster_pool_serves_more_where_the_router_counts_requests() -> None:
    table = independent_requests(arrival_s=np.arange(400) * 0.02, prompt_tokens=[20] * 400, output_tokens=[10] * 400)
    fleet = Fleet(pools=(pool_of(0.02, 100), pool_of(0.005, 400)))
    simulation = Simulation(fleet, table)
    simulation.run()
    slow, fast = np.bincount(simulation.requests["replica"], minlength=2)
    assert slow + fast == 400
    assert fast > 1.5 * slow
    tpot_s = np.diff([simulation.requests["first_token_s"], simulation.requests["finish_s"]], axis=0)[0] / 9
    assert tpot_s[simulation.requests["replica"] == 0].min() >= 0.02 * 0.999
    assert tpot_s[simulation.requests["replica"] == 1].min() >= 0.005 * 0.999
    assert whole_run(simulation).kv_usage_max <= 1.0


def test_a_prompt_must_fit_every_pool_that_it_may_be_sent_to() -> None:
    table = independent_requests(arrival_s=[0.0], prompt_tokens=[300], output_tokens=[10])
    with pytest.raises(ValueError, match="max_model_len 256"):
        Simulation(Fleet(pools=(pool_of(0.01, 100), pool_of(0.01, 100, max_model_len=256))), table)


def test_a_request_that_never_fits_is_told_the_size_of_its_own_pool() -> None:
    table = independent_requests(arrival_s=[0.0, 0.0], prompt_tokens=[10, 500], output_tokens=[5, 5])
    fleet = Fleet(pools=(pool_of(0.01, 100), pool_of(0.01, 11)), router="round-robin")
    with pytest.raises(ValueError, match="request 1 has 500 tokens and needs 32 KV blocks, but the pool has 10"):
        Simulation(fleet, table).run()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_servers": 0}, "num_servers is 0"),
        ({"data_parallel_size": 0}, "data_parallel_size is 0"),
        ({"role": "prefll"}, "no role 'prefll'"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pool_of(0.01, 100, **settings)
