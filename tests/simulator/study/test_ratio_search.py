"""How many engines compute prompts, and how many answers: laws of the search, with formulas in place of simulations."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.disaggregation import PoolLink
from simulator.fleet.deciders import read_decider
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity_row import CapacityRow
from simulator.study.fleets.disaggregation import Pair, PairTable
from simulator.study.fleets.layouts import DisaggregationSearch, FleetQuestion
from simulator.study.fleets.ratio import OFF, RatioSizing, screened_disaggregated
from simulator.study.fleets.screening import Screened
from simulator.study.fleets.search import Tables, search_fleets
from simulator.study.fleets.sizing import MOST_SERVERS, Sized
from tests.simulator.study.made_up_fleets import Served, fleet_question

Law = Callable[[int, int], int]  # users to sign for, of so many prefill and so many decode engines


def asked(users: float, disaggregated: DisaggregationSearch | None = None, **more: Any) -> FleetQuestion:
    return fleet_question("h100-sxm", users=users, disaggregated=disaggregated or DisaggregationSearch(), **more)


def pair_of(question: FleetQuestion) -> Screened:
    """The layout with one GPU for each engine, as it is screened."""
    found = next(each for each in ratio_screened(question) if each.layout.disaggregated is not None)
    assert isinstance(found, Screened)
    return found


def ratio_screened(question: FleetQuestion) -> tuple[Screened, ...]:
    return next(search_fleets(question)).screened


def simulate_as(monkeypatch: pytest.MonkeyPatch, law: Law) -> list[Pair]:
    """Lets a formula stand in for simulations; the list fills with the pairs whose capacity was searched."""
    searched: list[Pair] = []

    def row(table: PairTable, pair: Pair, level: Level) -> CapacityRow:
        searched.append(pair)
        low, sized = law(*pair), table.disaggregated.sized(*pair)
        served: Any = Served()
        return CapacityRow(
            gpus=sized.gpus, tp=1, replicas=sum(pair), users=low, users_low=low, users_high=low,
            disaggregated=sized, plan=sized.decode, point=served, precision=0.02, replications=8,
            reason=None if low else "not even 1 user meets the SLO", binding="TTFT: prefill compute",
            evidence=level.word,
        )  # fmt: skip

    monkeypatch.setattr(PairTable, "row", row)
    monkeypatch.setattr(PairTable, "serves", lambda _, pair, users, __: law(*pair) >= users)
    monkeypatch.setattr(RatioSizing, "_served", lambda *_: Served())
    return searched


def sized_from(question: FleetQuestion, screened: Screened, first: Pair) -> Sized:
    """What the search for the cheapest pair finds, beginning with the first."""
    table = Tables(question, RunContext()).of_pairs(screened.layout)
    return RatioSizing(question, screened, Level.CONFIRMED, table).run(first)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prefill=st.integers(60, 600), decode=st.integers(60, 600), users=st.integers(1, 900),
    gain=st.floats(0.0, 0.3), off=st.floats(1.05 / OFF, OFF * 0.95),
)  # fmt: skip
def test_no_pair_that_costs_less_serves_the_users(
    monkeypatch: pytest.MonkeyPatch, *, prefill: int, decode: int, users: int, gain: float, off: float
) -> None:
    """However the pools compare, whatever engines gain beside each other, and as far as the estimate may be off."""

    def law(num_prefill: int, num_decode: int) -> int:
        gained = 1 + gain * (1 - 1 / min(num_prefill, num_decode))
        return int(min(prefill * num_prefill, decode * num_decode) * gained)

    simulate_as(monkeypatch, law)
    question = asked(users)
    screened = replace(pair_of(question), needed=(users / prefill * off, users / decode / off))
    first = math.ceil(screened.needed[0]), math.ceil(screened.needed[1])
    if sum(first) > MOST_SERVERS:
        return
    found = sized_from(question, screened, first)
    assert found.users() >= users
    if found.is_whole:
        fewest = min(p + d for p, d in product(range(1, 20), repeat=2) if law(p, d) >= users)
        assert found.servers == fewest


@pytest.mark.slow
def test_with_a_decider_pairs_with_far_fewer_prefill_engines_than_estimated_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulate_as(monkeypatch, lambda prefill, decode: min(1000 * prefill, 100 * decode))
    question = asked(500, DisaggregationSearch(between=PoolLink(decider=read_decider("isl_bounding"))))
    screened = replace(pair_of(question), needed=(6.0, 5.0))
    found = sized_from(question, screened, (6, 5))
    assert (found.prefill_servers, found.servers) == (1, 6)


def test_each_pool_has_as_many_spare_engines_as_are_asked_for() -> None:
    bare, spare = (pair_of(asked(400, spare=number)) for number in (0, 2))
    assert spare.needed == bare.needed
    assert spare.bought == (bare.bought[0] + 4, bare.bought[1] + 2)
    assert spare.usd_per_hour == pytest.approx(bare.usd_per_hour * spare.bought[0] / bare.bought[0])


def test_conversations_that_stay_with_their_prefill_engine_need_fewer_of_them() -> None:
    question = asked(20_000)
    stays, spread = (pair_of(replace(question, router=router)) for router in ("session-affinity", "least-outstanding"))
    assert stays.needed[0] < spread.needed[0]
    assert stays.needed[1] == pytest.approx(spread.needed[1], rel=0.01)


@pytest.mark.slow
def test_a_pair_with_fewer_of_both_than_one_that_fails_is_never_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = simulate_as(monkeypatch, lambda prefill, decode: min(110 * prefill, 70 * decode))
    question = asked(500)
    screened = replace(pair_of(question), needed=(4.0, 6.0))
    found = sized_from(question, screened, (4, 6))
    assert (found.prefill_servers, found.servers) == (5, 13)
    assert len(searched) == len(set(searched)) <= 4


@pytest.mark.slow
def test_large_fleets_are_scaled_from_a_part_of_the_same_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, lambda prefill, decode: min(200 * prefill, 100 * decode))
    question = asked(20_000)
    screened = replace(pair_of(question), needed=(100.0, 200.0))
    found = sized_from(question, screened, (100, 200))
    assert not found.is_whole
    assert found.row.replicas <= MOST_SERVERS + 1
    assert found.users() >= 20_000
    prefill, decode = found.prefill_servers, found.servers - found.prefill_servers
    assert decode == pytest.approx(2 * prefill, rel=0.15)


@pytest.mark.slow
def test_where_a_pair_serves_nobody_the_layout_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, lambda *_: 0)
    race = list(search_fleets(asked(50)))[-1]
    kinds = {each.layout.kind: each for each in race.sized}
    found = kinds["h100-sxm, disaggregated prefill/decode"]
    assert not found.servers
    assert found.row.reason == "not even 1 user meets the SLO"
    assert race.best is not None
    assert race.best.layout.disaggregated is None


@pytest.mark.slow
@pytest.mark.parametrize("users", [150, 420])
def test_the_ratio_is_that_of_all_pairs_simulated_one_by_one(users: int) -> None:
    question = asked(users, replications=4, router="least-outstanding")
    screened = pair_of(question)
    layout = screened.layout
    first = screened.prefill_servers, screened.servers - screened.prefill_servers
    found = sized_from(question, screened, first)
    table = Tables(question, RunContext()).of_pairs(layout)
    cheaper = [(p, d) for p, d in product(range(1, found.servers), repeat=2) if p + d < found.servers]
    assert found.users() >= users
    assert not [pair for pair in cheaper if table.row(pair).users_low >= users]


def test_engines_that_compute_prompts_alone_are_estimated_to_serve_more_requests_than_those_that_do_both() -> None:
    question = asked(1000)
    by_kind = {each.layout.kind: each for each in ratio_screened(question)}
    both, disaggregated = by_kind["h100-sxm"], by_kind["h100-sxm, disaggregated prefill/decode"]
    assert disaggregated.servers >= 2
    assert all(needed > 0 for needed in disaggregated.needed)
    longer = screened_disaggregated(disaggregated.layout, replace(question, users=2000))
    assert isinstance(longer, Screened)
    assert sum(longer.needed) == pytest.approx(2 * sum(disaggregated.needed), rel=0.25)
    assert min(disaggregated.needed) < both.servers
