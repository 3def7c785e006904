"""The compiled core decides exactly as the readable reference does."""

import numpy as np
from hypothesis import given, settings

from simulator.simpy_fleet import least_outstanding, round_robin, run_simpy_fleet, session_affinity
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases

COMPARED = ("arrival_s", "scheduled_s", "first_token_s", "finish_s", "output", "preemptions", "cached_tokens", "replica")

ROUTERS = {
    "round-robin": round_robin,
    "least-outstanding": least_outstanding,
    "session-affinity": session_affinity,
}


@settings(max_examples=300, deadline=None)
@given(cases())
def test_every_request_has_the_same_times_preemptions_prefix_hits_and_replica(case: Case) -> None:
    expected = run_simpy_fleet(case.fleet, case.table, ROUTERS[case.fleet.router]())
    simulation = Simulation(case.fleet, case.table)
    simulation.run()
    for name in COMPARED:
        np.testing.assert_array_equal(simulation.requests[name], expected[name], err_msg=name)
