"""What routers see of tokens, of their own index and of the engines' caches, beside slow and obvious twins."""

from collections import Counter, OrderedDict
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings

from kvcache.layout.kv_layout import KVGroup
from simulator.core import layout
from simulator.core.state import Arrays
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from simulator.fleet.view import BASIC, Upkeep, View
from simulator.simulation import Simulation
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.random_cases import Case, cases
from tests.simulator.test_laws import cached_segments
from workloads.distributions import Exponential, Fixed
from workloads.populations.population import Population
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable

SEES = (
    *BASIC,
    "session",
    "outstanding_tokens",
    "active_tokens",
    "held_tokens",
    "shared_tokens",
    "prefill_tokens",
    "matched_tokens",
    "matched_at",
    "cached_tokens",
)
CHAT = Population(
    name="views",
    system_prompt_tokens=40,
    turns=Fixed(value=4),
    user_tokens=Exponential(mean_value=30),
    output_tokens=Exponential(mean_value=20),
    think_time_s=Exponential(mean_value=0.3),
)


class ChunkIndex:
    """An LRU of the prompt's chunks for each engine; (content of a chunk's last token, its place) names a chunk."""

    def __init__(self, num_engines: int, upkeep: Upkeep) -> None:
        self.upkeep = upkeep
        self.chunks: list[OrderedDict[tuple[int, int], None]] = [OrderedDict() for _ in range(num_engines)]

    def matched(self, engine: int, chunks: list[tuple[int, int]]) -> int:
        known = self.chunks[engine]
        count = next((place for place, chunk in enumerate(chunks) if chunk not in known), len(chunks))
        return count * self.upkeep.chunk_tokens

    def learn(self, engine: int, chunks: list[tuple[int, int]]) -> None:
        known = self.chunks[engine]
        for chunk in chunks:
            known[chunk] = None
            known.move_to_end(chunk)
        while len(known) > self.upkeep.most_chunks:
            known.popitem(last=False)


def chunks_of(simulation: Simulation, table: RequestTable, row: int, size: int) -> list[tuple[int, int]]:
    start = int(table.span_start[row])
    spans = simulation.arrays.spans[start : start + int(table.span_count[row])]
    last = np.arange(size - 1, int(table.prompt_tokens[row]), size)
    contents = spans["content"][np.searchsorted(spans["end"], last, side="right")]
    return list(zip(contents.tolist(), range(len(last)), strict=True))


