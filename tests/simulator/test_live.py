"""A fleet that takes requests while it runs gives the token times of one that knew them all before."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engines.vllm.connectors.host_tier import HostTier
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.live import LiveFleet
from simulator.simulation import Simulation
from tests.simulator.random_cases import Case, cases, random_step_times, random_table
from workloads.requests import NO_PREDECESSOR, RequestTable


@st.composite
def open_cases(draw: st.DrawFn) -> Case:
    """A fleet, and requests in the order of arrival, each at a time of its own."""
    case = draw(cases(max_requests=20))
    table = case.table
    rows = np.argsort(np.where(np.isnan(table.arrival_s), 0, table.arrival_s), kind="stable")
    named = ("prompt_tokens", "output_tokens", "priority", "span_start", "span_count")
    ordered = {name: getattr(table, name)[rows] for name in named}
    return Case(
        case.fleet,
        replace(
            table,
            **ordered,
            arrival_s=np.sort(np.nan_to_num(table.arrival_s)),
            follows=np.full(table.num_requests, NO_PREDECESSOR),
            think_s=np.zeros(table.num_requests),
        ),
    )


def spans(table: RequestTable, row: int) -> list[tuple[int, int]]:
    places = range(table.span_start[row], table.span_start[row] + table.span_count[row])
    return [(int(table.span_content[place]), int(table.span_end[place])) for place in places]


def send(live: LiveFleet, table: RequestTable, row: int) -> int:
    found = live.submit(
        float(table.arrival_s[row]),
        int(table.prompt_tokens[row]),
        int(table.output_tokens[row]),
        spans(table, row),
        priority=int(table.priority[row]),
    )
    assert found is not None
    return found


def token_times(fleet: Fleet, table: RequestTable, *, most: int) -> list[list[float]]:
    """When each request got its tokens."""
    live, times = LiveFleet(fleet, most=most, seed=3), [[] for _ in range(table.num_requests)]
    owner: dict[int, int] = {}

    def advance(until_s: float) -> None:
        while (instant := live.advance(until_s)) is not None:
            for request, count in zip(instant.requests.tolist(), instant.num_tokens.tolist(), strict=True):
                times[owner[request]] += [instant.time_s] * count

    for row in range(table.num_requests):
        advance(math.nextafter(float(table.arrival_s[row]), -1))
        owner[send(live, table, row)] = row
    advance(math.inf)
    assert live.num_live == 0
    return times


@settings(max_examples=20)
@given(open_cases())
def test_token_times_are_those_of_a_simulation_that_knew_all_requests(case: Case) -> None:
    simulation = Simulation(case.fleet, case.table, seed=3)
    simulation.run()
    times = token_times(case.fleet, case.table, most=case.table.num_requests)
    assert [each[0] for each in times] == simulation.requests["first_token_s"].tolist()
    assert [each[-1] for each in times] == simulation.requests["finish_s"].tolist()
    assert [len(each) for each in times] == simulation.requests["output"].tolist()


@settings(max_examples=20)
@given(open_cases(), st.integers(0, 2**32 - 1))
def test_whoever_hangs_up_leaves_no_block_behind(case: Case, seed: int) -> None:
    rng, table = np.random.default_rng(seed), case.table
    live = LiveFleet(case.fleet, most=table.num_requests)
    for row in range(table.num_requests):
        while live.advance(math.nextafter(float(table.arrival_s[row]), -1)) is not None:
            pass
        request = send(live, table, row)
        if rng.random() < 0.6:
            later_s = float(table.arrival_s[row]) + float(rng.integers(0, 200)) / 1000
            if row + 1 < table.num_requests:
                later_s = min(later_s, float(table.arrival_s[row + 1]))
            while live.advance(later_s) is not None:
                pass
            live.abort(request, later_s)
            live.abort(request, later_s)
    while live.advance() is not None:
        pass
    engines = live.simulation.arrays.replicas
    used = engines["is_laid_out"] == 1
    assert live.num_live == 0
    assert engines["num_running"].tolist() == engines["num_waiting"].tolist() == [0] * len(engines)
    assert (engines["num_free_blocks"] == engines["num_usable_blocks"])[used].all()
    assert live.simulation.arrays.engine_views["outstanding"].tolist() == [0] * len(engines)


@pytest.mark.parametrize("tier", [{}, {"eviction_policy": "arc"}, {"is_shared": True}, {"is_lmcache": True}, None])
def test_numbers_of_ended_requests_serve_later_ones(tier: dict[str, Any] | None) -> None:
    """Three hundred requests, few at once: token times are those of a fleet with a number for each."""
    case = busy_case(np.random.default_rng(5))
    fleet = case.fleet
    if tier is not None:
        host_tier = HostTier(num_chunks=20, chunk_s=2.0**-10, transfer_s=2.0**-9, **tier)
        fleet = fleet.with_pools(lambda pool: replace(pool, engine=replace(pool.engine, host_tier=host_tier)))
    most = 60 if tier is None else 150  # copies take their time
    assert token_times(fleet, case.table, most=most) == token_times(fleet, case.table, most=300)


def busy_case(rng: np.random.Generator) -> Case:
    engine = EngineConfig(
        num_gpu_blocks=120, max_model_len=200, max_num_seqs=16, max_num_batched_tokens=64, block_size=8
    )
    pool = Pool(engine=engine, step_times=random_step_times(rng, 64, 16), num_servers=2)
    table = random_table(rng, 300, kind="open")
    table = replace(table, arrival_s=np.sort(table.arrival_s) * 20)
    return Case(Fleet(pools=(pool,)), table)
