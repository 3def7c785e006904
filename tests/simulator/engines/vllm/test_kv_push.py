"""Prefill engines that write into decode engines: who asks for what when, what comes, what never does."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.cases.disaggregation_cases import disaggregated_case, simulate_disaggregated
from conformance.disaggregation import core_disaggregated_steps, difference_of, readable_disaggregated_steps
from conformance.reference.vllm.connectors.pulling_scheduler import PullingScheduler
from conformance.reference.vllm.connectors.pushing import PushNetwork
from simulator.core.layout import ABANDONED, FINISHED, NOT_ARRIVED, TIMED_OUT
from simulator.engines.vllm.connectors.pulling import KV_CONSUMER, KV_PRODUCER, Nic, Pull, Pulls
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.deciders import read_decider
from simulator.fleet.fleet import DECODE, PREFILL, Fleet, Handover, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from tests.simulator.engines.vllm.disaggregation_checks import InPython, Mutant, assert_seen, assert_sent_to_both_pools
from workloads.requests import RequestTable, Waits, independent_requests, with_waits

STEP_S = 0.25
LOOK_S = 2.0**-10
WRITE_S = 0.05 + 7 * 0.01
SETTINGS = {"num_gpu_blocks": 99, "max_model_len": 512, "max_num_seqs": 9, "max_num_batched_tokens": 512}
NIC = Nic(block_s=0.01, transfer_s=0.05)


def fleet(*, asynchronous: bool = False, lease_s: float = 30.0, router: Any = "round-robin", **settings: Any) -> Fleet:
    times = constant_step_times(STEP_S, max_num_batched_tokens=512, max_num_seqs=64)
    pools = tuple(
        Pool(
            engine=EngineConfig(**{**SETTINGS, **settings}, kv_role=kv_role, async_scheduling=asynchronous),
            step_times=times,
            role=role,
            nic=NIC,
        )
        for role, kv_role in ((PREFILL, KV_PRODUCER), (DECODE, KV_CONSUMER))
    )
    return Fleet(pools=pools, router=router, handover=Handover(pushes=True, lease_s=lease_s))


def requests(*arrival_s: float, prompt: int = 100, output: int = 4) -> RequestTable:
    count = len(arrival_s)
    return independent_requests(
        arrival_s=list(arrival_s), prompt_tokens=[prompt] * count, output_tokens=[output] * count
    )


def free_blocks(simulation: Simulation) -> list[int]:
    """Of the prefill engine and the decode engine, those in use."""
    replicas = simulation.arrays.replicas
    return (replicas["num_usable_blocks"] - replicas["num_free_blocks"]).tolist()


@pytest.mark.parametrize("number", range(20))
def test_the_compiled_core_decides_as_the_readable_schedulers(number: int) -> None:
    case = disaggregated_case(7, number, pushes=True)
    assert (
        difference_of(
            case, core_disaggregated_steps(case), readable_disaggregated_steps(case), of="core", number=number
        )
        is None
    )


@pytest.mark.parametrize("number", range(12))
def test_every_request_is_served_and_every_block_is_free_when_all_is_over(number: int) -> None:
    case = disaggregated_case(3, number, pushes=True)
    case = replace(case, table=replace(case.table, waits=None), handover=replace(case.handover, lease_s=1e6))
    simulation = simulate_disaggregated(case)
    assert simulation.num_finished == case.table.num_requests
    assert not simulation.arrays.handovers["lost"].any()
    assert free_blocks(simulation) == [0] * simulation.fleet.num_engines
    assert (simulation.arrays.sides["num_pending"] == 0).all()
    assert (simulation.arrays.engine_views["outstanding"] == 0).all()
    served = simulation.requests[simulation.requests["status"] == FINISHED]
    assert (served["output"] == case.table.output_tokens[simulation.requests["status"] == FINISHED]).all()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_lone_request_waits_for_its_prefill_its_write_and_one_step_and_for_no_dispatch(asynchronous: bool) -> None:
    simulation = Simulation(fleet(asynchronous=asynchronous), requests(0.0))
    simulation.run()
    first_token_s = float(simulation.requests["first_token_s"][0])
    parts_s = STEP_S + WRITE_S + STEP_S
    assert parts_s <= first_token_s <= parts_s + 5 * LOOK_S
    assert simulation.totals["read_tokens"].tolist() == [0.0, 99.0]
    assert simulation.totals["read_s"][1] == pytest.approx(WRITE_S)


def test_a_busy_decode_engine_knows_of_a_write_a_step_later_than_of_a_read() -> None:
    """A first answer keeps it in steps of a quarter of a second while the second prompt is computed, from 2.6 s on."""
    for pushes, num_steps in ((True, 3), (False, 2)):
        simulation = Simulation(replace(fleet(), handover=Handover(pushes=pushes)), requests(0.0, 2.6, output=40))
        simulation.run()
        launched_s = float(simulation.requests["first_token_s"][0]) % STEP_S  # and each step after it
        asked_s = prefilled_s = 2.6 + STEP_S
        if not pushes:
            asked_s = launched_s + math.ceil((prefilled_s - launched_s) / STEP_S) * STEP_S
        seen_s = launched_s + math.ceil((asked_s + WRITE_S - launched_s) / STEP_S) * STEP_S
        assert simulation.requests["first_token_s"][1] == pytest.approx(seen_s + num_steps * STEP_S)


def test_the_decode_engine_holds_blocks_while_the_prompt_is_computed() -> None:
    simulation = Simulation(fleet(), requests(0.0))
    simulation.run(STEP_S / 2)
    assert free_blocks(simulation) == [7, 7]
    simulation.run(STEP_S + WRITE_S / 2)
    assert free_blocks(simulation) == [7, 7]
    simulation.run(STEP_S + WRITE_S + 0.1)
    assert free_blocks(simulation) == [0, 7]


def test_a_prefix_that_the_decode_engine_has_is_not_written_again() -> None:
    table = replace(requests(0.0, 50.0), span_content=np.zeros(2, np.int64))
    simulation = Simulation(fleet(), table)
    simulation.run()
    assert simulation.totals["read_tokens"][1] == 99 + (99 - 96)
    assert simulation.totals["read_s"][1] == pytest.approx(WRITE_S + (0.05 + 0.01))


def test_what_is_asked_for_after_the_lease_never_comes_and_the_request_waits_for_ever() -> None:
    """The decode engine has room for one request, whose answer takes longer than the lease of the second one's KV."""
    simulation = Simulation(fleet(lease_s=2.0, num_gpu_blocks=12), requests(0.0, 0.0, 60.0, output=40))
    simulation.run()
    assert (simulation.requests["status"] == FINISHED).tolist() == [True, False, False]
    assert simulation.arrays.handovers["lost"].tolist()[:3] == [0, 1, 0]
    assert free_blocks(simulation) == [0, 7]
    assert simulation.waits_for_ever


