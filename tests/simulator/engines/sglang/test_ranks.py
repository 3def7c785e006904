"""Ranks of an SGLang server under attention data parallelism: the core decides as the readable schedulers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conformance.cases.sglang_cases import STEP_S
from conformance.probing import Record
from conformance.sglang_ranks import OF_CASES, OurServer, RanksCase, ranks_case
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from tests.simulator.engines.sglang.side_pools import simulated
from tests.simulator.engines.sglang.test_core import assert_same_decisions, table_of
from tests.simulator.engines.sglang.test_drafts import ending

seeds = st.integers(0, 10_000), st.integers(0, 40 * len(OF_CASES))


def simulated_case(seed: int, number: int) -> RanksCase:
    """A random case of what the core simulates."""
    asked = ranks_case(seed, number)
    case = simulated(asked.case)
    return replace(asked, case=ending(case) if case.engine.speculation else case)


def simulation_of(asked: RanksCase) -> Simulation:
    engine, table = asked.case.engine, table_of(asked.case)
    times = constant_step_times(
        STEP_S, max_num_batched_tokens=engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs
    )
    pool = Pool(engine=engine, step_times=times, data_parallel_size=asked.ranks)
    simulation = Simulation(Fleet(pools=(pool,), router="round-robin"), table, log_steps=True)
    simulation.arrays.sglang.requests["max_new_tokens"] = [row.max_new_tokens for row in asked.case.requests]
    return simulation


def assert_same_batches(seed: int, number: int) -> None:
    asked = simulated_case(seed, number)
    server = OurServer(asked)
    server.run()
    finished = [row for records in server.records for batch in records for row in batch["finished"]]
    assume(not server.crashed and len(finished) == len(asked.case.requests))
    simulation = simulation_of(asked)
    simulation.run()
    for rank, records in enumerate(server.records):
        steps = [step for step in simulation.steps if step.replica == rank]
        assert_same_decisions(asked.case, steps, records)
    ratios = [scheduler.new_token_ratio.current for scheduler in server.ranks]
    np.testing.assert_array_equal(simulation.arrays.sglang.engines["ratio"], ratios)


@settings(max_examples=8)
@given(*seeds)
def test_every_batch_has_the_same_decisions(seed: int, number: int) -> None:
    assert_same_batches(seed, number)


@pytest.mark.slow
@settings(max_examples=200)
@given(*seeds)
def test_the_same_on_many_more_cases(seed: int, number: int) -> None:
    assert_same_batches(seed, number)


def batches_of(asked: RanksCase) -> list[list[Record]]:
    server = OurServer(asked)
    server.run()
    return server.records


def test_with_drafts_no_rank_decodes_while_another_prefills() -> None:
    """Each case has turns in which a rank waits; without drafts none does."""
    drafting = [ranks_case(0, number) for number in range(2, 40, len(OF_CASES))]
    assert all(case.case.engine.speculation for case in drafting)
    servers = [OurServer(case) for case in drafting]
    for server in servers:
        server.run()
    assert sum(server.num_waits > 0 for server in servers) >= len(servers) / 2
    plain = OurServer(ranks_case(0, 0))
    plain.run()
    assert plain.num_waits == 0
