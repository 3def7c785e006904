"""The compiled core decides exactly as the readable SGLang scheduler does."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conformance.cases.radix_cases import PAGE_SIZES
from conformance.cases.sglang_cases import STEP_S, STORM_EVERY, SGLangCase, random_sglang_case
from conformance.probing import Record
from conformance.reference.sglang.kv_cache import OutOfKVCacheError
from conformance.sglang_scheduler import OurLoop, our_batches
from files.compiling import lowering  # noqa: F401  tells numba what a kernel is, where none has been compiled yet
from simulator.core.layout import NONE
from simulator.core.sglang import shuffle
from simulator.engines.sglang import engine as sglang
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import BatchSums, StepTimes, constant_step_times
from simulator.simulation import Simulation, StalledError
from simulator.step_log import StepRecord
from tests.simulator.random_cases import random_step_times, random_table
from workloads.requests import NO_PREDECESSOR, RequestTable, Waits, independent_requests, with_waits
from workloads.tenants import tenancy_of_names

ROUND = len(PAGE_SIZES) * len(sglang.SCHEDULE_POLICIES)


def simulated_case(seed: int, number: int) -> SGLangCase:
    """A random case of what the core simulates."""
    case = random_sglang_case(seed, number)
    return replace(case, requests=tuple(replace(request, ignore_eos=False) for request in case.requests))


def table_of(case: SGLangCase) -> RequestTable:
    rows = case.requests
    counts = [len(row.spans) for row in rows]
    names = sorted({row.routing_key for row in rows})
    return RequestTable(
        arrival_s=np.array([np.nan if row.arrival_s is None else row.arrival_s for row in rows]),
        follows=np.array([row.follows if row.follows >= 0 else NO_PREDECESSOR for row in rows], np.int64),
        think_s=np.array([row.think_s if row.follows >= 0 else 0.0 for row in rows]),
        prompt_tokens=np.array([row.prompt_tokens for row in rows], np.int32),
        output_tokens=np.array([row.num_tokens_to_stop or row.max_new_tokens for row in rows], np.int32),
        priority=np.zeros(len(rows), np.int32),
        span_start=(np.cumsum(counts) - counts).astype(np.int64),
        span_count=np.array(counts, np.int32),
        span_content=np.array([content for row in rows for content, _ in row.spans], np.int64),
        span_end=np.array([end for row in rows for _, end in row.spans], np.int32),
        tenancy=tenancy_of_names(names, np.array([names.index(row.routing_key) for row in rows], np.int32)),
    )


def simulation_of(case: SGLangCase, times: StepTimes | None = None) -> Simulation:
    engine, table = case.engine, table_of(case)
    times = times or constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), table, log_steps=True)
    simulation.arrays.sglang.requests["max_new_tokens"] = [row.max_new_tokens for row in case.requests]
    return simulation


def assert_same_batches(case: SGLangCase) -> None:
    theirs, has_crashed = our_batches(case)
    assume(not has_crashed and not any(batch["aborted"] for batch in theirs))
    simulation = simulation_of(case)
    simulation.run()
    assert_same_decisions(case, simulation.steps, theirs)


def assert_same_decisions(case: SGLangCase, steps: Iterable[StepRecord], theirs: list[Record]) -> None:
    page_size = case.engine.page_size
    for ours, batch in zip(steps, theirs, strict=True):
        assert list(ours.scheduled.items()) == [tuple(each) for each in batch["scheduled"]]
        assert ours.preempted == batch["retracted"]
        assert (ours.running, ours.waiting) == (batch["running"], batch["waiting"])
        assert ours.free_blocks * page_size == batch["free"] + batch["evictable"]
        assert sorted(ours.finished) == sorted(batch["finished"])


class PricedPipeline:
    """Batches one after the other, each as long as its sums say."""

    def __init__(self, loop: OurLoop, times: StepTimes) -> None:
        self.loop, self.times, self.free_s = loop, times, 0.0

    def end_s(self, now_s: float) -> float:
        batch, sums = self.loop.records[-1], BatchSums()
        prefixes, chunked = dict(batch["prefixes"]), self.loop.scheduler.chunked_req
        for row, tokens in batch["scheduled"]:
            end = prefixes[row] + tokens if row in prefixes else self.loop.requests[row].kv_len
            is_sampled = chunked is None or chunked.id != row
            is_decode = row not in prefixes or tokens == 1
            sums.add(start=end - tokens, end=end, is_sampled=is_sampled, is_decode=is_decode, window=self.times.window)
        self.free_s = max(self.free_s, now_s) + self.times.step_s(sums)
        return self.free_s


def assert_same_times(case: SGLangCase) -> None:
    rng = np.random.default_rng(0)
    engine, ended = case.engine, dict[int, float]()
    times = random_step_times(rng, engine.max_num_batched_tokens, engine.max_num_seqs)
    times = replace(times, ingress_request_s=0.0, ingress_token_s=0.0, ingress_s=0.0, cold_start_s=0.0)
    loop: Any = OurLoop(case)
    loop.pipeline = PricedPipeline(loop, times)
    while True:
        try:
            goes_on = loop.turn()
        except OutOfKVCacheError:
            return
        ended |= {row: loop.load.now_s for batch in loop.records[-2:] for row in batch["finished"] if row not in ended}
        if not goes_on:
            break
    assume(len(ended) == len(loop.requests))
    simulation = simulation_of(case, times)
    simulation.run()
    np.testing.assert_array_equal(simulation.requests["finish_s"], [ended[row] for row in range(len(ended))])
    cached = [request.num_cached_tokens for request in loop.requests]
    np.testing.assert_array_equal(simulation.requests["cached_tokens"], cached)
    assert simulation.arrays.sglang.engines["ratio"][0] == loop.scheduler.new_token_ratio.current


seeds = st.integers(0, 10_000), st.integers(0, ROUND * STORM_EVERY - 1)


@settings(max_examples=4)
@given(*seeds)
def test_every_batch_has_the_same_decisions(seed: int, number: int) -> None:
    assert_same_batches(simulated_case(seed, number))


@settings(max_examples=2)
@given(*seeds)
def test_every_request_ends_at_the_same_time(seed: int, number: int) -> None:
    assert_same_times(simulated_case(seed, number))


@pytest.mark.slow
@settings(max_examples=300)
@given(*seeds)
def test_the_same_on_many_more_cases(seed: int, number: int) -> None:
    assert_same_batches(simulated_case(seed, number))
    assert_same_times(simulated_case(seed, number))


# -- laws


def check(simulation: Simulation) -> None:
    """Pages are conserved; a prefix is locked where what follows it is; exactly the free leaves may be evicted."""
    arrays = simulation.arrays.sglang
    state, engine, pool = simulation.arrays.replicas[0], arrays.engines[0], arrays.pools[0]
    live = _live_nodes(simulation)
    tokens = {node: int(arrays.nodes[node]["end"] - arrays.nodes[node]["start"]) for node in live}
    locks = {node: int(arrays.nodes[node]["lock_ref"]) for node in live}
    parents = {node: int(arrays.nodes[node]["parent"]) for node in live}
    assert all(lock >= 0 for lock in locks.values())
    assert all(locks[node] <= locks.get(parents[node], locks[node]) for node in live)
    evictable = sum(tokens[node] for node in live if not locks[node])
    assert evictable == state["num_cached_free_blocks"] * pool["page_size"]
    held = simulation.requests[arrays.requests["holds_kv"] == 1]
    protected = arrays.requests["protected"][arrays.requests["holds_kv"] == 1]
    own = -(-held["computed"] // pool["page_size"]) - -(-protected // pool["page_size"])
    in_tree = sum(tokens.values()) // pool["page_size"]
    free = state["num_free_blocks"] - state["num_cached_free_blocks"]
    assert free + int(own.sum()) + in_tree == pool["num_pages"] and free >= 0
    leaves = arrays.leaves[engine["root"] : engine["root"] + engine["num_leaves"]]
    assert set(leaves.tolist()) == {node for node in live if not locks[node]} - set(parents.values())


def _live_nodes(simulation: Simulation) -> list[int]:
    """All but the root; before a first request, none."""
    arrays = simulation.arrays.sglang
    found = []
    for head in arrays.buckets[0].tolist() if simulation.arrays.replicas[0]["is_laid_out"] else ():
        node = head
        while node != NONE:
            found.append(node)
            node = int(arrays.nodes[node]["next_in_bucket"])
    return found


@settings(max_examples=4)
@given(*seeds)
def test_the_tokens_of_the_tree_are_conserved_and_no_locked_leaf_can_be_evicted(seed: int, number: int) -> None:
    simulation = simulation_of(simulated_case(seed, number))
    for step in range(1, 200):
        try:
            simulation.run(step * 4.5 * STEP_S)
        except StalledError:
            return
        check(simulation)
    simulation.run()
    check(simulation)
    assert not simulation.arrays.sglang.nodes["lock_ref"][1:].any() and not simulation.arrays.replicas["num_running"][0]


def test_a_fleet_may_hold_both_engines() -> None:
    table = random_table(np.random.default_rng(3), 200, kind="turns")
    times = constant_step_times(STEP_S, max_num_batched_tokens=8192, max_num_seqs=64)
    engines = (
        sglang.EngineConfig(max_total_num_tokens=2000, context_len=1000, max_running_requests=8),
        EngineConfig(num_gpu_blocks=200, max_model_len=1000, max_num_seqs=8, max_num_batched_tokens=256),
    )
    pools = tuple(Pool(engine=engine, step_times=times, num_servers=2) for engine in engines)
    simulation = Simulation(Fleet(pools=pools, router="round-robin"), table)
    simulation.run()
    assert simulation.num_finished == table.num_requests
    assert (simulation.totals["hit_tokens"] > 0).all() and (simulation.totals["steps"] > 0).all()


def test_routing_key_without_keys_is_refused_with_what_to_do() -> None:
    case = simulated_case(0, 0)
    nameless = tuple(replace(request, routing_key="") for request in case.requests)
    with pytest.raises(ValueError, match=r"these requests have none; name tenants .* or choose fcfs"):
        simulation_of(replace(case, engine=replace(case.engine, schedule_policy="routing-key"), requests=nameless))


@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_an_order_is_drawn_as_python_draws_it(seed: int) -> None:
    """Of so many that the generator's words are used up twice, and of none and one, which draw nothing."""
    drawn: Any = numba.njit(shuffle.shuffle.py_func)  # type: ignore[attr-defined]
    theirs, words = Random(seed), np.array(Random(seed).getstate()[1], np.int64)
    for count in (1500, 0, 1, 2, 64):
        expected, ours = list(range(count)), np.arange(count, dtype=np.int32)
        theirs.shuffle(expected)
        drawn(words, ours, count)
        assert ours.tolist() == expected
    assert tuple(words) == theirs.getstate()[1]