@pytest.mark.parametrize(("leaves_s", "num_kept"), [(STEP_S / 2, 7), (STEP_S + WRITE_S / 2, 0)])
def test_a_client_that_leaves_before_the_prompt_is_computed_leaves_blocks_behind(
    leaves_s: float, num_kept: int
) -> None:
    waits = Waits(np.array([leaves_s]), np.full(1, np.inf), np.zeros((0, 1)), np.full(1, -1, np.int32))
    simulation = Simulation(fleet(), with_waits(requests(0.0), waits))
    simulation.run()
    assert simulation.requests["status"].tolist() == [ABANDONED]
    assert simulation.num_finished == 1
    assert free_blocks(simulation) == [0, num_kept]
    assert simulation.arrays.handovers["lost"].sum() == (num_kept > 0)
    assert not simulation.waits_for_ever


def test_attempts_have_prefill_rows_of_their_own() -> None:
    waits = Waits(np.full(2, np.inf), np.array([0.3, np.inf]), np.full((2, 2), 0.1), np.full(2, -1, np.int32))
    simulation = Simulation(fleet(), with_waits(requests(0.0, 0.0), waits))
    simulation.run()
    assert len(simulation.requests) == 6
    assert simulation.requests["status"].tolist() == [
        TIMED_OUT,
        FINISHED,
        TIMED_OUT,
        NOT_ARRIVED,
        TIMED_OUT,
        NOT_ARRIVED,
    ]
    assert simulation.num_finished == 4


