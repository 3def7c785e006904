"""Routers: compiled forms, readable twins, what they see, and those of the user's own."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.core.jit import call_router, entry_point, router_address
from simulator.core.layout import SEED
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import Router, View, find_router, router_names
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases
from tests.simulator.test_pools import pool_of
from workloads.requests import RequestTable, independent_requests

STATES = 10_000


class State:
    """What a router may ask for at one decision; it notes what was asked."""

    def __init__(self, outstanding: list[int], last: int | None) -> None:
        self.values = {"num_engines": len(outstanding), "outstanding": outstanding, "last": last}
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return self.values[name]


@entry_point
def decide(router: int, outstanding: Any, last: int, memory: Any) -> int:
    return call_router(router, outstanding, last, memory)


@pytest.mark.parametrize("name", router_names())
@pytest.mark.parametrize("num_engines", [1, 2, 3, 8, 64])
def test_a_compiled_router_decides_as_its_readable_twin_and_sees_what_it_says(name: str, num_engines: int) -> None:
    rng, router = np.random.default_rng(num_engines), find_router(name)
    assert router.choose is not None
    memory, twin, seen = np.zeros(8, np.int64), router.make(5), set[str]()
    memory[SEED] = 5
    address = router_address(router.choose)
    for _ in range(STATES // 5):
        outstanding = rng.integers(0, 6, num_engines, np.int32)
        last = int(rng.integers(-1, num_engines))
        state = State(outstanding.tolist(), None if last < 0 else last)
        assert decide(address, outstanding, last, memory) == twin.choose(state)  # type: ignore[arg-type]
        seen |= state.seen
    assert seen <= set(router.sees)
    if num_engines > 1:
        assert seen == set(router.sees)


def test_nothing_that_a_router_sees_tells_how_much_a_request_will_generate() -> None:
    shown = {name for name in dir(View) if not name.startswith("_")}
    assert shown == {"num_engines", "outstanding", "running", "waiting", "last", "prompt_tokens", "time_s"}


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(cases())
def test_a_router_in_python_gives_what_its_compiled_form_gives(case: Case) -> None:
    compiled = Simulation(case.fleet, case.table, seed=7)
    router = find_router(case.fleet.router)
    python = Simulation(Fleet(pools=case.fleet.pools, router=router.make), case.table, seed=7)
    for simulation in (compiled, python):
        simulation.run(0.5)
        simulation.run()
    np.testing.assert_array_equal(python.requests, compiled.requests)
    np.testing.assert_array_equal(python.totals, compiled.totals)
    np.testing.assert_array_equal(python.samples, compiled.samples)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_router_sees_what_was_sent_and_not_finished(case: Case) -> None:
    class Watching:
        def __init__(self, _seed: int) -> None:
            self.time_s = -math.inf

        def choose(self, view: View) -> int:
            assert view.time_s >= self.time_s
            self.time_s = view.time_s
            assert all(running + waiting >= 0 for running, waiting in zip(view.running, view.waiting, strict=True))
            assert all(
                running + waiting <= outstanding
                for running, waiting, outstanding in zip(view.running, view.waiting, view.outstanding, strict=True)
            )
            assert view.prompt_tokens > 0
            return len(view.outstanding) - 1

    simulation = Simulation(Fleet(pools=case.fleet.pools, router=Watching), case.table)
    simulation.run()
    assert (simulation.requests["replica"] == case.fleet.num_engines - 1).all()


def test_random_and_power_of_two_spread_the_load_and_follow_the_seed() -> None:
    load = open_table(4000)
    counts = {}
    for name in ("random", "power-of-two"):
        fleet = Fleet(pools=(pool_of(0.01, 400, num_servers=4),), router=name)
        runs = [Simulation(fleet, load, seed=seed) for seed in (1, 1, 2)]
        for run in runs:
            run.run()
        first, again, other = (run.requests["replica"] for run in runs)
        assert (first == again).all()
        assert (first != other).any()
        counts[name] = np.bincount(first, minlength=4)
    assert np.abs(counts["random"] - 1000).max() < 4 * math.sqrt(1000 * 0.75)
    assert np.ptp(counts["power-of-two"]) < np.ptp(counts["random"])


def open_table(count: int) -> RequestTable:
    return independent_requests(
        arrival_s=np.arange(count) * 0.004, prompt_tokens=[20] * count, output_tokens=[10] * count
    )


MINE = '''"""The last engine, always."""

SEES = ("num_engines",)


class Router:
    def __init__(self, seed):
        pass

    def choose(self, view):
        return view.num_engines - 1
'''


def test_a_router_of_ones_own_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routers").mkdir()
    (tmp_path / "routers" / "the_last.py").write_text(MINE)
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    assert "the-last" in router_names()
    simulation = Simulation(Fleet(pools=(pool_of(0.01, 400, num_servers=3),), router="the-last"), open_table(20))
    simulation.run()
    assert (simulation.requests["replica"] == 2).all()


def test_a_compiled_router_of_ones_own_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routers").mkdir()
    compiled = MINE + "\n\ndef choose(outstanding, last, memory):\n    return outstanding.shape[0] - 1\n"
    (tmp_path / "routers" / "the_very_last.py").write_text(compiled)
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    simulation = Simulation(Fleet(pools=(pool_of(0.01, 400, num_servers=3),), router="the-very-last"), open_table(20))
    assert simulation._router is None
    simulation.run()
    assert (simulation.requests["replica"] == 2).all()


def test_a_router_by_module_and_name_is_found() -> None:
    assert find_router("examples.05_own_router:LoyalRouter").make.__name__ == "LoyalRouter"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("round-robn", "did you mean 'round-robin'"),
        ("nowhere:Router", "no router 'nowhere:Router'"),
        ("examples.05_own_router:TOLERATED_DIFFERENCE", "is no class with choose"),
        ("os:getcwd", "is no class with choose"),
        ("builtins:int", "is no class with choose"),
    ],
)
def test_a_router_that_is_none_is_told_at_once(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Fleet(pools=(pool_of(0.01, 400),), router=name)


def test_a_choice_that_is_no_engine_is_told() -> None:
    class Wrong:
        def choose(self, view: View) -> int:
            return view.num_engines

    def make(_seed: int) -> Router:
        return Wrong()

    with pytest.raises(ValueError, match=r"chose engine 2; .* must return a number from 0 to 1"):
        Simulation(Fleet(pools=(pool_of(0.01, 400, num_servers=2),), router=make), open_table(3)).run()