def test_each_server_of_a_fleet_draws_an_order_of_its_own_and_each_run_another() -> None:
    engine = sglang.EngineConfig(
        max_total_num_tokens=2000, context_len=1000, max_running_requests=2, schedule_policy="random"
    )
    times = constant_step_times(1.0, max_num_batched_tokens=8192, max_num_seqs=2)
    table = random_table(np.random.default_rng(3), 60, kind="turns")
    fleet = Fleet(pools=(Pool(engine=engine, step_times=times, num_servers=2),), router="round-robin")
    runs = [Simulation(fleet, table, seed=seed) for seed in (1, 1, 2)]
    assert len({tuple(words) for run in runs for words in run.arrays.sglang.shuffles}) == 4
    for run in runs:
        run.run()
    one, again, other = (run.requests["finish_s"] for run in runs)
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_a_cut_prompt_that_shorter_ones_leave_no_memory_ends_sglang_s_server() -> None:
    """Its own scheduler ends at the same batch: cases with crashes are compared, too."""
    times = constant_step_times(1.0, max_num_batched_tokens=8192, max_num_seqs=64)
    table = independent_requests(
        arrival_s=np.arange(31) / 2, prompt_tokens=np.where(np.arange(31) == 4, 150, 30), output_tokens=np.full(31, 20)
    )

    def served(policy: str) -> int:
        engine = sglang.EngineConfig(
            max_total_num_tokens=400, context_len=380, max_running_requests=64, chunked_prefill_size=64,
            schedule_policy=policy, schedule_conservativeness=0.0,
        )  # fmt: skip
        simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), table)
        simulation.run()
        return simulation.num_finished

    assert served("fcfs") == 31
    with pytest.raises(StalledError, match="SGLang's server ends there; with shortest-prefill-first, shorter prompts"):
        served("shortest-prefill-first")


def test_a_prompt_that_sglang_rejects_is_refused_before_the_run() -> None:
    case = simulated_case(0, 0)
    with pytest.raises(ValueError, match=r"prompts do not fit the .* tokens that SGLang takes"):
        simulation_of(replace(case, engine=replace(case.engine, context_len=20)))


def test_clients_that_give_up_are_refused() -> None:
    case = simulated_case(0, 0)
    engine, table = case.engine, table_of(case)
    count = table.num_requests
    never = np.full(count, np.inf)
    waits = Waits(
        patience_s=never, timeout_s=never, backoff_s=np.zeros((0, count)), resumes=np.full(count, -1, np.int32)
    )
    times = constant_step_times(STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=64)
    with pytest.raises(ValueError, match=r"clients' patience .* is not simulated with SGLang"):
        Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), with_waits(table, waits))