def network() -> PushNetwork:
    found = PushNetwork([Nic(block_s=1.0, transfer_s=2.0, post_s=0.25), Nic(block_s=2.75, transfer_s=1.0, post_s=9.0)])
    for request in (7, 8, 9):
        found.send(request, 0, 1)
    return found


def offered(between: PushNetwork, request: int, now_s: float, until_s: float = 100.0) -> None:
    between.hold(0, request, until_s)
    between.launch(0, Pulls(offered=[request]), now_s)


def asked(between: PushNetwork, request: int, now_s: float) -> Pulls:
    found = Pulls(asked=[Pull(request=request, num_blocks=4)])
    between.launch(1, found, now_s)
    return found


def test_a_write_begins_when_the_prompt_is_computed_and_asked_for_and_the_prefill_engine_posts_it() -> None:
    between = network()
    asked(between, 7, 0.0)
    offered(between, 7, 10.0)
    assert between.next_end_s(1) == 10.0 + (2.0 + 4 * (0.25 + 2.75))
    offered(between, 8, 50.0)
    asked(between, 8, 60.0)
    assert max(between._received_s[1].values()) == 60.0 + 2.0 + (2.0 + 4 * 3.0)  # a message, then the write


def test_a_write_is_known_at_once_where_it_begins_and_a_look_later_where_it_ends() -> None:
    between = network()
    asked(between, 7, 0.0)
    offered(between, 7, 10.0)
    told = [Pulls(), Pulls(), Pulls()]
    between.tell(0, told[0], 24.0)
    assert told[0].sent == [7]
    between.tell(1, told[1], 24.0)
    between.tell(1, told[2], 25.0)
    assert [found.received for found in told[1:]] == [[], [7]]


def test_a_step_that_asks_for_something_looks_before() -> None:
    between = network()
    asked(between, 7, 0.0)
    offered(between, 7, 10.0)
    assert asked(between, 8, 24.0).received == [7]


def test_only_what_is_asked_for_within_the_lease_comes() -> None:
    between = network()
    offered(between, 7, 0.0, until_s=5.0)
    asked(between, 7, 3.0)  # known at 5.0
    assert (between.num_lost(1), between.next_end_s(1)) == (1, math.inf)
    offered(between, 8, 0.0, until_s=5.1)
    asked(between, 8, 3.0)
    assert between.num_lost(1) == 1
    assert between.next_end_s(1) == 5.0 + 2.0 + 4 * 3.0
    assert between.next_end_s(0) == 5.0  # freed with the lease, which no write lengthens


@pytest.mark.parametrize("router", ["least-outstanding", "cache-aware", InPython])
def test_a_router_chooses_both_engines_as_the_request_comes(router: Any) -> None:
    case = disaggregated_case(9, 1, pushes=True)
    assert_sent_to_both_pools(replace(case, handover=Handover(pushes=True)), router)


def test_a_decider_is_refused() -> None:
    with pytest.raises(ValueError, match="is not simulated where prefill engines push; leave --decider out"):
        Handover(pushes=True, decider=read_decider("isl_bounding"))


def renews(network: PushNetwork, engine: int, request: int, _: float) -> None:
    network._sent_s[engine][request] = math.inf


def is_never_lost(_: PushNetwork, __: int) -> None: ...


def looks_at_once(network: PushNetwork, engine: int, pulls: Pulls, now_s: float) -> None:
    network._looked_s[engine] = now_s
    TELL(network, engine, pulls, now_s)


def asks_at_once(scheduler: PullingScheduler, request: Any, hit: Any, tokens: int) -> None:
    BEGIN(scheduler, request, hit, tokens)
    scheduler._asked[-1] = replace(scheduler._asked[-1], num_blocks=len(request.table.blocks[0]))


TELL, BEGIN = PushNetwork.tell, PullingScheduler._begin_load
MUTANTS: dict[str, Mutant] = {
    "a lease is renewed": (PushNetwork, "hold", renews),
    "a client leaves nothing behind": (PushNetwork, "leave", is_never_lost),
    "a write is known as a read is": (PushNetwork, "tell", looks_at_once),
    "a prefix hit does not shorten a write": (PullingScheduler, "_begin_load", asks_at_once),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_were_wrong_would_be_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_seen(MUTANTS[mutant], monkeypatch, pushes=True)
