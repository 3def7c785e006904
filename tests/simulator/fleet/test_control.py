"""SimPy processes beside the compiled core."""

import math

import numpy as np
from hypothesis import given, settings

from simulator.fleet.fleet import Fleet
from simulator.fleet.operation import ControlPlane
from simulator.simulation import Simulation
from tests.simulator.core.simpy_fleet import Process
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.random_cases import Case, cases
from workloads.requests import independent_requests


def sampler(plane: ControlPlane, period_s: float, seen: list[tuple[float, int]]) -> Process:
    """What a scraper of metrics does: look every so often, for as long as the load lasts."""
    while True:
        yield plane.env.timeout(period_s)
        seen.append((plane.env.now, plane.simulation.num_finished))


@settings(max_examples=60)
@given(cases())
def test_a_process_that_samples_changes_no_bit(case: Case) -> None:
    alone = Simulation(case.fleet, case.table)
    alone.run()
    plane = ControlPlane(Simulation(case.fleet, case.table))
    seen: list[tuple[float, int]] = []
    plane.env.process(sampler(plane, 0.25, seen))
    plane.run()
    np.testing.assert_array_equal(plane.simulation.requests, alone.requests)
    np.testing.assert_array_equal(plane.simulation.totals, alone.totals)
    np.testing.assert_array_equal(plane.simulation.samples, alone.samples)
    assert plane.simulation.now_s == alone.now_s
    assert [time_s for time_s, _ in seen] == [0.25 * (k + 1) for k in range(math.ceil(alone.now_s / 0.25) - 1)] or (
        alone.now_s % 0.25 == 0
    )


def test_at_one_instant_steps_end_then_control_events_come_then_requests_arrive() -> None:
    table = independent_requests(arrival_s=[0.0, 0.25], prompt_tokens=[4, 4], output_tokens=[1, 1])
    plane = ControlPlane(Simulation(Fleet(pools=(pool_of(0.25, 100),)), table))
    seen: list[tuple[float, int]] = []
    waiting: list[int] = []

    def look() -> Process:
        yield plane.env.timeout(0.25)
        seen.append((plane.env.now, plane.simulation.num_finished))
        waiting.append(int(np.count_nonzero(plane.simulation.requests["status"])))

    plane.env.process(look())
    plane.run()
    assert seen == [(0.25, 1)]
    assert waiting == [1]  # the second request has not come yet
    assert plane.simulation.num_finished == 2


def test_a_plane_stops_where_it_is_told() -> None:
    table = independent_requests(arrival_s=[0.0, 9.0], prompt_tokens=[4, 4], output_tokens=[4, 4])
    plane = ControlPlane(Simulation(Fleet(pools=(pool_of(0.25, 100),)), table))
    seen: list[tuple[float, int]] = []
    plane.env.process(sampler(plane, 1.0, seen))
    plane.run(3.5)
    assert plane.simulation.now_s == 3.5
    assert seen == [(1.0, 1), (2.0, 1), (3.0, 1)]
    plane.run()
    assert plane.simulation.num_finished == 2
    assert len(seen) == 10  # at 10 s the last step ends
