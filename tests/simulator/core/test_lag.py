"""Engines that lag behind the fleet's time do exactly what those do that are looked at after every step."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.layout.kv_layout import KVGroup
from simulator.core.jit import RUN
from simulator.core.layout import DONE
from simulator.fleet.fleet import Fleet
from simulator.fleet.operation import Operation, Operations
from simulator.live import LiveFleet
from simulator.simulation import Simulation, StalledError
from tests.simulator.core.test_core_against_reference import SEED
from tests.simulator.core.test_kernel_forms import with_engines
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.random_cases import GROUPS, TICK_S, Case, cases, operations
from workloads.requests import independent_requests

ROUTERS = ("least-outstanding", "power-of-two", "round-robin", "session-affinity", "cache-aware", "ray-prefix")


@st.composite
def lagging_cases(draw: st.DrawFn, *, max_requests: int = 60, max_replicas: int = 3) -> Case:
    """Cases whose engines may lag; times are those where many other things happen."""
    case = draw(cases(max_requests=max_requests, max_replicas=max_replicas))
    case = with_engines(case, draw(st.sampled_from([(KVGroup(None),), *GROUPS])))
    return replace(case, fleet=replace(case.fleet, router=draw(st.sampled_from(ROUTERS))))


def state_of(simulation: Simulation) -> dict[str, bytes]:
    seen = (simulation.requests, simulation.totals, simulation.samples, simulation.itl_histogram)
    engines = simulation.arrays.replicas
    names = ("step", "num_running", "num_waiting", "num_free_blocks", "num_cached_free_blocks", "accounted_s")
    return {
        **{f"part {place}": part.tobytes() for place, part in enumerate(seen)},
        **{name: engines[name].tobytes() for name in names},
    }


def simulation_of(case: Case, *, may_lag: bool) -> Simulation:
    simulation = Simulation(case.fleet, case.table, seed=SEED)
    assert simulation.arrays.cursor["may_lag"][0]
    simulation.arrays.cursor["may_lag"] = may_lag
    return simulation


def states_at(case: Case, times_s: list[float], *, may_lag: bool) -> list[dict[str, bytes] | str]:
    """The state at some times and at the end; a fleet that stalls says so in its place."""
    simulation, states = simulation_of(case, may_lag=may_lag), []
    try:
        for time_s in [*sorted(times_s), np.inf]:
            simulation.run(time_s)
            states.append(state_of(simulation))
    except StalledError as error:
        states.append(str(error))
    return states


def assert_lagging_changes_nothing(case: Case, times_s: list[float]) -> None:
    assert states_at(case, times_s, may_lag=True) == states_at(case, times_s, may_lag=False)


times = st.lists(st.integers(0, 3000).map(lambda ticks: ticks * TICK_S), max_size=4)


@settings(max_examples=80)
@given(lagging_cases(), times)
def test_engines_that_lag_are_the_same_whenever_somebody_looks(case: Case, times_s: list[float]) -> None:
    assert_lagging_changes_nothing(case, times_s)


@pytest.mark.slow
@settings(max_examples=3000)
@given(lagging_cases(max_requests=150, max_replicas=5), times)
def test_the_same_on_many_more_cases(case: Case, times_s: list[float]) -> None:
    assert_lagging_changes_nothing(case, times_s)


@settings(max_examples=40)
@given(lagging_cases(), operations())
def test_engines_that_lag_fail_and_restart_as_they_are(case: Case, asked: Operations) -> None:
    count = case.fleet.num_engines
    ended = []
    for may_lag in (True, False):
        simulation = simulation_of(case, may_lag=may_lag)
        operation = Operation(simulation, replace(asked, min_replicas=count, max_replicas=count))
        operation.run()
        ended.append((state_of(simulation), operation.history))
    assert ended[0] == ended[1]


def fleet_of(router: str = "round-robin", **settings: int) -> Fleet:
    return Fleet(pools=(pool_of(0.01, 100, num_servers=3, **settings),), router=router)


def test_an_engine_is_looked_at_once_a_request_not_once_a_step() -> None:
    """Once as one ends; each arrival, and each bound, may let it be looked at once too soon."""
    table = independent_requests(arrival_s=np.arange(30) * 0.3, prompt_tokens=[20] * 30, output_tokens=[200] * 30)
    lagging, other = (simulation_of(Case(fleet_of(), table), may_lag=may_lag) for may_lag in (True, False))
    assert num_instants(lagging) <= 5 * 30
    assert num_instants(other) > 2000


def num_instants(simulation: Simulation) -> int:
    count = 0
    while RUN[simulation.form](simulation.arrays, np.inf, 1) != DONE:
        count += 1
    return count


@pytest.mark.parametrize("begin_s", [1e5, 1e7, 1e9, 1e12, 1e14, 1e17])
def test_engines_that_lag_are_the_same_where_steps_are_as_short_as_times_are_rounded(begin_s: float) -> None:
    table = independent_requests(
        arrival_s=begin_s + np.arange(20) * 0.7, prompt_tokens=[20] * 20, output_tokens=[180] * 20
    )
    assert_lagging_changes_nothing(Case(fleet_of(), table), [begin_s + 3.0])


@pytest.mark.parametrize("router", ["vllm-dp", "dynamo-kv", "llm-d", "llm-d-precise"])
def test_where_a_router_looks_into_engines_none_lags(router: str) -> None:
    table = independent_requests(arrival_s=[0.0], prompt_tokens=[20], output_tokens=[10])
    assert not Simulation(fleet_of(router), table).arrays.cursor["may_lag"][0]
    assert Simulation(fleet_of(), table).arrays.cursor["may_lag"][0]


def test_with_a_log_of_steps_with_ranks_or_for_live_clients_none_lags() -> None:
    table = independent_requests(arrival_s=[0.0], prompt_tokens=[20], output_tokens=[10])
    assert not Simulation(fleet_of(), table, log_steps=True).arrays.cursor["may_lag"][0]
    assert not Simulation(fleet_of(data_parallel_size=2), table).arrays.cursor["may_lag"][0]
    assert not LiveFleet(fleet_of(), most=4).simulation.arrays.cursor["may_lag"][0]
