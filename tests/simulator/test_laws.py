"""Laws that hold for every fleet under every load."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from simulator.core import layout
from simulator.core.state import Arrays
from simulator.core.vllm.layout import GOES_ON
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import StepTimes, constant_step_times
from simulator.results import whole_run
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases, in_segments
from workloads.requests import independent_requests

EXAMPLES = 60


def served(case: Case, *, log_steps: bool = False) -> Simulation:
    simulation = Simulation(case.fleet, case.table, log_steps=log_steps)
    simulation.run()
    return simulation


@settings(max_examples=EXAMPLES)
@given(cases())
def test_every_request_finishes_once_with_all_its_tokens(case: Case) -> None:
    requests = served(case).requests
    lengths = [pool.engine.max_model_len for pool in case.fleet.pools for _ in range(pool.num_engines)]
    room = np.array(lengths)[requests["replica"]] - case.table.prompt_tokens
    assert (requests["status"] == layout.FINISHED).all()
    np.testing.assert_array_equal(requests["output"], np.minimum(case.table.output_tokens, room))


@settings(max_examples=EXAMPLES)
@given(cases())
def test_blocks_are_free_or_held_at_every_moment_and_all_free_at_the_end(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table)
    for until_s in np.linspace(0.0, 4.0, 9):
        simulation.run(until_s)
        check_blocks(simulation)
    simulation.run()
    check_blocks(simulation)
    engines = simulation.arrays.replicas
    assert (engines["num_free_blocks"] == engines["num_usable_blocks"]).all()
    assert engines["num_usable_blocks"].sum() == case.fleet.num_usable_blocks


@settings(max_examples=EXAMPLES)
@given(cases().map(in_segments))
def test_segments_of_blocks_are_free_or_held_at_every_moment(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table)
    for until_s in np.linspace(0.0, 4.0, 9):
        simulation.run(until_s)
        check_blocks(simulation)
    simulation.run()
    check_blocks(simulation)
    assert (simulation.arrays.replicas["num_free_blocks"] == simulation.arrays.replicas["num_usable_blocks"]).all()


def check_blocks(simulation: Simulation) -> None:
    """Each engine's free queue holds exactly its unheld blocks; every reference is one request's."""
    arrays = simulation.arrays
    if len(arrays.segments):
        for number, engine in enumerate(arrays.replicas):
            if engine["is_laid_out"]:
                check_segments(arrays, number)
        return
    for number, engine in enumerate(arrays.replicas):
        if not engine["is_laid_out"]:  # no request came: nothing in it was touched
            continue
        places = np.arange(engine["queue_head"], engine["queue_tail"]) & arrays.pools["queue_mask"][engine["pool"]]
        places = places[arrays.free_queue[number, places] != layout.NONE]
        queue = arrays.free_queue[number, places].tolist()
        assert len(set(queue)) == len(queue) == engine["num_free_blocks"]
        cached = arrays.blocks["key_content"][queue] != layout.NONE
        assert cached.sum() == engine["num_cached_free_blocks"]
        assert arrays.queue_places[queue].tolist() == places.tolist()
        own = np.arange(1, 1 + engine["num_usable_blocks"]) + engine["first_block"]
        unheld = own[arrays.blocks["ref_count"][own] == 0]
        assert set(queue) == set(unheld.tolist())
    held = [held_blocks(arrays, request) for request in arrays.requests if request["row"] >= 0]
    references = np.bincount(np.concatenate([*held, np.zeros(0, np.int32)]), minlength=len(arrays.blocks))
    np.testing.assert_array_equal(references, arrays.blocks["ref_count"])


def check_segments(arrays: Arrays, number: int) -> None:
    """An engine's list of free segments is all that nobody holds, its buckets all there are; each hold is a request's.

    With what is held without a hash, all blocks are there; a row's segments follow each other without a gap, lane by
    lane. What goes on a bundle of the list is of the same band as what is before it.
    """
    engine, free = arrays.replicas[number], []
    segment, before = int(engine["queue_head"]), layout.NONE
    while segment != layout.NONE:
        assert arrays.segments["before"][segment] == before
        if arrays.segments["bundle"][segment] == GOES_ON:
            assert group_of(arrays, number, free[-1]) == group_of(arrays, number, segment)
        free.append(segment)
        segment, before = int(arrays.segments["after"][segment]), segment
    assert before == engine["queue_tail"]
    cached = cached_segments(arrays, number)
    assert len(set(cached)) == len(cached)
    of = arrays.segments[cached]
    lengths = (of["end"] - of["first"]) * (of["end_lane"] - of["lane"])
    assert (lengths > 0).all()
    assert set(free) == set(np.array(cached, np.int64)[of["holders"] == 0].tolist())
    assert lengths[of["holders"] == 0].sum() == engine["num_cached_free_blocks"]
    holders, num_unhashed = np.zeros(len(arrays.segments), np.int64), 0
    for request in arrays.requests:
        if request["row"] >= 0 and request["replica"] == number:
            held, unhashed = held_segments(arrays, request)
            np.add.at(holders, list(held), 1)
            num_unhashed += unhashed
    np.testing.assert_array_equal(holders[cached], of["holders"])
    unheld = engine["num_usable_blocks"] - num_unhashed - lengths[of["holders"] > 0].sum()
    assert engine["num_free_blocks"] == unheld >= engine["num_cached_free_blocks"]


def cached_segments(arrays: Arrays, engine: int) -> list[int]:
    cached = []
    num_buckets = arrays.pools["bucket_mask"][arrays.replicas["pool"][engine]] + 1
    for head in arrays.buckets[engine, :num_buckets].tolist():
        segment = head
        while segment != layout.NONE:
            cached.append(segment)
            segment = int(arrays.segments["next_in_bucket"][segment])
    return cached


def group_of(arrays: Arrays, engine: int, segment: int) -> int:
    """The first group of a segment's band."""
    pool = arrays.pools[arrays.replicas["pool"][engine]]
    return int(arrays.segments["key"][segment] % pool["num_groups"])


