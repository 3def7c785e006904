"""The cheapest fleet: laws of the search, with formulas in place of simulations."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.fleets import sizing
from simulator.study.fleets.search import (
    MAX_COST_RATIO,
    OPTIMISM,
    FleetSearch,
    as_capacity_has_it,
    screen_all,
    search_fleets,
)
from simulator.study.fleets.sizing import LOSS_GROWS, MOST_SERVERS, kept
from simulator.study.slo import SLO
from tests.simulator.study.made_up_fleets import fleet_question, simulate_as
from workloads.synthetic import single_turn_users

PER_SERVER = {"h100-sxm": 200, "l40s": 90, "a100-80gb": 150, "h200-sxm": 260}


def linear(question: CapacityQuestion, servers: int) -> int:
    return PER_SERVER[question.gpu.name] * servers


def answer(users: float, *gpus: str, spare: int = 0) -> FleetSearch:
    return list(search_fleets(fleet_question(*(gpus or PER_SERVER), users=users, spare=spare)))[-1]


def cost(race: FleetSearch) -> float:
    assert race.best is not None
    return race.best.usd_per_hour


@pytest.mark.slow
@pytest.mark.parametrize(("users", "servers"), [(1, 1), (200, 1), (201, 2), (1000, 5), (1001, 6), (50_000, 250)])
def test_the_fewest_servers_that_serve_all_users_are_found(
    users: int, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_as(monkeypatch, linear)
    best = answer(users, "h100-sxm").best
    assert best is not None
    assert best.servers == servers
    assert best.users() >= users


def test_a_limit_that_ttft_s_own_error_reaches_buys_no_server_for_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user waits nearly as long; a quarter more is beyond the limit: simulations decide what the estimate can't."""
    physical = (EngineArgs(tensor_parallel_size=1),)
    near = replace(fleet_question("h100-sxm", users=200, slo=SLO(ttft_s=0.09)), variants=physical)
    (doubtful,) = screen_all(near).screened
    assert doubtful.promises_nobody and doubtful.servers == 200
    beside = screen_all(replace(near, variants=(*near.variants, *fleet_question("h100-sxm", users=200).variants)))
    assert not any(each.promises_nobody for each in beside.screened)
    (dropped,) = screen_all(replace(near, slo=SLO(ttft_s=0.05))).dropped
    assert "estimated to miss the SLO under any load (TTFT" in dropped.reason
    (kept_one,) = screen_all(replace(near, slo=SLO(ttft_s=0.3))).screened
    assert kept_one.servers < 10 and not kept_one.is_doubtful
    simulate_as(monkeypatch, lambda _, servers: servers // 2)
    assert answer(50, "h100-sxm").best is None


@pytest.mark.parametrize("coarse", [0.55, 0.7, 0.9])
def test_what_few_replications_miss_is_not_bought_dearer(coarse: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the limit on TTFT they may tell of 31 users a server where 44 are confirmed: 14 were bought, not 12."""
    simulate_as(monkeypatch, linear)
    *_, found = search_fleets(fleet_question("h100-sxm", users=500, router="least-outstanding"))
    assert found.best is not None and found.best.is_confirmed and found.best.servers == 3
    row, each = found.best.row, PER_SERVER["h100-sxm"]

    def served(gpus: int) -> CapacityRow:
        return replace(row, gpus=gpus, replicas=gpus, users=each * gpus, users_low=each * gpus)

    table: Any = SimpleNamespace(serves=lambda gpus, users: coarse * each * gpus >= users, row=served)
    tables: Any = SimpleNamespace(question=found.question, of=lambda _: table)
    best = as_capacity_has_it(found, tables).best
    assert best is not None and best.servers == 3


@pytest.mark.parametrize(("gain", "servers"), [(0, 5), (1, 4)])
def test_one_server_more_than_scaling_says_is_not_bought_unseen(
    gain: int, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four serve one user more than twice as many as two do: five were bought, where `capacity` says that four do."""
    simulate_as(monkeypatch, lambda _, servers: 200 * servers + (gain if servers == 4 else 0))
    monkeypatch.setattr(sizing.Sizing, "_most_simulated", lambda _: 2)
    best = answer(801, "h100-sxm").best
    assert best is not None and best.servers == servers
    assert best.is_whole == (servers == 4)


@pytest.mark.parametrize("coarse", [0.8, 1.0, 1.2])
def test_a_fleet_that_disappoints_puts_the_others_back(coarse: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever few replications showed of it, the cheapest is confirmed, and no other may cost less."""
    simulate_as(monkeypatch, linear, coarse=coarse)
    for users in (150, 185, 400, 1000):
        race = answer(users)
        best = race.best
        assert best is not None
        assert best.is_confirmed
        assert best.users() >= users
        assert all(race.at_least(each)[0] >= best.usd_per_hour for each in race.screened)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(per_server=st.integers(40, 900), gain=st.floats(-0.4, 0.4), users=st.integers(1, 6000))
def test_no_smaller_fleet_that_was_simulated_serves_the_users(
    per_server: int, gain: float, users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much servers gain or lose side by side."""

    def law(_: CapacityQuestion, servers: int) -> int:
        return int(per_server * servers * (1 + gain * (1 - 1 / servers)))

    asked = simulate_as(monkeypatch, law)
    best = answer(users, "h100-sxm").best
    assert best is not None
    question = fleet_question("h100-sxm", users=users)
    assert best.users() >= users
    assert not [servers for _, _, servers in asked if servers < best.servers and law(question, servers) >= users]
    assert len(set(asked)) <= 6


@pytest.mark.slow
def test_more_users_never_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, linear)
    found = [cost(answer(users)) for users in (1, 50, 90, 91, 200, 350, 900, 5000, 40_000)]
    assert found == sorted(found)


@pytest.mark.slow
def test_spare_servers_never_cost_less_and_the_rest_serves_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, linear)
    races = [answer(500, spare=spare) for spare in (0, 1, 2, 5)]
    assert [cost(race) for race in races] == sorted(cost(race) for race in races)
    for race, spare in zip(races, (0, 1, 2, 5), strict=True):
        best = race.best
        assert best is not None
        assert best.users() >= 500
        assert best.gpus == (best.servers + spare) * best.layout.plan.gpus


def test_the_cheapest_of_all_gpus_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, linear)
    race = answer(1000)
    assert cost(race) == min(cost(answer(1000, gpu)) for gpu in PER_SERVER)


