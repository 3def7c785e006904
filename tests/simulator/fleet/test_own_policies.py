"""A router and an autoscaler in a folder of one's own: the laws hold for them as for those that are shipped."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.core.layout import LOST
from simulator.fleet.events import read_event
from simulator.fleet.operation import Operation
from tests.simulator.fleet.test_autoscaling import (
    check,
    fleet_of,
    operated,
    sends_to_ready_replicas_alone,
    statuses,
    steady,
)

# Neither is a good policy: the laws have to hold for any.
ROUTER = '''"""The candidate of the highest number, or of the lowest, in turn."""

SEES = ("candidates", "outstanding")


class Router:
    def __init__(self, seed):
        self.turn = seed

    def choose(self, view):
        self.turn += 1
        return max(view.candidates) if self.turn % 2 else min(view.candidates)
'''
SCALER = '''"""All replicas for a while, then hardly any."""

from files.schema import Strict


class Settings(Strict, frozen=True, kw_only=True):
    pass


class Scaler:
    period_s = 2.0

    def __init__(self, settings):
        self.looks = 0

    def desired_replicas(self, seen):
        self.looks += 1
        return 4 if self.looks // 3 % 2 == 0 else 1
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, name, text in (("routers", "high_and_low", ROUTER), ("scalers", "all_or_one", SCALER)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))


def run(*, retries: bool) -> Operation:
    events = (read_event("crash@9s"), read_event("zone@17s:replicas=2"), read_event("update@25s"))
    fleet = replace(fleet_of(4), router="high-and-low")
    return operated(
        fleet, steady(400, 0.1), scaler="all-or-one", events=events, retries=retries, grace_s=0.5, until_s=2000
    )


@pytest.mark.parametrize("retries", [True, False])
def test_requests_are_conserved_and_lost_by_rule_alone(*, retries: bool) -> None:
    operation = run(retries=retries)
    check(operation)
    assert operation.replicas.num_taken > 0, "the events have taken requests"
    assert statuses(operation).get(LOST, 0) == (0 if retries else operation.replicas.num_taken)


def test_the_same_again_is_the_same() -> None:
    one, other = run(retries=True), run(retries=True)
    assert one.history == other.history
    assert one.simulation.requests.tobytes() == other.simulation.requests.tobytes()


def test_no_request_goes_to_a_replica_that_is_not_ready() -> None:
    sends_to_ready_replicas_alone("high-and-low", "all-or-one")
