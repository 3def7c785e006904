"""Fleets that grow, shrink and fail while they serve: what becomes of every request, replica and GPU-hour."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.core import layout
from simulator.fleet.events import Event, Extent, read_event
from simulator.fleet.fleet import Fleet
from simulator.fleet.flow_control import CONCURRENCY_DETECTOR, FlowControl
from simulator.fleet.operation import Operation, Operations
from simulator.fleet.replicas import State
from simulator.fleet.router import router_names
from simulator.fleet.scaler import Observed
from simulator.simulation import Simulation
from tests.simulator.fleet.test_pools import pool_of
from tests.simulator.fleet.test_scalers import EVERY
from tests.simulator.random_cases import Case, cases, gateway_cases, impatient_cases
from workloads.requests import RequestTable, independent_requests

LAST_S = 1e6
KINDS = ("crash", "node", "zone", "update")


def operated(fleet: Fleet, table: RequestTable, *, until_s: float = LAST_S, **given: Any) -> Operation:
    """Each start takes 7 s on a new node, 3 s on another."""
    values: dict[str, Any] = {
        "min_replicas": 1,
        "max_replicas": fleet.num_engines,
        "start_s": lambda new: 7.0 if new else 3.0,
    }
    operation = Operation(Simulation(fleet, table, seed=1), Operations(**(values | given)))
    operation.run(until_s)
    return operation


def steady(count: int, gap_s: float, *, tokens: int = 20) -> RequestTable:
    return independent_requests(
        arrival_s=np.arange(count) * gap_s, prompt_tokens=[20] * count, output_tokens=[tokens] * count
    )


def fleet_of(servers: int, step_s: float = 0.05, **more: Any) -> Fleet:
    return Fleet(pools=(pool_of(step_s, 100, num_servers=servers, **more),))


def statuses(operation: Operation) -> dict[int, int]:
    values, counts = np.unique(operation.simulation.requests["status"], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


# -- laws


@st.composite
def events(draw: st.DrawFn) -> Event:
    extent = Extent(replicas=draw(st.integers(1, 3)), restarts_after_s=draw(st.sampled_from([0.0, 1.5])))
    return Event(kind=draw(st.sampled_from(KINDS)), time_s=draw(st.integers(0, 40)) / 4, extent=extent)


def check(operation: Operation) -> None:
    """Every law that holds at the end of a run to its end."""
    simulation, requests = operation.simulation, operation.simulation.requests
    arrived = requests[requests["status"] != layout.NOT_ARRIVED]
    ended = arrived[arrived["status"] >= layout.FINISHED]
    left = arrived[arrived["status"] < layout.FINISHED]
    waits = np.isin(left["status"], (layout.AT_GATEWAY, layout.HELD))
    assert waits.all(), "what has not ended waits for a fleet that never comes"
    assert len(arrived) == int(simulation.arrays.cursor["num_arrived"][0])
    assert len(ended) == simulation.num_finished
    finished = requests[requests["status"] == layout.FINISHED]
    assert (finished["output"] == np.minimum(finished["max_tokens"], finished["output"])).all()
    assert (finished["first_token_s"] >= finished["scheduled_s"]).all()
    assert (finished["scheduled_s"] >= finished["arrival_s"]).all()
    assert (finished["finish_s"] >= finished["first_token_s"]).all()
    engines = simulation.arrays.replicas
    assert not engines["num_running"].any()
    assert not engines["num_waiting"].any()
    assert (engines["num_free_blocks"] == engines["num_usable_blocks"]).all(), "no block is held by nobody"
    assert not simulation.arrays.engine_views["outstanding"].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25)
@given(case=impatient_cases(max_replicas=4), what=st.lists(events(), max_size=3), retries=st.booleans())
def test_requests_are_conserved_and_none_is_lost_but_by_rule(
    name: str, case: Case, what: list[Event], retries: bool
) -> None:
    pools = tuple(replace(pool, data_parallel_size=1) for pool in case.fleet.pools)
    fleet = replace(case.fleet, pools=pools)
    operation = operated(fleet, case.table, scaler=name, events=tuple(what), retries=retries, grace_s=0.5, until_s=2000)
    check(operation)
    lost = statuses(operation).get(layout.LOST, 0)
    assert lost == (0 if retries else operation.replicas.num_taken)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25)
@given(case=gateway_cases(max_replicas=4), what=st.lists(events(), max_size=3), retries=st.booleans())
def test_behind_a_gateway_s_queue_none_is_lost_but_by_rule(
    name: str, case: Case, what: list[Event], retries: bool
) -> None:
    pools = tuple(replace(pool, data_parallel_size=1) for pool in case.fleet.pools)
    given: dict[str, Any] = {"scaler": name, "events": tuple(what), "retries": retries, "grace_s": 0.5, "until_s": 200}
    operation, again = (operated(replace(case.fleet, pools=pools), case.table, **given) for _ in range(2))
    check(operation)
    assert statuses(operation).get(layout.LOST, 0) == (0 if retries else operation.replicas.num_taken)
    assert again.simulation.requests.tobytes() == operation.simulation.requests.tobytes()


@pytest.mark.slow
@settings(max_examples=25)
@given(case=cases(max_replicas=4), what=st.lists(events(), max_size=4), retries=st.booleans())
def test_a_fixed_fleet_that_fails_answers_or_loses_every_request(case: Case, what: list[Event], retries: bool) -> None:
    pools = tuple(replace(pool, data_parallel_size=1) for pool in case.fleet.pools)
    fleet = replace(case.fleet, pools=pools)
    operation = operated(
        fleet, case.table, min_replicas=fleet.num_engines, events=tuple(what), retries=retries, until_s=2000
    )
    check(operation)
    again = operated(
        fleet, case.table, min_replicas=fleet.num_engines, events=tuple(what), retries=retries, until_s=2000
    )
    assert again.simulation.requests.tobytes() == operation.simulation.requests.tobytes()
    assert again.history == operation.history
    served = statuses(operation)
    assert served.get(layout.LOST, 0) == (0 if retries else operation.replicas.num_taken)
    assert layout.AT_GATEWAY not in served, "whoever fails starts again"


@settings(max_examples=10)
@given(case=cases(max_replicas=3))
def test_a_fleet_that_is_operated_by_nobody_serves_as_it_would_alone(case: Case) -> None:
    alone = Simulation(case.fleet, case.table, seed=1)
    alone.run()
    operation = operated(case.fleet, case.table, min_replicas=case.fleet.num_engines, until_s=math.inf)
    np.testing.assert_array_equal(operation.simulation.requests, alone.requests)
    np.testing.assert_array_equal(operation.simulation.totals, alone.totals)


@pytest.mark.parametrize("router", router_names())
def test_no_request_goes_to_a_replica_that_is_not_ready(router: str) -> None:
    sends_to_ready_replicas_alone(router, "hpa:target_average_value=2")


def sends_to_ready_replicas_alone(router: str, scaler: str) -> None:
    """Looked at every half a second, while replicas come, go and fail."""
    fleet, sent = replace(fleet_of(4), router=router), []
    simulation = Simulation(fleet, steady(300, 0.1), seed=1)
    operation = Operation(
        simulation,
        Operations(
            min_replicas=1,
            max_replicas=4,
            scaler=scaler,
            start_s=lambda _: 5.0,
            events=(read_event("crash@21s:replicas=2"), read_event("update@25s")),
        ),
    )
    before = np.zeros(4, np.int64)

    def look() -> Any:
        nonlocal before
        while True:
            ready = [state is State.READY for state in operation.replicas.states]
            now = np.bincount(simulation.requests["replica"][simulation.requests["status"] > 0], minlength=4)
            sent.append((ready, now - before))
            before = now
            yield operation.plane.env.timeout(0.5)

    operation.plane.env.process(look())
    operation.run()
    assert len(operation.history) > 5
    for (was_ready, _), (ready, went) in pairwise(sent):
        assert all(here or there for here, there, count in zip(was_ready, ready, went, strict=True) if count > 0)


# -- one thing at a time


def test_a_replica_is_ready_after_its_start_and_its_gpu_is_paid_for_from_the_wish_on() -> None:
    operation = operated(fleet_of(2), steady(100, 0.2), scaler="schedule:0h=2", until_s=100)
    assert [(count.time_s, count.ready, count.starting) for count in operation.history] == [
        (0, 1, 0), (60, 1, 1), (67, 2, 0),
    ][: len(operation.history)]  # fmt: skip


def test_gpu_time_is_the_integral_of_replicas_held() -> None:
    operation = operated(
        fleet_of(3), steady(2000, 0.1), scaler="hpa:target_average_value=4,sync_period=5s", until_s=250
    )
    times = np.linspace(0, 250, 250_001)
    starts = np.array([count.time_s for count in operation.history])
    held = np.array([count.held for count in operation.history])[np.searchsorted(starts, times, side="right") - 1]
    assert operation.replicas.held_s(250.0) == pytest.approx(held[:-1].mean() * 250, rel=1e-4)
    assert operation.replicas.held_s(250.0) <= 750


def test_a_later_replica_on_a_node_starts_sooner_than_the_first() -> None:
    given: dict[str, Any] = {"scaler": "schedule:0h=4", "initial_replicas": 1, "replicas_per_node": 2}
    operation = operated(fleet_of(4), steady(400, 0.5), **given)
    assert [(count.time_s, count.ready) for count in operation.history] == [(0, 1), (60, 1), (63, 2), (67, 4)]


def test_a_crash_loses_what_ran_there_and_the_gateway_sends_it_again() -> None:
    table = steady(40, 0.05, tokens=100)
    kept, lost = (
        operated(fleet_of(2), table, min_replicas=2, events=(read_event("crash@3s"),), retries=retries)
        for retries in (True, False)
    )
    assert kept.replicas.num_taken == lost.replicas.num_taken > 5
    assert statuses(kept) == {layout.FINISHED: 40}
    assert statuses(lost) == {layout.FINISHED: 40 - lost.replicas.num_taken, layout.LOST: lost.replicas.num_taken}
    again = kept.simulation.requests
    moved = again[(again["arrival_s"] < 3) & (again["first_token_s"] > 3)]
    assert (moved["replica"] == 1).all()
    assert (moved["output"] == 100).all(), "it begins from its start"
    assert [(count.time_s, count.ready, count.starting) for count in kept.history] == [(0, 2, 0), (3, 1, 1), (6, 2, 0)]


def test_a_restarted_engine_has_an_empty_cache() -> None:
    table = independent_requests(arrival_s=[0.0, 5.0, 30.0, 35.0], prompt_tokens=[64] * 4, output_tokens=[4] * 4)
    table = replace(table, span_content=np.zeros_like(table.span_content))
    fleet = Fleet(pools=(pool_of(0.05, 100),))
    operation = operated(fleet, table, events=(read_event("crash@10s"),))
    assert operation.simulation.requests["cached_tokens"].tolist() == [0, 48, 0, 48]


def test_requests_wait_at_the_gateway_while_no_replica_is_ready() -> None:
    operation = operated(fleet_of(1), steady(20, 0.5), events=(read_event("node@2s"),))
    requests = operation.simulation.requests
    held = requests[(requests["arrival_s"] > 2) & (requests["arrival_s"] < 9)]
    assert len(held) > 10
    assert held["scheduled_s"].min() >= 9.0, "a new node takes 7 s"
    assert statuses(operation) == {layout.FINISHED: 20}


def held_fleet(servers: int, **given: Any) -> Fleet:
    return replace(fleet_of(servers), flow_control=FlowControl(detector=CONCURRENCY_DETECTOR, **given))


def test_with_a_queue_requests_wait_in_it_while_no_replica_is_ready_and_do_not_come_all_at_once() -> None:
    control: dict[str, Any] = {"max_concurrency": 3, "default_request_ttl_s": 0, "no_endpoint_request_ttl_s": 0}
    simulation = Simulation(held_fleet(1, **control), steady(40, 0.5), seed=1)
    given = Operations(min_replicas=1, max_replicas=1, start_s=lambda _: 7.0, events=(read_event("node@2.1s"),))
    operation = Operation(simulation, given)
    most_held = 0
    for now_s in np.arange(0.0, 120.0, 0.1):
        operation.run(float(now_s))
        assert simulation.arrays.engine_views["outstanding"][0] <= 3
        held = simulation.requests["status"] == layout.HELD
        assert operation.replicas.num_held_requests == held.sum()
        most_held = max(most_held, int(held.sum()))
    assert operation.replicas.num_taken > 0
    assert most_held > 14, "those of seven seconds, and what ran"
    assert statuses(operation) == {layout.FINISHED: 40}


def test_while_no_replica_is_ready_another_time_to_live_counts_and_each_change_begins_it_anew() -> None:
    """Nobody is ready from 10 to 17 s; the queue is swept each second."""
    times = {"default_request_ttl_s": 60, "no_endpoint_request_ttl_s": 2}
    operation = operated(held_fleet(1, **times), steady(100, 0.25), events=(read_event("node@10s"),))
    requests = operation.simulation.requests
    rejected_s = requests["arrival_s"][requests["status"] == layout.REJECTED]
    assert rejected_s.max() <= 17 - 2
    assert rejected_s.max() > 17 - 2 - 1 - 0.25
    assert (requests["finish_s"] - requests["arrival_s"])[requests["status"] == layout.REJECTED].max() <= 2 + 1 + 0.25
    assert set(statuses(operation)) == {layout.FINISHED, layout.REJECTED}
    for_ever = operated(
        held_fleet(1, default_request_ttl_s=6, no_endpoint_request_ttl_s=0),
        steady(100, 0.25),
        events=(read_event("node@10s"),),
    )
    assert statuses(for_ever) == {layout.FINISHED: 100}, "what waited seven seconds is not too old when one is ready"


def test_an_autoscaler_sees_the_gateway_s_queue() -> None:
    seen: list[tuple[int, float]] = []

    class Looks:
        period_s = 2.0

        def desired_replicas(self, found: Observed) -> int:
            seen.append((found.held, found.in_flight_mean))
            return 1

    operated(held_fleet(1, max_concurrency=2, default_request_ttl_s=0), steady(60, 0.1), scaler=Looks)
    most = max(seen)
    assert most[0] > 20
    assert most[1] > most[0] / 2, "the mean over two seconds counts what waits at the gateway"
    grown = operated(held_fleet(4, max_concurrency=2), steady(60, 0.1), scaler="keda")
    assert max(count.ready for count in grown.history) > 1, "no engine ever has a queue of its own"


def test_a_draining_replica_finishes_what_it_has_within_its_grace_period() -> None:
    fleet, table = fleet_of(2), steady(30, 0.1, tokens=100)  # 5 s each
    update = (read_event("update@3s"),)
    patient, hasty = (operated(fleet, table, min_replicas=2, events=update, grace_s=grace_s) for grace_s in (30.0, 1.0))
    assert patient.replicas.num_taken == 0
    assert hasty.replicas.num_taken > 0
    assert statuses(patient) == statuses(hasty) == {layout.FINISHED: 30}


def test_an_update_takes_one_replica_after_the_other() -> None:
    operation = operated(fleet_of(3), steady(1000, 0.1), min_replicas=3, events=(read_event("update@5s"),))
    assert min(count.ready for count in operation.history) == 2
    assert operation.history[-1].ready == 3
    assert sum(count.starting for count in operation.history) == 3
    assert statuses(operation) == {layout.FINISHED: 1000}


def test_a_zone_takes_several_replicas_at_once() -> None:
    operation = operated(fleet_of(5), steady(300, 0.1), min_replicas=5, events=(read_event("zone@5s:replicas=3"),))
    assert [(count.time_s, count.ready, count.starting) for count in operation.history] == [
        (0, 5, 0), (5, 2, 3), (12, 5, 0),
    ]  # fmt: skip


def test_sessions_go_on_after_a_lost_request() -> None:
    follows = np.array([-1, 0, 1])
    table = replace(steady(3, 1.0), follows=follows, arrival_s=np.array([0.0, np.nan, np.nan]))
    operation = operated(fleet_of(2), table, min_replicas=2, events=(read_event("crash@0.5s"),), retries=False)
    assert operation.simulation.requests["status"].tolist() == [layout.LOST, layout.FINISHED, layout.FINISHED]


def test_ranks_of_one_server_fail_together() -> None:
    fleet = fleet_of(2, data_parallel_size=2)
    operation = operated(fleet, steady(60, 0.1), min_replicas=2, max_replicas=2, events=(read_event("crash@2s"),))
    assert statuses(operation) == {layout.FINISHED: 60}
    check(operation)


def test_a_fleet_of_none_wakes_for_the_first_request_and_sleeps_again() -> None:
    table = independent_requests(arrival_s=[0.0, 1.0, 1000.0], prompt_tokens=[20] * 3, output_tokens=[20] * 3)
    operation = operated(fleet_of(2), table, min_replicas=0, scaler="keda", until_s=2000)
    requests = operation.simulation.requests
    assert statuses(operation) == {layout.FINISHED: 3}
    assert (requests["scheduled_s"] - requests["arrival_s"] > 7.0).all()
    assert [count.held for count in operation.history] == [0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas 3 and max_replicas 2"),
        ({"min_replicas": -1}, "min_replicas -1"),
        ({"initial_replicas": 5}, "initial_replicas is 5; give a number from 1 to 2"),
    ],
)
def test_limits_that_contradict_each_other_are_told(limits: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        operated(fleet_of(2), steady(1, 1.0), **limits)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("crash", "is no event; write what happens and when, such as crash@10min"),
        ("fire@10min", "fire"),
        ("crash@10", "'10' is not a time"),
        ("zone@10min", "does not say how many replicas are lost"),
        ("crash@1min:replica=2", "did you mean 'replicas'"),
        ("crash@1min:replicas=0", "replicas is 0"),
    ],
)
def test_an_event_that_is_none_is_told(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_event(written)
