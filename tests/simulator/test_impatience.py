"""Clients that give up, time out and try again: nothing is lost, nothing is counted twice."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.core import layout
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases, impatient_cases
from tests.simulator.test_laws import check_blocks, served
from tests.simulator.test_queueing_theory import assert_agree
from workloads.clients import Clients, Library
from workloads.distributions import Exponential, Fixed
from workloads.requests import RequestTable, Waits, independent_requests, with_waits

EXAMPLES = 30
STEP_S = 0.01


@settings(max_examples=EXAMPLES)
@given(impatient_cases())
def test_every_attempt_ends_once_and_only_time_outs_are_followed_by_another(case: Case) -> None:
    attempts = served(case).requests.reshape(case.table.num_attempts, -1)
    arrived, status = attempts["status"] != layout.NOT_ARRIVED, attempts["status"]
    assert (status[arrived] >= layout.FINISHED).all()
    np.testing.assert_array_equal(np.isfinite(attempts["finish_s"]), arrived)
    assert (status[:-1][arrived[1:]] == layout.TIMED_OUT).all()
    assert (attempts["arrival_s"][1:] >= attempts["finish_s"][:-1])[arrived[1:]].all()
    is_last_turn = ~np.isin(np.arange(case.table.num_requests), case.table.follows)
    goes_on = case.table.waits is not None and (case.table.waits.resumes >= 0) | is_last_turn
    if np.all(goes_on):
        assert arrived[0].all()


@settings(max_examples=EXAMPLES)
@given(impatient_cases())
def test_no_block_is_leaked_and_those_not_ended_are_still_there(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table)
    for until_s in np.linspace(0.0, 4.0, 9):
        simulation.run(until_s)
        check_blocks(simulation)
        arrived, ended = (simulation.requests["status"] != layout.NOT_ARRIVED, simulation.requests["finish_s"])
        still_there = arrived.sum() - np.isfinite(ended).sum()
        assert simulation.arrays.engine_views["outstanding"].sum() == still_there
        assert simulation.num_finished == np.isfinite(ended).sum()
    simulation.run()
    check_blocks(simulation)
    engines = simulation.arrays.replicas
    assert (engines["num_free_blocks"] == engines["num_usable_blocks"]).all()


@settings(max_examples=EXAMPLES)
@given(impatient_cases())
def test_stopping_on_the_way_changes_nothing_for_impatient_clients(case: Case) -> None:
    paused = Simulation(case.fleet, case.table)
    for until_s in (0.3, 0.7, 0.7, 3.1):
        paused.run(until_s)
    paused.run()
    expected = served(case).requests
    for name in ("status", "arrival_s", "scheduled_s", "first_token_s", "finish_s", "output", "computed", "replica"):
        np.testing.assert_array_equal(paused.requests[name], expected[name], err_msg=name)


@settings(max_examples=EXAMPLES)
@given(cases())
def test_infinite_patience_is_as_none_at_all(case: Case) -> None:
    count = case.table.num_requests
    forever = Waits(
        np.full(count, math.inf), np.full(count, math.inf), np.zeros((2, count)), np.full(count, -1, np.int32)
    )
    patient = served(Case(case.fleet, with_waits(case.table, forever)))
    np.testing.assert_array_equal(patient.requests[:count], served(case).requests)
    assert (patient.requests["status"][count:] == layout.NOT_ARRIVED).all()
    np.testing.assert_array_equal(patient.totals, served(case).totals)
    assert patient.now_s == served(case).now_s


def erlang_a_abandonment(rate_per_s: float, mean_s: float, patience_s: float, servers: int) -> float:
    """Share that leaves an M/M/c+M queue before service, whose deaths are min(n, c) / mean + max(n - c, 0) / patience.

    Garnett, Mandelbaum, Reiman 2002, Designing a call center with impatient customers.
    """
    weights = [1.0]
    for number in range(1, 400):
        death = min(number, servers) / mean_s + max(number - servers, 0) / patience_s
        weights.append(weights[-1] * rate_per_s / death)
    waiting = sum(max(number - servers, 0) * weight for number, weight in enumerate(weights)) / sum(weights)
    return waiting / patience_s / rate_per_s


def one_engine(servers: int, *, blocks: int = 200_000, **settings: bool) -> Fleet:
    engine = EngineConfig(
        num_gpu_blocks=blocks, max_model_len=10**5, max_num_seqs=servers, max_num_batched_tokens=64, **settings
    )
    times = constant_step_times(STEP_S, max_num_batched_tokens=64, max_num_seqs=servers)
    return Fleet(pools=(Pool(engine=engine, step_times=times),))


@pytest.mark.parametrize("load", [pytest.param(0.8, marks=pytest.mark.slow), 1.2])
def test_the_share_that_gives_up_is_that_of_erlang_a(load: float) -> None:
    """Of an M/M/c+M queue: steps are short beside service and patience, and the first one ends patience."""
    steps, servers, patience_s, requests = 200, 4, 3.0, 8_000
    mean_s = steps * STEP_S
    rate, shares = load * servers / mean_s, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        table = independent_requests(
            arrival_s=np.cumsum(rng.exponential(1 / rate, requests)),
            prompt_tokens=np.ones(requests),
            output_tokens=rng.geometric(1 / steps, requests),
        )
        table = Clients(patience_s=Exponential(mean_value=patience_s)).applied(table, seed)
        simulation = Simulation(one_engine(servers, enable_prefix_caching=False, async_scheduling=False), table)
        simulation.run()
        shares.append(float((simulation.requests["status"][500:] == layout.ABANDONED).mean()))
    theory = erlang_a_abandonment(rate, mean_s, patience_s, servers)
    assert_agree(np.array(shares), theory, slack_s=1.5 * STEP_S / patience_s)  # until the first token, 1.5 steps


def two_in_a_row(waits: Waits | None = None) -> RequestTable:
    """A prompt of 40 tokens for 20 more, and a next turn."""
    table = independent_requests(
        arrival_s=[0.0, math.nan],
        prompt_tokens=[40, 64],
        output_tokens=[20, 4],
        follows=[-1, 0],
        think_s=[0.0, 5.0],
    )
    table = replace(table, span_start=np.zeros(2, np.int64))  # both are of one conversation
    return table if waits is None else with_waits(table, waits)


def waits_of(*, patience_s: float = math.inf, timeout_s: float = math.inf, backoff_s: tuple[float, ...] = ()) -> Waits:
    backoffs = np.repeat(np.array(backoff_s).reshape(-1, 1), 2, axis=1)
    return Waits(np.full(2, patience_s), np.full(2, timeout_s), backoffs, np.array([1, -1], np.int32))


def ends(waits: Waits) -> Simulation:
    simulation = Simulation(one_engine(4, enable_prefix_caching=True, async_scheduling=True), two_in_a_row(waits))
    simulation.run()
    return simulation


def test_who_has_the_first_token_no_longer_gives_up() -> None:
    requests = ends(waits_of(patience_s=2.5 * STEP_S)).requests
    assert (requests["status"] == layout.FINISHED).all()


def test_who_gives_up_sends_the_next_turn_a_think_time_later() -> None:
    requests = ends(waits_of(patience_s=0.5 * STEP_S)).requests
    assert requests["status"].tolist() == [layout.ABANDONED, layout.ABANDONED]
    assert requests["finish_s"][0] == 0.5 * STEP_S
    assert requests["arrival_s"][1] == 0.5 * STEP_S + 5.0


def test_an_answer_is_cancelled_in_mid_stream_and_keeps_what_it_had() -> None:
    requests = ends(waits_of(timeout_s=10.5 * STEP_S)).requests
    assert requests["status"].tolist() == [layout.TIMED_OUT, layout.FINISHED]
    assert 8 <= requests["output"][0] <= 10
    assert requests["cached_tokens"][1] == 48  # of 40 and the answer's first ones: what was computed stays cached


def test_a_retry_comes_after_its_back_off_and_finds_its_own_prefix() -> None:
    requests = ends(waits_of(timeout_s=10.5 * STEP_S, backoff_s=(0.5, 1.0))).requests.reshape(3, 2)
    assert requests["status"][:, 0].tolist() == [layout.TIMED_OUT] * 3
    np.testing.assert_allclose(np.diff(requests["arrival_s"][:, 0]), [0.5 + 0.105, 1.0 + 0.105])
    assert requests["cached_tokens"][:, 0].tolist() == [0, 32, 32]  # whole blocks but for the last token
    assert requests["arrival_s"][0, 1] == requests["finish_s"][2, 0] + 5.0


def test_who_runs_out_of_patience_during_a_back_off_does_not_try_again() -> None:
    requests = ends(waits_of(patience_s=0.3, timeout_s=0.5 * STEP_S, backoff_s=(0.5,))).requests.reshape(2, 2)
    assert requests["status"][:, 0].tolist() == [layout.TIMED_OUT, layout.NOT_ARRIVED]
    assert requests["arrival_s"][0, 1] == pytest.approx(0.3 + 5.0)


def test_an_abandoned_session_ends_and_a_populations_user_opens_the_next_conversation() -> None:
    table = independent_requests(
        arrival_s=[0, math.nan, math.nan, math.nan, 0, math.nan],
        prompt_tokens=np.ones(6),
        output_tokens=np.ones(6),
        follows=[-1, 0, 1, 2, -1, 4],
        think_s=[0, 1, 1, 1, 0, 1],
    )
    opens = np.array([True, False, True, False, True, False])
    leaving = Clients(patience_s=Fixed(value=1), library=Library(abandons_session=True))
    for applied, expected in (
        (leaving.applied(table, 0, opens), [2, 2, -1, -1, -1, -1]),
        (leaving.applied(table, 0), [-1] * 6),
        (replace(leaving, library=Library()).applied(table, 0), [1, 2, 3, -1, 5, -1]),
    ):
        assert applied.waits is not None and applied.waits.resumes.tolist() == expected


def test_a_turns_patience_does_not_depend_on_the_other_sessions() -> None:
    clients = Clients(patience_s=Exponential(mean_value=1.0), library=Library(timeout_s=60.0))
    follows = np.array([-1, 0, -1, 2, 3])
    table = independent_requests(
        arrival_s=np.where(follows < 0, 0.0, math.nan), prompt_tokens=np.ones(5), output_tokens=np.ones(5),
        follows=follows, think_s=np.zeros(5),
    )  # fmt: skip
    all_of, first = clients.applied(table, 3).waits, clients.applied(table.head(2), 3).waits
    assert all_of is not None and first is not None
    np.testing.assert_array_equal(all_of.patience_s[:2], first.patience_s)
    np.testing.assert_array_equal(all_of.backoff_s[:, :2], first.backoff_s)
    assert len(set(all_of.patience_s.tolist())) == 5
