"""Routers: compiled forms, readable twins, what they see, and those of the user's own."""

import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.core import layout
from simulator.core.jit import call_router, entry_point, router_address
from simulator.core.routing.layout import ENGINE_VIEW, REQUEST_VIEW
from simulator.fleet.fleet import Fleet
from simulator.fleet.pool_sizes import ROLES
from simulator.fleet.router import Router, find_router, router_names
from simulator.fleet.view import View
from simulator.simulation import Simulation
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.random_cases import Case, cases
from workloads.requests import RequestTable, independent_requests

STATES = [100, pytest.param(2_000, marks=pytest.mark.slow)]  # of each of five numbers of engines


class State:
    """What a router may ask for at one decision; it notes what was asked."""

    def __init__(self, engines: Any, request: Any, seen: set[str]) -> None:
        arrays = SimpleNamespace(engine_views=engines, request_view=request)
        self.view = View(arrays, ALL)  # type: ignore[arg-type]
        self.seen = seen

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self.view, name)


ALL = tuple(name for name in vars(View) if not name.startswith("_"))


@entry_point
def decide(router: int, states: Any, parameters: Any, memory: Any, chosen: Any) -> None:
    engines, requests = states
    for state in range(engines.shape[0]):
        chosen[state] = call_router(router, engines[state], requests[state], parameters, memory)


def random_states(rng: Any, num_states: int, num_engines: int) -> tuple[Any, Any]:
    """Engines and requests with ties, empty and full engines, and some engines that take nothing."""
    engines = np.zeros((num_states, num_engines), ENGINE_VIEW)
    engines["routable"] = rng.random(engines.shape) < rng.choice([1.0, 1.0, 0.7, 0.2], (num_states, 1))
    engines["routable"][np.arange(num_states), rng.integers(0, num_engines, num_states)] = 1
    for name in ("outstanding", "sent", "waiting", "running"):
        engines[name] = rng.integers(0, rng.choice([1, 3, 6, 100], (num_states, 1)), engines.shape)
    engines["weight"] = rng.choice([0.5, 1.0, 1.0, 3.0], engines.shape)
    engines["kv_usage"] = rng.integers(0, 11, engines.shape) / 10
    requests = np.zeros(num_states, REQUEST_VIEW)
    requests["prompt_tokens"] = rng.integers(1, rng.choice([10, 1000, 100_000], num_states))
    for name in ("matched_tokens", "cached_tokens", "shared_tokens"):
        share = rng.choice([0.0, 0.0, 0.3, 0.8, 1.0], engines.shape)
        engines[name] = share * requests["prompt_tokens"][:, None]
    engines["known_tokens"] = 100 * rng.integers(0, 3, engines.shape)
    engines["matched_at"] = rng.integers(0, 4, engines.shape)
    for name in ("outstanding_tokens", "active_tokens", "held_tokens", "prefill_tokens"):
        engines[name] = rng.integers(0, 5, engines.shape) * rng.choice([0, 1000, 30_000], (num_states, 1))
    requests["pool_role"] = rng.integers(0, len(ROLES), num_states)
    requests["last"] = rng.integers(-1, num_engines, num_states)
    requests["session"] = rng.integers(0, 50, num_states)
    requests["now_s"] = np.cumsum(rng.exponential(0.1, num_states))
    return engines, requests


UNUSUAL = (
    "llm-d:no_hit_lru_scorer=2,active_request_scorer=1,running_requests_size_scorer=1,load_aware_scorer=1",
    "llm-d:no_hit_lru_scorer=1,token_load_scorer=1,affinityThreshold=0.5,maxTTFTPenaltyMs=100",
    "dynamo-kv:router_temperature=0.5",
    "ray-prefix:imbalanced_threshold=2",
    "cache-aware:balance_abs_threshold=2,cache_threshold=0.7",
    "vllm-cache-aware:balance_abs_threshold=2,balance_rel_threshold=1.1,cache_threshold=0.7",
)


