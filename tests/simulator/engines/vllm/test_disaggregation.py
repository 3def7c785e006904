"""Prefill in one engine, decode in another: who keeps which blocks, who reads them when, what a request's way takes."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.cases.disaggregation_cases import ApartCase, disaggregated_case, simulate_disaggregated
from conformance.disaggregation import core_disaggregated_steps, difference_of, readable_disaggregated_steps
from conformance.reference.vllm.connectors.connector_scheduler import ConnectorScheduler
from conformance.reference.vllm.connectors.pulling_scheduler import PullingScheduler
from kvcache.layout.kv_layout import KVGroup
from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.engines.vllm.connectors.pulling import KV_CONSUMER, KV_PRODUCER, Network, Nic, Pull, Pulls
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import DECODE, PREFILL, Fleet, Handover, Pool
from simulator.fleet.router import ROUTERS
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from tests.simulator.engines.vllm.disaggregation_checks import InPython, Mutant, assert_seen, assert_sent_to_both_pools
from workloads.requests import RequestTable, independent_requests

SETTINGS = {"num_gpu_blocks": 99, "max_model_len": 512, "max_num_seqs": 9, "max_num_batched_tokens": 512}
STEP_S, TIMES = 0.25, constant_step_times(0.25, max_num_batched_tokens=512, max_num_seqs=64)


def pools(*, asynchronous: bool = False, nic: Nic | None = None, **settings: Any) -> tuple[Pool, Pool]:
    nic = nic or Nic(block_s=0.01, transfer_s=0.05)
    one, other = (
        EngineConfig(**SETTINGS, kv_role=role, async_scheduling=asynchronous, **settings)
        for role in (KV_PRODUCER, KV_CONSUMER)
    )
    return (
        Pool(engine=one, step_times=TIMES, role=PREFILL, nic=nic),
        Pool(engine=other, step_times=TIMES, role=DECODE, nic=nic),
    )


@pytest.mark.parametrize("number", range(20))
def test_the_compiled_core_decides_as_the_readable_schedulers(number: int) -> None:
    case = disaggregated_case(7, number)
    assert (
        difference_of(
            case, core_disaggregated_steps(case), readable_disaggregated_steps(case), of="core", number=number
        )
        is None
    )


@pytest.mark.parametrize("number", range(12))
def test_every_request_is_served_and_every_block_is_free_when_all_is_over(number: int) -> None:
    case = disaggregated_case(3, number)
    simulation = simulate_disaggregated(case)
    if simulation.num_finished < case.table.num_requests:  # cut short, or a request that never fits
        pytest.skip("the case does not end")
    replicas = simulation.arrays.replicas
    assert (replicas["num_free_blocks"] == replicas["num_usable_blocks"]).all()
    assert (simulation.arrays.sides["num_pending"] == 0).all()
    served = simulation.requests[simulation.arrays.handovers["stage"] == 1]
    assert (served["max_tokens"] == case.table.output_tokens[simulation.arrays.handovers["stage"] == 1]).all()


def one_request(prompt_tokens: int = 100, output_tokens: int = 4) -> RequestTable:
    return independent_requests(arrival_s=[0.0], prompt_tokens=[prompt_tokens], output_tokens=[output_tokens])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_way_of_a_lone_request_is_the_sum_of_its_parts(asynchronous: bool) -> None:
    """Prefill, dispatch, the read of 7 blocks, seen by an engine that looks each millisecond, one more step."""
    handover = Handover(dispatch_s=0.5)
    simulation = Simulation(Fleet(pools=pools(asynchronous=asynchronous), handover=handover), one_request())
    simulation.run()
    read_s = 0.05 + 7 * 0.01
    first_token_s = float(simulation.requests["first_token_s"][0])
    parts_s = STEP_S + 0.5 + read_s + STEP_S
    assert parts_s <= first_token_s <= parts_s + 3 * 2.0**-10
    assert simulation.requests["finish_s"][0] == pytest.approx(first_token_s + 3 * STEP_S)
    assert simulation.totals["read_tokens"].tolist() == [0.0, 99.0]
    assert simulation.totals["read_s"][1] == pytest.approx(read_s)


def test_a_prefix_that_the_decode_engine_has_is_not_read_again() -> None:
    table = independent_requests(arrival_s=[0.0, 50.0], prompt_tokens=[100, 100], output_tokens=[4, 4])
    simulation = Simulation(Fleet(pools=pools()), replace(table, span_content=np.zeros(2, np.int64)))
    simulation.run()
    assert simulation.totals["read_tokens"][1] == 99 + (99 - 96)
    assert simulation.totals["read_s"][1] == pytest.approx((0.05 + 7 * 0.01) + (0.05 + 1 * 0.01))


@pytest.mark.parametrize(("prefixes", "num_read"), [(False, [10, 10]), (True, [10, 2])])
def test_of_a_window_only_the_blocks_that_it_reaches_are_read(prefixes: bool, num_read: list[int]) -> None:
    """Of 100 tokens a window of 33 reaches the last 3 blocks of 7; a second prompt lacks only the last of each."""
    settings = pools(kv_groups=(KVGroup(None), KVGroup(33)), enable_prefix_caching=prefixes)
    table = independent_requests(arrival_s=[0.0, 50.0], prompt_tokens=[100, 100], output_tokens=[4, 4])
    simulation = Simulation(Fleet(pools=settings), replace(table, span_content=np.zeros(2, np.int64)))
    simulation.run()
    assert simulation.totals["read_s"][1] == pytest.approx(sum(0.05 + 0.01 * count for count in num_read))
    replicas = simulation.arrays.replicas
    assert (replicas["num_free_blocks"] == replicas["num_usable_blocks"]).all()


def test_blocks_that_nobody_comes_to_read_are_kept_for_the_lease() -> None:
    """The client leaves during the dispatch."""
    simulation = Simulation(Fleet(pools=pools(), handover=Handover(dispatch_s=5.0, lease_s=10.0)), one_request())
    replica = simulation.arrays.replicas[0]
    simulation.run(STEP_S + 1.0)
    from simulator.core.fleet import hang_up  # noqa: PLC0415  imports all kernels

    hang_up(simulation.arrays, 0)
    assert replica["num_free_blocks"] == replica["num_usable_blocks"] - 7
    simulation.run(STEP_S + 9.99)
    assert replica["num_free_blocks"] == replica["num_usable_blocks"] - 7
    simulation.run(STEP_S + 10.01)
    assert replica["num_free_blocks"] == replica["num_usable_blocks"]


def network() -> Network:
    return Network([Nic(block_s=1.0, transfer_s=2.0), Nic(block_s=2.75, transfer_s=1.0, post_s=0.25), Nic(block_s=0.5)])


def test_a_read_is_as_fast_as_the_slower_of_both_engines_and_reads_follow_each_other() -> None:
    between = network()
    for request in (7, 8):
        between.hold(0, request, 100.0)
        between.pull(1, Pull(request=request, num_blocks=4), 10.0)
    assert between.next_end_s(1) == 10.0 + 2.0 + 4 * 3.0
    told = Pulls()
    between.tell(1, told, 24.0)
    assert told == Pulls(received=[7])
    assert between.next_end_s(1) == 38.0


def test_a_source_knows_when_it_was_read_or_that_nobody_will() -> None:
    between = network()
    for request in (7, 8, 9):
        between.hold(0, request, 100.0)
    between.pull(1, Pull(request=7, num_blocks=1), 0.0)
    between.expect(8)
    between.give_up(2, 9, 0.0)
    told = Pulls()
    between.tell(0, told, 5.0)
    assert told.sent == [7, 9]
    between.tell(0, told, 1e9)
    assert told.sent == [7, 9]  # 8 waits at its reader, which renews the lease
    assert between.next_end_s(0) == math.inf


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 9), st.floats(0, 50)), max_size=30))
def test_reads_of_one_engine_never_overlap(reads: list[tuple[int, int, int, float]]) -> None:
    between, spans = network(), []
    for request, (source, target, num_blocks, now_s) in enumerate(sorted(reads, key=lambda read: read[3])):
        if source == target:
            continue
        between.hold(source, request, 1e9)
        between.pull(target, Pull(request=request, num_blocks=num_blocks), now_s)
        one, other = between.nics[source], between.nics[target]
        took_s = max(one.transfer_s, other.transfer_s) + num_blocks * (other.post_s + max(one.block_s, other.block_s))
        end_s = between._received_s[target][request]
        spans.append((source, target, end_s - took_s, end_s))
        assert end_s - took_s >= now_s - 1e-9
    for index, (source, target, begin_s, end_s) in enumerate(spans):
        for other_source, other_target, other_begin_s, other_end_s in spans[:index]:
            if source == other_source or target == other_target:
                assert begin_s >= other_end_s - 1e-9 or end_s <= other_begin_s + 1e-9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nic(block_s=-1.0), "block_s is -1.0; it must be a finite time of 0 s or more"),
        (lambda: Nic(block_s=0.0, transfer_s=math.nan), "transfer_s is nan"),
        (lambda: Handover(dispatch_s=math.inf), "dispatch_s is inf"),
        (lambda: Handover(dispatch_s=30.0), "blocks are kept for 30.0 s: all are lost before they are read"),
        (lambda: EngineConfig(**SETTINGS, kv_role="kv_reader"), "no kv_role 'kv_reader'; there is kv_producer"),
        (
            lambda: EngineConfig(**SETTINGS, kv_role=KV_PRODUCER, scheduling_policy="priority"),
            "disaggregated prefill/decode is not simulated with the scheduling policy priority",
        ),
        (
            lambda: EngineConfig(**SETTINGS, kv_role=KV_PRODUCER, pipeline_parallel_size=2),
            "disaggregated prefill/decode is not simulated with pipeline parallelism; let each engine do both",
        ),
        (
            lambda: EngineConfig(**SETTINGS, kv_role=KV_PRODUCER, host_tier=HostTier(num_chunks=9, chunk_s=1.0)),
            "CPU KV-cache offloading is not simulated with disaggregated prefill/decode; leave --kv-offloading-size",
        ),
        (lambda: Fleet(pools=pools()[:1]), "disaggregated prefill/decode needs a prefill pool and a decode pool"),
    ],
)
def test_what_cannot_be_or_is_not_simulated_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def reads_the_whole_prompt(scheduler: PullingScheduler, request: Any, hit: Any, _: int) -> None:
    request.do_remote_prefill = False
    scheduler._asked.append(Pull(request=request.id, num_blocks=len(request.table.blocks[0])))
    scheduler._reading[request.id] = request
    scheduler.num_begun += 1


def keeps_nothing(scheduler: PullingScheduler, request: Any, *, is_aborted: bool) -> bool:
    if request.do_remote_decode and not is_aborted:
        scheduler._held[request.id] = request
        request.table.blocks, blocks = [], request.table.blocks
        scheduler.blocks.pool.free(blocks[0][::-1])
    return False


def is_forgotten(scheduler: PullingScheduler, request: Any, *, is_aborted: bool) -> bool:
    request.do_remote_prefill = False
    if not is_aborted and request.do_remote_decode:
        scheduler._held[request.id] = request
    return request.id in scheduler._held


def reads_at_once(network: Network, target: int, pull: Pull, now_s: float) -> None:
    one, other = network.nics[network.sources[pull.request]], network.nics[target]
    end_s = now_s + max(one.transfer_s, other.transfer_s) + pull.num_blocks * max(one.block_s, other.block_s)
    network._received_s[target][pull.request] = end_s
    network._release(pull.request, end_s)


MUTANTS: dict[str, Mutant] = {
    "a prefix hit does not shorten a read": (PullingScheduler, "_begin_load", reads_the_whole_prompt),
    "a prefill engine frees its blocks at once": (PullingScheduler, "_keeps_blocks", keeps_nothing),
    "a source is not told that its reader gave up": (PullingScheduler, "_keeps_blocks", is_forgotten),
    "a load leaves nothing free for others": (ConnectorScheduler, "_num_missing_blocks", lambda *_: 0),
    "blocks are freed while a step writes them": (ConnectorScheduler, "_may_preempt", lambda *_: True),
    "reads do not wait for each other": (Network, "pull", reads_at_once),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_were_wrong_would_be_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_seen(MUTANTS[mutant], monkeypatch)


def test_a_planted_difference_is_found() -> None:
    case: ApartCase = disaggregated_case(4, 1)
    ours, theirs = readable_disaggregated_steps(case), readable_disaggregated_steps(case)
    assert difference_of(case, ours, theirs, of="ours", number=1) is None
    theirs[-1][3]["free_blocks"] += 1
    assert difference_of(case, ours, theirs, of="ours", number=1) is not None


@pytest.mark.slow
@pytest.mark.parametrize("router", [*(name.replace("_", "-") for name in ROUTERS.names()), InPython])
def test_every_router_sends_each_request_to_a_prefill_engine_and_then_to_a_decode_engine(router: Any) -> None:
    assert_sent_to_both_pools(disaggregated_case(9, 1), router)