def cached_tokens(simulation: Simulation, table: RequestTable, row: int, engine: int) -> int:
    """Walks the blocks of a pool with one group of full attention, from the first; the last token is computed anew."""
    arrays = simulation.arrays
    state = arrays.replicas[engine]
    pool = simulation.fleet.pools[int(state["pool"])].engine
    if not state["is_laid_out"] or not pool.enable_prefix_caching:
        return 0
    keys = cached_keys(arrays, engine)
    size = pool.block_size
    chunks = chunks_of(simulation, table, row, size)[: (int(table.prompt_tokens[row]) - 1) // size]
    return next((place for place, chunk in enumerate(chunks) if chunk not in keys), len(chunks)) * size


def has_plain_cache(engine: EngineConfig) -> bool:
    return engine.kv_groups == (KVGroup(None),) and engine.speculation is None


def cached_keys(arrays: Arrays, engine: int) -> set[tuple[int, int]]:
    """The content and the index of each block that an engine has cached."""
    if not len(arrays.segments):
        first, count = (int(arrays.replicas[name][engine]) for name in ("first_block", "num_usable_blocks"))
        blocks = arrays.blocks[first : first + count + 1]
        return set(zip(blocks["key_content"].tolist(), blocks["key_index"].tolist(), strict=True))
    of = arrays.segments[cached_segments(arrays, engine)].tolist()
    return {(content, index) for content, first, end, *_ in of for index in range(first, end)}


class Checker:
    """Sends requests here and there, and compares what it sees with the twins."""

    SEES: ClassVar = SEES
    UPKEEP: ClassVar = Upkeep(chunk_tokens=8)
    is_exact: ClassVar = False  # a content is let go when the last request that holds some of it has ended
    here: ClassVar[Any] = SimpleNamespace()

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.index: ChunkIndex | None = None
        self.charged: dict[int, int] = {}
        self.num_hits = 0

    def choose(self, view: View) -> int:
        simulation, table = self.here.simulation, self.here.table
        if self.index is None:
            self.index = ChunkIndex(view.num_engines, self.UPKEEP)
        attempt = int(simulation.arrays.cursor["unrouted"][0])
        row = attempt % table.num_requests
        self.row = row
        chunks = chunks_of(simulation, table, row, self.UPKEEP.chunk_tokens)
        assert view.session == table.first_turns()[row]
        assert view.matched_tokens == [self.index.matched(engine, chunks) for engine in range(view.num_engines)]
        if all(has_plain_cache(pool.engine) for pool in simulation.fleet.pools):
            expected = [cached_tokens(simulation, table, row, engine) for engine in range(view.num_engines)]
            assert view.cached_tokens == expected
        self.check_counts(view, simulation)
        chosen = int(self.rng.integers(view.num_engines))
        self.num_hits += view.matched_tokens[chosen] > 0
        self.charged[attempt] = view.prompt_tokens - max(view.matched_tokens[chosen], view.cached_tokens[chosen])
        self.index.learn(chosen, chunks)
        self.here.router = self
        return chosen

    def lengths(self, simulation: Simulation, row: int) -> list[tuple[int, int]]:
        """Contents of a prompt, and how many of its tokens in whole chunks each has."""
        size = self.UPKEEP.chunk_tokens
        counts = Counter(content for content, _ in chunks_of(simulation, self.here.table, row, size))
        return [(content, size * count) for content, count in counts.items()]

    def held(self, simulation: Simulation, there: Any, live: Any, sent: list[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for attempt in np.array(sent, np.int64)[there & live].tolist():
            for content, tokens in self.lengths(simulation, attempt % self.here.table.num_requests):
                found[content] = max(found.get(content, 0), tokens)
        return found

    def check_counts(self, view: View, simulation: Simulation) -> None:
        sent = list(self.charged)
        requests = simulation.requests[sent]
        live = requests["status"] < layout.FINISHED
        begun = np.isfinite(requests["first_token_s"])
        for engine in range(view.num_engines):
            there = (requests["replica"] == engine) & live
            assert view.outstanding[engine] == there.sum()
            assert view.outstanding_tokens[engine] == requests["prompt"][there].sum()
            chunk = self.UPKEEP.chunk_tokens
            assert view.held_tokens[engine] == (requests["prompt"][there] // chunk * chunk).sum()
            assert view.role == "serve"
            held = self.held(simulation, requests["replica"] == engine, live, sent)
            assert view.active_tokens[engine] >= sum(held.values())
            if self.is_exact:
                assert view.active_tokens[engine] == sum(held.values())
                assert view.shared_tokens[engine] == sum(
                    min(held.get(content, 0), tokens) for content, tokens in self.lengths(simulation, self.row)
                )
            charges = np.array([self.charged[row] for row in sent], np.int64)
            assert view.prefill_tokens[engine] == charges[there & ~begun].sum()


def serve(fleet: Fleet, table: RequestTable, router: type[Checker]) -> Checker:
    simulation = Simulation(Fleet(pools=fleet.pools, router=router), table)
    router.here.simulation, router.here.table = simulation, table
    simulation.run()
    found: Checker = router.here.router
    return found


@pytest.mark.parametrize(("most_chunks", "least_hits"), [(None, 21), (20, 11), (6, 1)])
def test_a_router_sees_what_slow_twins_of_its_views_say(most_chunks: int | None, least_hits: int) -> None:
    class Bounded(Checker):
        is_exact = True
        UPKEEP = Upkeep(chunk_tokens=8, most_chunks=most_chunks or 1e9)

    table = CHAT.draw(8, 4, 0, 512, stationary_start=False)
    router = serve(Fleet(pools=(pool_of(0.01, 30, num_servers=3),)), table, Bounded)
    assert len(router.charged) == table.num_requests
    assert router.num_hits >= least_hits


@pytest.mark.slow
@settings(max_examples=80)
@given(cases())
def test_views_are_those_of_slow_twins_on_random_loads(case: Case) -> None:
    serve(case.fleet, case.table, Checker)


def test_of_two_engines_that_were_sent_a_prompt_the_first_gets_it_again() -> None:
    """The second comes while the first is busy, and goes elsewhere; the third finds both idle, and both know it."""
    table = RequestTable(
        arrival_s=np.array([0.0, 0.001, 9.0]),
        follows=np.full(3, NO_PREDECESSOR, np.int64),
        think_s=np.zeros(3),
        prompt_tokens=np.full(3, 40, np.int32),
        output_tokens=np.full(3, 9, np.int32),
        priority=np.zeros(3, np.int32),
        span_start=np.arange(3),
        span_count=np.ones(3, np.int32),
        span_content=np.zeros(3, np.int64),
        span_end=np.full(3, OPEN_END, np.int32),
    )
    fleet = Fleet(pools=(pool_of(0.01, 100, num_servers=2),), router="cache-aware:balance_abs_threshold=0")
    simulation = Simulation(fleet, table)
    simulation.run()
    assert simulation.requests["replica"].tolist() == [0, 1, 0]