@pytest.mark.parametrize("name", [*router_names(), *UNUSUAL])
@pytest.mark.parametrize("num_engines", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("num_states", STATES)
def test_a_compiled_router_decides_as_its_readable_twin_and_sees_what_it_says(
    name: str, num_engines: int, num_states: int
) -> None:
    router, seen = find_router(name), set[str]()
    assert router.choose is not None
    engines, requests = random_states(np.random.default_rng(num_engines), num_states, num_engines)
    for part in set(ENGINE_VIEW.names or ()).difference(router.sees, ("routable",)):
        engines[part] = 0  # nobody keeps it up
    memory, chosen = np.zeros(router.memory_words(num_engines), np.int64), np.zeros(len(engines), np.int64)
    memory[layout.SEED] = 5
    address = router_address(router.choose, tuple(router.parameters))
    decide(address, (engines, requests), np.array(list(router.parameters.values()) or [0.0]), memory, chosen)
    twin = router.make(5)
    states = (State(engines[row], requests[row : row + 1], seen) for row in range(len(engines)))
    assert [twin.choose(state) for state in states] == chosen.tolist()  # type: ignore[arg-type]
    assert (np.take_along_axis(engines["routable"], chosen[:, None], axis=1) == 1).all()
    assert seen <= set(router.sees)
    if num_engines > 1:
        assert seen == set(router.sees)


def test_nothing_that_a_router_sees_tells_how_much_a_request_will_generate() -> None:
    shown = {name for name in dir(View) if not name.startswith("_")}
    assert shown == {
        "num_engines", "candidates", "outstanding", "weight", "sent", "running", "waiting", "kv_usage",
        "outstanding_tokens", "active_tokens", "held_tokens", "shared_tokens", "prefill_tokens",
        "matched_tokens", "matched_at", "known_tokens",
        "cached_tokens", "last", "role", "session", "prompt_tokens", "time_s",
    }  # fmt: skip


@pytest.mark.slow
@settings(max_examples=100)
@given(cases(), st.sampled_from(router_names()))
def test_a_router_in_python_gives_what_its_compiled_form_gives(case: Case, name: str) -> None:
    router = find_router(name, case.fleet.block_size)

    def make(seed: int) -> Router:
        return router.make(seed)

    vars(make).update(SEES=router.sees, UPKEEP=router.upkeep)
    compiled = Simulation(Fleet(pools=case.fleet.pools, router=name), case.table, seed=7)
    python = Simulation(Fleet(pools=case.fleet.pools, router=make), case.table, seed=7)
    for simulation in (compiled, python):
        simulation.run(0.5)
        simulation.run()
    np.testing.assert_array_equal(python.requests, compiled.requests)
    np.testing.assert_array_equal(python.totals, compiled.totals)
    np.testing.assert_array_equal(python.samples, compiled.samples)


@pytest.mark.slow
@settings(max_examples=60)
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
    compiled = MINE + "\n\ndef choose(engines, request, parameters, memory):\n    return engines.shape[0] - 1\n"
    (tmp_path / "routers" / "the_very_last.py").write_text(compiled)
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    simulation = Simulation(Fleet(pools=(pool_of(0.01, 400, num_servers=3),), router="the-very-last"), open_table(20))
    assert not simulation._routers
    simulation.run()
    assert (simulation.requests["replica"] == 2).all()


WATCHING = '''"""Notes what it sees of a metric, and has parameters."""

from simulator.fleet.router import Parameter
from simulator.fleet.view import Upkeep

SEES = ("num_engines", "running", "waiting", "time_s")
PARAMETERS = {
    "interval_ms": Parameter(default=100, most=1000, what="between two scrapes"),
    "last": Parameter(default=0, most=1, what="1: not before something changes"),
}


def upkeep(values):
    return Upkeep(scrape_every_s=values["interval_ms"] / 1000, only_changes=bool(values["last"]))


SEEN = []


class Router:
    def __init__(self, seed, interval_ms, last):
        SEEN.clear()

    def choose(self, view):
        SEEN.append((view.time_s, sum(view.running), sum(view.waiting)))
        return len(SEEN) % view.num_engines
'''


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "routers").mkdir()
    (tmp_path / "routers" / "watching.py").write_text(WATCHING)
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    return "watching"