def test_a_gpu_that_costs_far_too_much_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = simulate_as(monkeypatch, linear)
    race = answer(5000, "l40s", "gb300")
    least = min(each.usd_per_hour_if(OPTIMISM) for each in race.screened_of("gb300"))
    assert least > MAX_COST_RATIO * cost(race)
    assert {gpu for gpu, _, _ in asked} == {"l40s"}


def test_a_gpu_whose_simulation_serves_nobody_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    def law(question: CapacityQuestion, servers: int) -> int:
        return 0 if question.gpu.name == "l40s" else 100 * servers

    simulate_as(monkeypatch, law)
    race = answer(300, "l40s", "h100-sxm")
    assert race.best is not None
    assert race.best.layout.offer.gpu.name == "h100-sxm"
    assert race.best_of("l40s") is None


def test_where_no_layout_serves_anybody_none_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: CapacityQuestion, __: int) -> int:
        return 0

    simulate_as(monkeypatch, nobody)
    race = answer(300)
    assert race.best is None
    assert race.is_over


@given(loss=st.floats(0.3, 0.8), servers=st.integers(1, 10_000), simulated=st.integers(1, MOST_SERVERS))
def test_a_loss_that_the_estimate_sees_goes_on_in_larger_fleets(loss: float, servers: int, simulated: int) -> None:
    """Beyond the largest fleet that is simulated by a larger power, since each doubling loses more."""
    found = kept(lambda number: 100 * number**-loss, simulated, servers)
    near, beyond = min(servers, MOST_SERVERS), max(servers / MOST_SERVERS, 1.0)
    assert found == pytest.approx(min((near / simulated) ** -loss, 1) * beyond ** (-loss * LOSS_GROWS))


@given(gain=st.floats(0, 0.5), servers=st.integers(1, 10_000))
def test_a_gain_that_the_estimate_sees_is_left_out(gain: float, servers: int) -> None:
    assert kept(lambda number: 100 * number**gain, 4, max(servers, 4)) == 1


def test_a_fleet_that_loses_more_than_it_gains_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, linear)
    monkeypatch.setattr(sizing, "kept", lambda _, simulated, servers: (servers / simulated) ** -1.2)
    assert answer(50_000, "h100-sxm").best is None


def test_servers_that_serve_fewer_the_more_there_are_are_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = simulate_as(monkeypatch, lambda _, servers: round(200 * servers * math.exp(-servers / 3)))
    *_, race = search_fleets(fleet_question("h100-sxm", users=400, router="least-outstanding"))
    (found,) = race.sized
    assert (found.servers, found.row.reason) == (0, sizing.LOSES_TOO_MUCH)
    assert [servers for _, _, servers in asked] == [2, 4, 8]


def test_every_layout_is_screened_or_has_a_reason() -> None:
    question = fleet_question("l4", "t4", "h100-sxm", users=100, tensor_parallel_size=None)
    race = next(iter(search_fleets(question)))
    found = [(each.layout.offer.gpu.name, each.layout.plan.tensor_parallel_size) for each in race.screened]
    found += [(each.gpu, each.tp or 0) for each in race.dropped]
    assert sorted(set(found)) == [(gpu, tp) for gpu in ("h100-sxm", "l4", "t4") for tp in (1, 2, 4, 8)]
    assert all(each.reason for each in race.dropped)


def test_a_layout_of_several_servers_is_tried_with_each_router() -> None:
    question = replace(fleet_question("h100-sxm", users=2000), variants=(EngineArgs(tensor_parallel_size=1),))
    assert {each.layout.router for each in screen_all(question).screened} == {"least-outstanding", "session-affinity"}
    one = replace(question, users=5)
    assert [each.layout.router for each in screen_all(one).screened] == ["session-affinity"], "one server needs none"
    single_turn = replace(question, workload=single_turn_users(input_len=200, output_len=40, think_time_s=20.0))
    assert {each.layout.router for each in screen_all(single_turn).screened} == {"least-outstanding"}


def test_every_layout_has_the_router_that_is_asked_for() -> None:
    question = replace(fleet_question("h100-sxm", "l40s", users=500), router="round-robin")
    assert {each.layout.router for each in screen_all(question).screened} == {"round-robin"}