def held_segments(arrays: Arrays, request: Any) -> tuple[set[int], int]:
    """What a request holds, and how many blocks without a hash."""
    pool = arrays.pools[arrays.replicas["pool"][request["replica"]]]
    held: set[int] = set()
    group = num_unhashed = 0
    while group < pool["num_groups"]:
        lanes = int(arrays.groups["lanes"][pool["first_group"] + group])
        for lane in range(lanes):
            of_lane, unhashed = held_of_lane(arrays, request, group, lane)
            assert len(set(of_lane)) == len(of_lane)
            held.update(of_lane)
            num_unhashed += unhashed
        group += lanes
    return held, num_unhashed


def held_of_lane(arrays: Arrays, request: Any, group: int, lane: int) -> tuple[list[int], int]:
    """What a request holds in a lane of a band, from its last block to its first; and how many without a hash."""
    pool = arrays.pools[arrays.replicas["pool"][request["replica"]]]
    row = arrays.tables[request["row"], group * (2 + 2 * int(pool["row_blocks"])) :]
    places = row[2 + 2 * int(row[1]) : 2 + 2 * int(row[0])].reshape(-1, 2).tolist()
    places = [(segment, end) for segment, end in places if segment == layout.NONE or has_lane(arrays, segment, lane)]
    start, end = int(arrays.table_starts[request["row"], group]), int(request["num_blocks"])
    held, num_unhashed = [], 0
    for number in range(len(places) - 1, -1, -1):
        segment, place_end = places[number]
        num_unhashed += end - place_end
        begin, end = places[number - 1][1] if number else start, place_end
        if segment == layout.NONE:
            num_unhashed += end - begin
            end = begin
        while end > begin:
            of = arrays.segments[segment]
            assert of["end"] == end and of["key"] % pool["num_groups"] == group
            assert has_lane(arrays, segment, lane)
            held.append(segment)
            segment, end = int(of["before"]), int(of["first"])
        assert end == begin
    return held, num_unhashed + end - start


