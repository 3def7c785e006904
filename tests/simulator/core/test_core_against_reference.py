"""The compiled core decides exactly as the readable reference does."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from conformance.reference.vllm.requests import Plan
from simulator.core import layout
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import Speculation
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.operation import Operation, Operations
from simulator.simulation import Simulation
from tests.simulator.core.simpy_fleet import run_simpy_fleet
from tests.simulator.random_cases import (
    Case,
    cases,
    gateway_cases,
    impatient_cases,
    in_segments,
    operations,
    random_step_times,
    random_table,
)

COMPARED = (
    "arrival_s",
    "scheduled_s",
    "first_token_s",
    "finish_s",
    "output",
    "preemptions",
    "cached_tokens",
    "replica",
)
ENDS = (*COMPARED, "status", "computed")  # of requests that are cancelled

SEED = 3  # of the router


def assert_same(case: Case) -> None:
    expected = run_simpy_fleet(case.fleet, case.table, seed=SEED)
    simulation = Simulation(case.fleet, case.table, seed=SEED)
    simulation.run()
    for name in COMPARED:
        np.testing.assert_array_equal(simulation.requests[name], expected[name], err_msg=name)
    assert np.isfinite(expected["finish_s"]).all()


@settings(max_examples=40)
@given(cases())
def test_every_request_has_the_same_times_preemptions_prefix_hits_and_replica(case: Case) -> None:
    assert_same(case)


@settings(max_examples=120)
@given(cases().map(in_segments))
def test_segments_of_blocks_are_found_held_and_evicted_as_single_blocks_are(case: Case) -> None:
    assert len(Simulation(case.fleet, case.table).arrays.segments)
    assert_same(case)


@pytest.mark.slow
@settings(max_examples=500)
@given(cases(max_requests=150, max_replicas=2).map(in_segments))
def test_the_same_segments_on_many_more_cases(case: Case) -> None:
    assert_same(case)


def assert_same_ends(case: Case) -> None:
    expected = run_simpy_fleet(case.fleet, case.table, seed=SEED)
    simulation = Simulation(case.fleet, case.table, seed=SEED)
    simulation.run()
    ended = simulation.requests["status"] >= layout.FINISHED
    for name in ENDS:
        is_of_all = name not in ("computed", "cached_tokens")  # of those that never came, the twin says nothing
        chosen = slice(None) if is_of_all else ended
        np.testing.assert_array_equal(simulation.requests[name][chosen], expected[name][chosen], err_msg=name)


@settings(max_examples=40)
@given(impatient_cases())
def test_every_attempt_of_impatient_clients_has_the_same_times_and_the_same_end(case: Case) -> None:
    assert_same_ends(case)


@settings(max_examples=30)
@given(gateway_cases())
def test_every_request_passes_waits_at_or_is_rejected_by_the_gateway_alike(case: Case) -> None:
    assert_same_ends(case)


@settings(max_examples=20)
@given(gateway_cases(), operations())
def test_requests_of_engines_that_are_gone_come_back_to_the_gateway_alike(case: Case, given: Operations) -> None:
    assert_same_when_operated(case, given)


@pytest.mark.slow
@settings(max_examples=500)
@given(gateway_cases(max_requests=150, max_replicas=4), operations())
def test_the_same_operated_fleets_on_many_more_cases(case: Case, given: Operations) -> None:
    assert_same_when_operated(case, given)


def assert_same_when_operated(case: Case, given: Operations) -> None:
    """Crashes and updates over fleets of engines: with a queue, quotas, or neither."""
    pools = tuple(replace(pool, data_parallel_size=1) for pool in case.fleet.pools)
    fleet = replace(case.fleet, pools=pools)
    given = replace(given, min_replicas=fleet.num_engines, max_replicas=fleet.num_engines)
    expected = run_simpy_fleet(fleet, case.table, seed=SEED, operations=given)
    operation = Operation(Simulation(fleet, case.table, seed=SEED), given)
    operation.run()
    found = operation.simulation.requests
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s", "replica", "preemptions", "status"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    whole = found["status"] == layout.FINISHED
    for name in ("output", "cached_tokens"):
        np.testing.assert_array_equal(found[name][whole], expected[name][whole], err_msg=name)


@pytest.mark.slow
@settings(max_examples=500)
@given(gateway_cases(max_requests=150, max_replicas=4))
def test_the_same_gateway_on_many_more_cases(case: Case) -> None:
    assert_same_ends(case)


@pytest.mark.slow
@settings(max_examples=300)
@given(impatient_cases(max_requests=150, max_replicas=4))
def test_the_same_ends_on_many_more_cases(case: Case) -> None:
    assert_same_ends(case)


@pytest.mark.slow
@settings(max_examples=500)
@given(cases(max_requests=150, max_replicas=4))
def test_the_same_on_many_more_cases(case: Case) -> None:
    assert_same(case)


@settings(max_examples=25)
@given(cases(max_replicas=1))
def test_every_step_has_the_same_decisions(case: Case) -> None:
    """Scheduled tokens, preemptions, free blocks, running, waiting, finished: call by call."""
    simulation = Simulation(case.fleet, case.table, log_steps=True)
    simulation.run()
    expected: list[Plan] = []
    run_simpy_fleet(case.fleet, case.table, on_plan=expected.append)
    assert len(simulation.steps) == len(expected)
    for ours, plan in zip(simulation.steps, expected, strict=True):
        assert ours.step == plan.step
        assert ours.scheduled == {request.id: tokens for request, tokens in plan.num_scheduled_tokens.items()}
        assert ours.preempted == [request.id for request in plan.preempted]
        assert (ours.free_blocks, ours.running, ours.waiting) == (plan.free_blocks, plan.num_running, plan.num_waiting)


@pytest.mark.slow
def test_the_same_source_without_the_compiler_gives_the_same_results() -> None:
    """`NUMBA_DISABLE_JIT=1` is how the core is debugged; it must stay the same program."""
    found = {}
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        code = "from tests.simulator.core.test_core_against_reference import digest; print(digest())"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        found[disabled] = run.stdout
    assert found["0"] == found["1"]


def digest() -> str:
    """All results of a few fixed loads, in one word."""
    total = hashlib.sha256()
    for seed, kind in enumerate(("open", "turns", "shared", "turns")):
        drafts = Speculation(method="ngram", num_speculative_tokens=3, acceptance_rate=0.6) if seed == 3 else None
        rng = np.random.default_rng(seed)
        table = random_table(rng, 40, kind=kind)
        longest = int((table.prompt_tokens + table.output_tokens).max())
        engine = EngineConfig(
            num_gpu_blocks=longest // 8 + 6,
            max_model_len=longest + 1,
            max_num_seqs=5,
            max_num_batched_tokens=64,
            block_size=8,
            speculation=drafts,
        )
        simulation = Simulation(
            Fleet(pools=(Pool(engine=engine, step_times=random_step_times(rng, 64, 5), num_servers=2),)), table
        )
        simulation.run()
        for name in COMPARED:
            total.update(simulation.requests[name].tobytes())
    return total.hexdigest()
