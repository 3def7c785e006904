"""An SGLang fleet that takes requests while it runs decides as SGLang does, when clients go, too."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conformance.cases.sglang_cases import STEP_S, STORM_EVERY, TICK_S, SGLangCase, windowed_sglang_case
from conformance.reference.sglang.kv_cache import OutOfKVCacheError
from conformance.sglang_scheduler import OurLoop
from simulator import live as live_module
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.live import LiveFleet
from simulator.simulation import StalledError
from tests.simulator.engines.sglang.side_pools import simulated
from tests.simulator.engines.sglang.test_core import ROUND, check, simulated_case
from tests.simulator.engines.sglang.test_drafts import drafting_case

seeds = st.integers(0, 10_000), st.integers(0, ROUND * STORM_EVERY - 1)


KINDS: dict[str, Callable[[int, int], SGLangCase]] = {
    "plain": simulated_case,
    "windows": lambda seed, number: simulated(windowed_sglang_case(seed, number)),
    "drafts": drafting_case,
}


def open_case(seed: int, number: int, *, cancels: bool, kind: str = "plain") -> SGLangCase:
    """Requests that follow nobody; every second client may cancel, and never at the end of a batch. None has a key."""
    case = KINDS[kind](seed, number)
    if case.engine.schedule_policy == "routing-key":
        case = replace(case, engine=replace(case.engine, schedule_policy="random"))
    requests = []
    for row, request in enumerate(case.requests):
        timeout_s = ((row * 37 + seed) % 300 + 0.75) * TICK_S if cancels and row % 2 else None
        requests.append(replace(request, arrival_s=row * 3 * TICK_S + TICK_S / 2, follows=-1, timeout_s=timeout_s))
    return replace(case, requests=tuple(requests))


def ends_of_readable(case: SGLangCase) -> dict[int, float]:
    """When each answer was whole whose client waited for it, by the readable scheduler."""
    loop, ends = OurLoop(case), dict[int, float]()
    goes_on = True
    while goes_on:
        try:
            goes_on = loop.turn()
        except OutOfKVCacheError:
            assume(False)
        ended = [row for batch in loop.records[-2:] for row in batch["finished"]]
        ends |= {row: loop.load.now_s for row in ended if row not in ends}
    aborted = [loop.requests[row] for batch in loop.records for row in batch["aborted"]]
    assume(all(request.is_aborted for request in aborted))  # else SGLang has failed it for want of memory
    return {row: end_s for row, end_s in ends.items() if end_s < deadline_s(case, row)}


def deadline_s(case: SGLangCase, row: int) -> float:
    """When its client cancels."""
    request = case.requests[row]
    return math.inf if request.timeout_s is None else (request.arrival_s or 0.0) + request.timeout_s


def ends_of_live(case: SGLangCase, most: int) -> tuple[dict[int, float], LiveFleet]:
    """The same by the compiled one, from a fleet that hears of requests as they come."""
    engine = case.engine
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    live, ends = LiveFleet(Fleet(pools=(Pool(engine=engine, step_times=times),)), most=most), dict[int, float]()
    owner: dict[int, int] = {}

    def advance(until_s: float) -> None:
        while (instant := live.advance(until_s)) is not None:
            ends.update({owner[request]: instant.time_s for request in instant.finished})

    events = [(request.arrival_s or 0.0, 1, row) for row, request in enumerate(case.requests)]
    events += [(end_s, 0, row) for row in range(len(case.requests)) if (end_s := deadline_s(case, row)) < math.inf]
    for time_s, is_arrival, row in sorted(events):
        advance(math.nextafter(time_s, -1))
        if not is_arrival:
            live.abort(next(request for request, each in owner.items() if each == row), time_s)
            continue
        given = case.requests[row]
        found = live.submit(
            time_s, given.prompt_tokens, given.num_tokens_to_stop or given.max_new_tokens, list(given.spans),
            max_tokens=given.max_new_tokens,
        )  # fmt: skip
        assert found is not None
        owner = {request: each for request, each in owner.items() if request != found} | {found: row}
    advance(math.inf)
    assert live.num_live == 0
    return ends, live


@settings(max_examples=6)
@given(*seeds, st.booleans(), st.sampled_from(sorted(KINDS)))
def test_answers_end_when_the_readable_scheduler_ends_them(seed: int, number: int, cancels: bool, kind: str) -> None:
    case = open_case(seed, number, cancels=cancels, kind=kind)
    expected = ends_of_readable(case)
    try:
        found, live = ends_of_live(case, len(case.requests))
    except StalledError:
        return
    assert found == expected
    check(live.simulation)
    assert live.simulation.arrays.replicas["num_running"][0] == live.simulation.arrays.replicas["num_waiting"][0] == 0


@pytest.mark.slow
@settings(max_examples=200)
@given(*seeds, st.booleans(), st.sampled_from(sorted(KINDS)))
def test_the_same_on_many_more_cases(seed: int, number: int, cancels: bool, kind: str) -> None:
    test_answers_end_when_the_readable_scheduler_ends_them.hypothesis.inner_test(  # type: ignore[attr-defined]
        seed, number, cancels, kind
    )


def test_what_the_tree_stands_on_outlives_its_requests(monkeypatch: Any) -> None:
    """Room for few runs and few numbers: what ended requests were made of moves again and again."""
    case = open_case(4, 26, cancels=False)
    spread = tuple(replace(each, arrival_s=row * 40 * STEP_S) for row, each in enumerate(case.requests * 6))
    case = replace(case, requests=spread)
    expected, _ = ends_of_live(case, len(spread))
    monkeypatch.setattr(live_module, "FIRST_SPANS", 4)
    found, live = ends_of_live(case, 30)
    assert found == expected
    assert live.simulation.totals["hit_tokens"][0] > 0
