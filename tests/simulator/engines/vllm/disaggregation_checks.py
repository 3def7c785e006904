"""What disaggregated prefill/decode must stand, KV read or written: a user's router, and rules made wrong."""

from dataclasses import replace
from typing import Any

import pytest

from conformance.cases.disaggregation_cases import ApartCase, disaggregated_case
from conformance.disaggregation import readable_disaggregated_steps
from simulator.fleet.fleet import Fleet
from simulator.fleet.view import View
from simulator.simulation import Simulation

Mutant = tuple[Any, str, Any]
"""A class, its method's name, and a wrong one."""


class InPython:
    """A router that a user wrote."""

    def __init__(self, _seed: int) -> None:
        self.num_asked = 0

    def choose(self, view: View) -> int:
        self.num_asked += 1
        return view.candidates[self.num_asked % len(view.candidates)]


def assert_sent_to_both_pools(case: ApartCase, router: Any) -> None:
    """With two engines of either kind each request goes to one that prefills, then to one that decodes."""
    pools = tuple(replace(pool, num_servers=2) for pool in case.pools)
    simulation = Simulation(Fleet(pools=pools, router=router, handover=case.handover), case.table)
    simulation.run()
    requests, count = simulation.requests, case.table.num_requests
    assert simulation.num_finished == count
    assert (requests["output"][:count] == case.table.output_tokens).all()
    assert (simulation.arrays.handovers["source"][:count] < 2).all()
    assert (requests["replica"] >= 2).all()
    assert (simulation.arrays.engine_views["outstanding"] == 0).all()


def assert_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, *, pushes: bool = False) -> None:
    """With the wrong method the readable schedulers decide otherwise in some case."""
    target, name, wrong = mutant
    for number in range(60):
        case = disaggregated_case(8, number, pushes=pushes)
        steps = readable_disaggregated_steps(case)
        with monkeypatch.context() as mutated:
            mutated.setattr(target, name, wrong)
            if readable_disaggregated_steps(case) != steps:
                return
    pytest.fail("no case differs")