def has_lane(arrays: Arrays, segment: int, lane: int) -> bool:
    of = arrays.segments[segment]
    return bool(of["lane"] <= lane < of["end_lane"])


def held_blocks(arrays: Arrays, request: Any) -> NDArray[np.int32]:
    """A request's block table, all groups behind each other, without gaps."""
    pool, row = arrays.pools[arrays.replicas["pool"][request["replica"]]], request["row"]
    groups = arrays.groups["block_ratio"][pool["first_group"] : pool["first_group"] + pool["num_groups"]]
    blocks = np.concatenate(
        [
            arrays.tables[row, place * pool["row_blocks"] :][
                arrays.table_starts[row, place] : -(-request["num_blocks"] // ratio)
            ]
            for place, ratio in enumerate(groups.tolist())
        ]
    )
    return blocks[blocks != layout.NONE]


@settings(max_examples=EXAMPLES)
@given(cases())
def test_nothing_happens_before_its_cause(case: Case) -> None:
    requests, table = served(case).requests, case.table
    times = [pool.step_times for pool in case.fleet.pools for _ in range(pool.num_engines)]
    of = [times[replica] for replica in requests["replica"]]
    tokens = zip(of, table.prompt_tokens.tolist(), strict=True)
    ingress_s = np.array([t.ingress_request_s + t.ingress_token_s * prompt + t.ingress_s for t, prompt in tokens])
    assert (requests["scheduled_s"] >= requests["arrival_s"] + ingress_s).all()
    assert (requests["first_token_s"] > requests["scheduled_s"]).all()
    assert (requests["finish_s"] >= requests["first_token_s"]).all()
    followers = np.flatnonzero(table.follows >= 0)
    before = requests["finish_s"][table.follows[followers]]
    np.testing.assert_array_equal(requests["arrival_s"][followers], before + table.think_s[followers])


@settings(max_examples=EXAMPLES)
@given(cases())
def test_the_same_input_gives_the_same_output(case: Case) -> None:
    np.testing.assert_array_equal(served(case).requests, served(case).requests)


@settings(max_examples=EXAMPLES)
@given(cases())
def test_stopping_on_the_way_changes_nothing(case: Case) -> None:
    paused = Simulation(case.fleet, case.table)
    for until_s in (0.3, 0.7, 0.7, 3.1):
        paused.run(until_s)
    paused.run()
    np.testing.assert_array_equal(paused.requests, served(case).requests)


@settings(max_examples=EXAMPLES)
@given(cases())
def test_all_times_doubled_gives_all_results_doubled(case: Case) -> None:
    slow_fleet = case.fleet.with_pools(lambda pool: replace(pool, step_times=times_doubled(pool.step_times)))
    slow_table = replace(case.table, arrival_s=2 * case.table.arrival_s, think_s=2 * case.table.think_s)
    once, twice = served(case).requests, served(Case(slow_fleet, slow_table)).requests
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s"):
        np.testing.assert_array_equal(twice[name], 2 * once[name])
    for name in ("output", "preemptions", "cached_tokens", "replica"):
        np.testing.assert_array_equal(twice[name], once[name])


def times_doubled(times: StepTimes) -> StepTimes:
    kept = ("window", "shared", "cold_stalls")  # no times
    values = {name: getattr(times, name) for name in times.__dataclass_fields__ if name not in kept}
    doubled = {name: 2 * value for name, value in values.items()}
    return replace(times, **doubled, shared=lambda tokens: 2 * times.shared(tokens))


@settings(max_examples=EXAMPLES)
@given(cases(max_replicas=1))
def test_no_step_exceeds_the_token_budget_or_max_num_seqs(case: Case) -> None:
    steps = served(case, log_steps=True).steps
    engine = case.fleet.pools[0].engine
    assert all(sum(step.scheduled.values()) <= engine.max_num_batched_tokens for step in steps)
    assert all(step.running <= engine.max_num_seqs for step in steps)
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    assert sorted(request for step in steps for request in step.finished) == list(range(case.table.num_requests))


@settings(max_examples=EXAMPLES)
@given(cases(max_replicas=1))
def test_scheduled_tokens_are_what_the_requests_had_to_compute(case: Case) -> None:
    """Prompt and output, less the prefix hit and the last token, where nothing was preempted or drafted in vain."""
    simulation = served(case, log_steps=True)
    computed = np.zeros(case.table.num_requests, np.int64)
    for step in simulation.steps:
        for request, tokens in step.scheduled.items():
            computed[request] += tokens
    requests = simulation.requests
    expected = requests["prompt"] + requests["output"] - 1 - requests["cached_tokens"]
    untouched = requests["preemptions"] == 0
    if case.fleet.pools[0].engine.speculation is None:
        np.testing.assert_array_equal(computed[untouched], expected[untouched])
    assert (computed[untouched] >= expected[untouched]).all()
    assert (computed[~untouched] >= expected[~untouched]).all() or case.fleet.pools[0].engine.enable_prefix_caching


@settings(max_examples=EXAMPLES)
@given(cases())
def test_littles_law_holds_exactly_on_whole_runs(case: Case) -> None:
    """The core's integrals of running and waiting equal the requests' stays in the engine."""

    def without_front_end(pool: Pool) -> Pool:
        times = replace(pool.step_times, ingress_request_s=0.0, ingress_token_s=0.0, ingress_s=0.0)
        return replace(pool, step_times=times)

    simulation = served(Case(case.fleet.with_pools(without_front_end), case.table))
    requests = simulation.requests
    stays_s = requests["finish_s"] - requests["arrival_s"]
    integral_s = (simulation.totals["running_s"] + simulation.totals["waiting_s"]).sum()
    assert integral_s == pytest.approx(stays_s.sum(), rel=1e-12)
    result = whole_run(simulation)
    law = result.requests_per_s * (requests["finish_s"] - requests["arrival_s"]).mean()
    assert result.in_flight_mean == pytest.approx(law, rel=1e-12)


def test_littles_law_holds_on_windows_within_the_boundary_terms() -> None:
    rng = np.random.default_rng(5)
    count = 4000
    table = independent_requests(
        arrival_s=np.cumsum(rng.exponential(0.05, count)),
        prompt_tokens=rng.integers(1, 300, count),
        output_tokens=rng.integers(1, 60, count),
    )
    engine = EngineConfig(num_gpu_blocks=2000, max_model_len=512, max_num_seqs=32, max_num_batched_tokens=256)
    times = constant_step_times(0.01, max_num_batched_tokens=256, max_num_seqs=32)
    simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), table)
    simulation.run(50.0)
    before = (simulation.totals["running_s"] + simulation.totals["waiting_s"]).sum()
    simulation.run(150.0)
    in_flight = ((simulation.totals["running_s"] + simulation.totals["waiting_s"]).sum() - before) / 100.0
    requests = simulation.requests
    left = requests[(requests["finish_s"] >= 50.0) & (requests["finish_s"] < 150.0)]
    stays_s = left["finish_s"] - left["arrival_s"]
    straddling = requests[(requests["arrival_s"] < 150.0) & ~(requests["finish_s"] < 150.0)]
    boundary = (len(straddling) * stays_s.max() + stays_s[left["arrival_s"] < 50.0].sum()) / 100.0
    assert abs(in_flight - stays_s.sum() / 100.0) <= boundary


def test_a_request_that_can_never_fit_is_named_instead_of_waited_for() -> None:
    table = independent_requests(arrival_s=[0.0, 0.0], prompt_tokens=[10, 500], output_tokens=[5, 5])
    engine = EngineConfig(num_gpu_blocks=11, max_model_len=1024, max_num_seqs=4, max_num_batched_tokens=64)
    times = constant_step_times(0.01, max_num_batched_tokens=64, max_num_seqs=4)
    with pytest.raises(ValueError, match="request 1 has 500 tokens and needs 32 KV blocks, but the pool has 10"):
        Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), table).run()
