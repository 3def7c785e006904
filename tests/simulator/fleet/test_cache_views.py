"""What a router sees of a cache is what the engine finds in it, whatever the order of the model's layers."""

from dataclasses import replace
from itertools import permutations
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.layout.kv_layout import KVGroup
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.router import RouterFactory
from simulator.fleet.view import BASIC, View
from simulator.simulation import Simulation
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.random_cases import CACHED_STATES, GROUPS, Case, cases, random_table
from workloads.distributions import Exponential, Fixed
from workloads.populations.population import Population
from workloads.requests import RequestTable

FULL = (KVGroup(None),)
ORDERS = sorted({order for groups in (FULL, *GROUPS, *CACHED_STATES) for order in permutations(groups)}, key=repr)


def name_of(groups: tuple[KVGroup, ...]) -> str:
    return " ".join("state" if group.is_state else str(group.window) for group in groups)


class Anywhere:
    """Sends requests anywhere, and remembers what it saw of the caches there."""

    SEES: ClassVar = BASIC

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def choose(self, view: View) -> int:
        return int(self.rng.integers(view.num_engines))


def observer(seen: list[int]) -> RouterFactory:
    class Observer(Anywhere):
        SEES: ClassVar = (*BASIC, "cached_tokens")

        def choose(self, view: View) -> int:
            chosen = super().choose(view)
            seen.append(view.cached_tokens[chosen])
            return chosen

    return Observer


def of_groups(groups: tuple[KVGroup, ...], blocks: int, *, num_servers: int) -> Pool:
    pool = pool_of(0.01, blocks, num_servers=num_servers)
    return replace(pool, engine=replace(pool.engine, kv_groups=groups))


def one_at_a_time(table: RequestTable) -> RequestTable:
    """Each request comes when the one before has ended long ago."""
    return replace(table, arrival_s=100.0 * np.arange(table.num_requests), follows=np.full_like(table.follows, -1))


@pytest.mark.parametrize("groups", ORDERS, ids=name_of)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1), spare=st.sampled_from([0, 2, 40]), interval=st.sampled_from([None, 0, 32]))
def test_an_idle_engine_finds_as_much_cached_as_the_router_saw(
    groups: tuple[KVGroup, ...], seed: int, spare: int, interval: int | None
) -> None:
    table = one_at_a_time(random_table(np.random.default_rng(seed), 60, kind="turns"))
    pool = of_groups(groups, 20 * len(groups) + spare, num_servers=2)
    pool = replace(pool, engine=replace(pool.engine, prefix_cache_retention_interval=interval))
    seen: list[int] = []
    simulation = Simulation(Fleet(pools=(pool,), router=observer(seen)), table)
    simulation.run()
    assert simulation.requests["cached_tokens"].tolist() == seen


@settings(max_examples=15)
@given(cases())
def test_a_router_that_looks_into_caches_changes_nothing_there(case: Case) -> None:
    simulations = [Simulation(replace(case.fleet, router=router), case.table) for router in (Anywhere, observer([]))]
    for simulation in simulations:
        simulation.run()
    blind, looking = (simulation.requests for simulation in simulations)
    for name in ("replica", "cached_tokens", "first_token_s", "finish_s", "preemptions"):
        np.testing.assert_array_equal(blind[name], looking[name])


CHATS = Population(
    name="chats",
    system_prompt_tokens=0,
    turns=Fixed(value=6),
    user_tokens=Fixed(value=48),
    output_tokens=Fixed(value=16),
    think_time_s=Exponential(mean_value=1.0),
)


def hit_share(router: str, groups: tuple[KVGroup, ...]) -> float:
    """Prefix hits, of those where each conversation stays: a window keeps less for its next turn."""
    found = []
    for name in (router, "session-affinity"):
        fleet = Fleet(pools=(of_groups(groups, 2000, num_servers=4),), router=name)
        simulation = Simulation(fleet, CHATS.draw(48, 40, 0, 512, stationary_start=True))
        simulation.run()
        found.append(float(simulation.requests["cached_tokens"].sum()))
    return found[0] / found[1]


@pytest.mark.parametrize("router", ["llm-d-precise", "dynamo-kv", "llm-d"])
@pytest.mark.parametrize("window", [32, 128])
def test_windows_cost_no_hits_behind_routers_that_read_caches(router: str, window: int) -> None:
    full = hit_share(router, FULL)
    assert full > 0.6
    for groups in permutations((KVGroup(window), KVGroup(None))):
        assert hit_share(router, groups) >= 0.9 * full
