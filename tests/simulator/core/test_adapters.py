"""Engines with LoRA adapters: the compiled core decides as the readable reference does."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.errors import HeadcountError
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.adapter_use import adapters_of, apart_by_adapter
from simulator.engines.vllm.adapters import Adapters
from simulator.fleet.fleet import Pool
from simulator.simulation import Simulation, StalledError
from tests.simulator.core.test_core_against_reference import COMPARED, SEED, assert_same, assert_same_ends
from tests.simulator.core.test_kernel_forms import bytes_after, plain_cases, with_engines
from tests.simulator.random_cases import TICK_S, Case, cases, impatient_cases, in_segments
from workloads.requests import independent_requests


@st.composite
def adapters(draw: st.DrawFn) -> Adapters:
    """Few slots, so that requests wait for them; in CPU memory as many or more."""
    max_loras = draw(st.integers(1, 4))
    return Adapters(
        num_adapters=draw(st.integers(1, 8)),
        skew=draw(st.sampled_from([0.0, 1.0])),
        max_loras=max_loras,
        max_cpu_loras=max_loras + draw(st.sampled_from([0, 1, 8])),
    )


def with_adapters(case: Case, found: Adapters) -> Case:
    pools = []
    for pool in case.fleet.pools:
        stages = pool.engine.pipeline_parallel_size if pool.engine.idle_adapters_count else 1
        engine = replace(pool.engine, adapters=found, speculation=None, pipeline_parallel_size=stages)
        times = replace(pool.step_times, adapter_s=TICK_S / 4, adapter_load_s=3 * TICK_S, adapter_read_s=20 * TICK_S)
        pools.append(replace(pool, engine=engine, step_times=times))
    return replace(case, fleet=replace(case.fleet, pools=tuple(pools)))


adapter_cases = st.builds(with_adapters, cases(), adapters())


@settings(max_examples=60)
@given(adapter_cases)
def test_requests_with_adapters_have_the_same_times_in_the_core_and_in_the_reference(case: Case) -> None:
    assert_same(case)


@settings(max_examples=40)
@given(st.builds(with_adapters, impatient_cases(), adapters()))
def test_requests_with_adapters_whose_clients_cancel_end_alike(case: Case) -> None:
    assert_same_ends(case)


@settings(max_examples=40)
@given(st.builds(with_adapters, cases().map(in_segments), adapters()))
def test_engines_with_adapters_leave_the_same_bytes_in_their_form(case: Case) -> None:
    case = with_engines(case, (KVGroup(None),))
    assert Simulation(case.fleet, case.table).form == "adapters"
    assert bytes_after(case, "adapters") == bytes_after(case, "whole")


@settings(max_examples=40)
@given(plain_cases)
def test_adapters_that_all_fit_and_take_no_time_change_nothing_but_what_is_shared(case: Case) -> None:
    """One adapter, which is loaded before: every request has the same times as without."""
    found = Adapters(num_adapters=1)
    free = with_adapters(case, found)
    pools = tuple(
        replace(pool, step_times=of.step_times) for pool, of in zip(free.fleet.pools, case.fleet.pools, strict=True)
    )
    ours = Simulation(replace(free.fleet, pools=pools), case.table, seed=SEED)
    bare = Simulation(case.fleet, case.table, seed=SEED)
    for simulation in (ours, bare):
        with suppress(StalledError):
            simulation.run()
    for name in COMPARED:
        np.testing.assert_array_equal(ours.requests[name], bare.requests[name], err_msg=name)


@settings(max_examples=60)
@given(adapter_cases)
def test_no_more_adapters_run_at_once_than_max_loras_and_turns_keep_theirs(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table, seed=SEED, log_steps=True)
    with suppress(StalledError):
        simulation.run()
    of, follows = simulation.arrays.adapter_of, case.table.follows
    turns = np.flatnonzero(follows >= 0)
    np.testing.assert_array_equal(of[turns], of[follows[turns]])
    most = {engine: pool.engine.adapters.max_loras for engine, pool in engines_of(case)}
    for step in simulation.steps:
        assert len({int(of[row]) for row in step.scheduled}) <= most[step.replica]


def engines_of(case: Case) -> Iterator[tuple[int, Pool]]:
    pools = [pool for pool in case.fleet.pools for _ in range(pool.num_engines)]
    return enumerate(pools)


@given(st.integers(1, 300), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(0, 2**32))
def test_sessions_use_adapters_by_their_shares(count: int, skew: float, seed: int) -> None:
    """The number of sessions of the most popular adapter lies within five standard deviations of its share."""
    sessions = 4000
    table = independent_requests(
        arrival_s=np.zeros(sessions), prompt_tokens=np.ones(sessions), output_tokens=np.ones(sessions)
    )
    found = Adapters(num_adapters=count, skew=skew)
    of = adapters_of(table, found, seed)
    share = float(found.shares[0])
    assert of.min() >= 0 and of.max() < count
    assert abs((of == 0).sum() - sessions * share) <= 5 * np.sqrt(sessions * share * (1 - share)) + 1e-9
    np.testing.assert_array_equal(of, adapters_of(table, found, seed))


def test_prefixes_are_shared_within_an_adapter_alone() -> None:
    table = independent_requests(arrival_s=np.zeros(4), prompt_tokens=np.full(4, 9), output_tokens=np.ones(4))
    table = replace(table, span_start=np.zeros(4, np.int64), span_content=np.array([7]), span_end=table.span_end[:1])
    apart = apart_by_adapter(table, np.array([0, 1, 0, 1], np.int32))
    content = apart.span_content[apart.span_start]
    assert content[0] == content[2] != content[1] == content[3]
    apart.validate()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"num_adapters": 0}, "give 1 to"),
        ({"num_adapters": 2, "skew": -1.0}, "adapter_skew is -1"),
        ({"num_adapters": 2, "max_loras": 3, "max_cpu_loras": 2}, "max_cpu_loras is 2, below max_loras, 3"),
    ],
)
def test_adapters_that_cannot_be_are_refused(given: dict[str, float], says: str) -> None:
    with pytest.raises(HeadcountError, match=says):
        Adapters(**given)