@pytest.mark.parametrize("only_changes", [0, 1])
def test_metrics_are_as_old_as_their_last_scrape(watching: str, only_changes: int) -> None:
    pool = pool_of(0.013, 400, num_servers=2)
    load = open_table(300)
    live = Simulation(Fleet(pools=(pool,), router=f"{watching}:interval_ms=0"), load)
    live.run()
    module = sys.modules["headcount_path.routers.watching"]
    now = list(module.SEEN)
    Simulation(Fleet(pools=(pool,), router=f"{watching}:interval_ms=51.3,last={only_changes}"), load).run()
    scraped = list(module.SEEN)
    assert [seen[0] for seen in scraped] == [seen[0] for seen in now]
    assert scraped != now
    periods: dict[int, set[tuple[int, int]]] = {}
    for time_s, *counts in scraped:
        periods.setdefault(math.floor(time_s / 0.0513), set()).add(tuple(counts))
    if not only_changes:
        assert all(len(counts) == 1 for counts in periods.values())
    assert len({tuple(counts) for _, *counts in scraped}) > 3


def test_a_scrape_at_an_instant_sees_the_steps_that_end_then_and_no_arrivals(watching: str) -> None:
    """One step of 0.25 s for each of two requests, which arrive at the scrapes."""
    load = independent_requests(arrival_s=[0.0, 0.25, 0.5, 0.6], prompt_tokens=[5] * 4, output_tokens=[1] * 4)
    Simulation(Fleet(pools=(pool_of(0.25, 400),), router=f"{watching}:interval_ms=250"), load).run()
    seen = sys.modules["headcount_path.routers.watching"].SEEN
    assert seen == [(0.0, 0, 0), (0.25, 0, 0), (0.5, 0, 0), (0.6, 0, 0)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("watching:interval=3", "has no parameter 'interval'; did you mean 'interval_ms'"),
        ("watching:x=3", "has no parameter 'x'; known: interval_ms, last"),
        ("watching:interval_ms=2000", "interval_ms is '2000'; give a number, 0 to 1,000"),
        ("watching:interval_ms=nan", "interval_ms is 'nan'; give a number"),
        ("watching:interval_ms=", "interval_ms is ''; give a number"),
        ("watching:interval_ms=1,interval_ms=1", "interval_ms is given twice"),
        ("random:x=1", "has no parameter 'x'; it takes none"),
        ("dynamo-kv:kv_cache_block_size=1.5", "kv_cache_block_size is '1.5'; give a whole number, 1 to 65,536"),
        ("session:virtual_nodes=1.5", "virtual_nodes is '1.5'; give a whole number"),
        ("nope:x=1", "no router 'nope'"),
        ("os:system=1", "no router 'os'"),
    ],
)
def test_a_parameter_that_is_none_is_told_with_those_there_are(watching: str, given: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Fleet(pools=(pool_of(0.01, 400),), router=given)


def test_a_part_of_the_view_that_is_not_declared_is_told() -> None:
    class Curious:
        def __init__(self, _seed: int) -> None:
            pass

        def choose(self, view: View) -> int:
            return view.session

    with pytest.raises(ValueError, match=r"reads view.session, which SEES does not list; add it"):
        Simulation(Fleet(pools=(pool_of(0.01, 400),), router=Curious), open_table(3)).run()


def test_what_a_compiled_router_chooses_wrongly_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routers").mkdir()
    wrong = MINE + "\n\ndef choose(engines, request, parameters, memory):\n    return 7\n"
    (tmp_path / "routers" / "much_too_far.py").write_text(wrong)
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"chose engine 7; .* must return a number from 0 to 2"):
        Simulation(Fleet(pools=(pool_of(0.01, 400, num_servers=3),), router="much-too-far"), open_table(9)).run()


@pytest.mark.parametrize("name", router_names())
def test_nothing_is_sent_to_an_engine_that_takes_no_requests(name: str) -> None:
    simulation = Simulation(Fleet(pools=(pool_of(0.01, 400, num_servers=4),), router=name), open_table(50))
    simulation.arrays.engine_views["routable"][[0, 2]] = 0
    simulation.run()
    assert set(simulation.requests["replica"].tolist()) <= {1, 3}
    assert simulation.num_finished == 50


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
