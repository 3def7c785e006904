"""The fleet as SimPy processes over the readable scheduler, for routers written in Python.

The slower lane: about a hundred times slower than the compiled core, with the same results where both exist.
It is also the core's simple twin, against which the core's event loop is tested.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.core import layout
from simulator.engines.vllm.kv_cache_manager import BlockTables
from simulator.engines.vllm.scheduler import Plan, Request, Scheduler
from simulator.fleet.fleet import Fleet
from simulator.latency.step_time import BatchSums
from simulator.simulation import check_lengths
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, RequestTable

# Order of events at one instant: steps end, arrivals enter by id, schedulers decide.
_STEP_ENDS, _ARRIVES, _DECIDES = 2.0, 3.0, 4.0


@dataclass(frozen=True, kw_only=True)
class ReplicaLoad:
    """What a router may see of a replica; never a request's output length."""

    outstanding: int
    running: int
    waiting: int


Router = Callable[[Sequence[ReplicaLoad], int | None], int]
"""Which replica, counted from 0, gets the next request; also told where its session was served last, if anywhere."""


def round_robin() -> Router:
    """Each replica in turn."""
    state = {"next": 0}

    def choose(loads: Sequence[ReplicaLoad], _last: int | None) -> int:
        chosen = state["next"]
        state["next"] = (chosen + 1) % len(loads)
        return chosen

    return choose


def least_outstanding() -> Router:
    """The replica with the fewest requests sent and not finished; ties go to the lowest number."""
    return lambda loads, _last: min(range(len(loads)), key=lambda replica: (loads[replica].outstanding, replica))


def session_affinity() -> Router:
    """Where the session was served last; a new session goes to the replica with the fewest outstanding."""
    first = least_outstanding()
    return lambda loads, last: first(loads, last) if last is None else last


def run_simpy_fleet(
    fleet: Fleet, table: RequestTable, router: Router, *, on_plan: Callable[[Plan], None] | None = None
) -> NDArray[np.void]:
    """Serve the whole table; one record per request, as `Simulation.requests` (times, preemptions, prefix hits).

    `on_plan` is shown every `schedule()` call's decisions.
    """
    check_lengths(fleet.engine, table)
    world = _World(fleet, table, router, on_plan)
    world.env.run()
    return world.results


@dataclass(eq=False)
class _Replica:
    scheduler: Scheduler
    in_flight: list[tuple[Plan, float]] = field(default_factory=list)
    door_free_s: float = 0.0  # when the front end can take the next request; kept by the first of several ranks
    stage_free_s: float = 0.0  # when the first pipeline stage can take the next step
    last_end_s: float = 0.0
    previous_end_s: float = 0.0  # of the step before the last one given to the GPU; kept by the first of several ranks
    outstanding: int = 0
    is_deciding: bool = False
    is_warm: bool = False  # a step has run; kept by the first of several ranks


class _World:
    def __init__(
        self, fleet: Fleet, table: RequestTable, router: Router, on_plan: Callable[[Plan], None] | None
    ) -> None:
        self.on_plan = on_plan
        self.env = simpy.Environment()
        self.fleet = fleet
        self.table = table
        self.router = router
        self.replicas = [_Replica(Scheduler(fleet.engine)) for _ in range(fleet.num_engines)]
        self.shared_queue = iter(np.flatnonzero(table.follows == NEXT_FREE).tolist())
        self.next_turn = {int(before): row for row, before in enumerate(table.follows) if before >= 0}
        self.results = _empty_results(table)
        timed = np.flatnonzero(table.follows == NO_PREDECESSOR)
        for row in timed[np.argsort(table.arrival_s[timed], kind="stable")].tolist():
            self._send(row, float(table.arrival_s[row]))

    def _at(self, time_s: float, priority: float, act: Callable[[], None]) -> None:
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        assert event.callbacks is not None
        event.callbacks.append(lambda _: act())
        order = cast("simpy.events.EventPriority", priority)  # SimPy compares it as a number
        self.env.schedule(event, priority=order, delay=time_s - self.env.now)

    def _send(self, row: int, arrival_s: float) -> None:
        self.results["arrival_s"][row] = arrival_s
        priority = _ARRIVES + row / (self.table.num_requests + 1)
        self._at(arrival_s, priority, lambda: self._route(row, priority))

    def _route(self, row: int, priority: float) -> None:
        """A request comes to a replica's front end, which takes one after the other."""
        before = int(self.table.follows[row])
        last = int(self.results["replica"][before]) if before >= 0 else None
        number = self.router([_load(replica) for replica in self.replicas], last)
        replica = self.replicas[number]
        replica.outstanding += 1
        self.results["replica"][row] = number
        times, door = self.fleet.step_times, self._leader(number) or replica
        door.door_free_s = (
            max(door.door_free_s, self.env.now)
            + times.ingress_request_s
            + times.ingress_token_s * int(self.table.prompt_tokens[row])
        )
        enters_s = door.door_free_s + times.ingress_s
        if enters_s <= self.env.now:
            self._enter(row, number)
        else:
            self._at(enters_s, priority, lambda: self._enter(row, number))

    def _enter(self, row: int, number: int) -> None:
        """A request comes to its scheduler."""
        replica = self.replicas[number]
        replica.scheduler.add_request(self._request(row))
        leader = self._leader(number)
        if not replica.in_flight and (leader is None or not self._num_rounds(leader)):
            self._decide_later(number)

    def _leader(self, number: int) -> _Replica | None:
        """The first of the ranks that take their steps together; None where each takes its own."""
        ranks = self.fleet.data_parallel_size
        return None if ranks == 1 else self.replicas[number - number % ranks]

    def _decide_later(self, number: int) -> None:
        now_s = self.env.now
        replica = self._leader(number) or self.replicas[number]
        if not replica.is_deciding:
            replica.is_deciding = True
            is_alone = self.fleet.data_parallel_size == 1
            self._at(now_s, _DECIDES, lambda: (self._decide if is_alone else self._decide_together)(replica, now_s))

    def _decide(self, replica: _Replica, now_s: float) -> None:
        replica.is_deciding = False
        while (plan := self._next_plan(replica, now_s)) is not None:
            replica.in_flight.append((plan, self._enter_pipeline(replica, plan, now_s)))
            if len(replica.in_flight) == 1:
                self._await_oldest(replica)

    def _next_plan(self, replica: _Replica, now_s: float) -> Plan | None:
        """What the replica computes next; None where it may not run further ahead, or has nothing to do."""
        scheduler = replica.scheduler
        while len(replica.in_flight) < self.fleet.engine.plans_in_flight and scheduler.has_unfinished_requests:
            plan = scheduler.schedule()
            if self.on_plan is not None:
                self.on_plan(plan)
            if plan.is_empty and not replica.in_flight:
                if not plan.preempted:
                    return None
                continue
            for request in plan.num_scheduled_tokens:
                if math.isnan(self.results["scheduled_s"][request.id]):
                    self.results["scheduled_s"][request.id] = now_s
            return plan
        return None

    # -- ranks that share their experts

    def _num_rounds(self, leader: _Replica) -> int:
        """Steps of the leader's ranks that are decided and not over."""
        return (leader.last_end_s > self.env.now) + (leader.previous_end_s > self.env.now)

    def _decide_together(self, leader: _Replica, now_s: float) -> None:
        leader.is_deciding = False
        first = self.replicas.index(leader)
        ranks = self.replicas[first : first + self.fleet.data_parallel_size]
        while self._num_rounds(leader) < self.fleet.engine.plans_in_flight:
            plans = [(rank, self._next_plan(rank, now_s)) for rank in ranks]
            taken = [(rank, plan) for rank, plan in plans if plan is not None]
            if all(plan.is_empty for _, plan in taken):
                for rank, plan in taken:
                    rank.in_flight.append((plan, rank.in_flight[-1][1]))
                return
            self._take_together(leader, taken, now_s)

    def _take_together(self, leader: _Replica, taken: list[tuple[_Replica, Plan]], now_s: float) -> None:
        """One step of all ranks: the slowest says how long it takes."""
        busy = [plan for _, plan in taken if not plan.is_empty]
        tokens = sum(sum(plan.num_scheduled_tokens.values()) for plan in busy)
        shared_s = float(self.fleet.step_times.shared[tokens])
        leader.previous_end_s = leader.last_end_s
        step_s = max(self._step_s(plan, shared_s) for plan in busy) + self._cold_s(leader)
        leader.last_end_s = max(leader.last_end_s, now_s) + step_s
        for rank, plan in taken:
            rank.in_flight.append((plan, rank.in_flight[-1][1] if plan.is_empty else leader.last_end_s))
            if len(rank.in_flight) == 1:
                self._await_oldest(rank)

    def _enter_pipeline(self, replica: _Replica, plan: Plan, now_s: float) -> float:
        """When the step ends: a stage takes the next step while the following stages still work on this one.

        An empty step waits in vLLM's batch queue like any other, and takes no time.
        """
        if plan.is_empty:
            return replica.in_flight[-1][1]
        step_s = self._step_s(plan) + self._cold_s(replica)
        stage_s = step_s / self.fleet.engine.pipeline_parallel_size
        start_s = max(replica.stage_free_s, now_s)
        replica.stage_free_s = start_s + stage_s
        replica.last_end_s = max(start_s + step_s, replica.last_end_s + stage_s)
        return replica.last_end_s

    def _await_oldest(self, replica: _Replica) -> None:
        self._at(replica.in_flight[0][1], _STEP_ENDS, lambda: self._complete(replica))

    def _complete(self, replica: _Replica) -> None:
        plan, now_s = replica.in_flight.pop(0)
        first = [request for request in plan.sampled if request.num_output_tokens == 0]
        for request in replica.scheduler.complete(plan):
            replica.outstanding -= 1
            self._record_finished(request, now_s)
            self._follow_up(request.id, now_s)
        for request in first:
            self.results["first_token_s"][request.id] = now_s
        if replica.in_flight:
            self._await_oldest(replica)
        self._decide_later(self.replicas.index(replica))

    def _cold_s(self, replica: _Replica) -> float:
        """What its next step takes longer: the first does, of several ranks that of the leader."""
        is_first, replica.is_warm = not replica.is_warm, True
        return self.fleet.step_times.cold_start_s if is_first else 0.0

    def _step_s(self, plan: Plan, shared_s: float = 0.0) -> float:
        sums = BatchSums()
        for request, tokens in plan.num_scheduled_tokens.items():
            end = request.num_computed_tokens
            is_sampled = request in plan.sampled
            sums.add(
                start=end - tokens,
                end=end,
                is_sampled=is_sampled,
                is_decode=tokens == 1 or request in plan.num_drafts,
                window=self.fleet.step_times.window,
            )
        return self.fleet.step_times.step_s(sums, shared_s)

    def _request(self, row: int) -> Request:
        table = self.table
        start = int(table.span_start[row])
        spans = slice(start, start + int(table.span_count[row]))
        return Request(
            id=row,
            num_prompt_tokens=int(table.prompt_tokens[row]),
            max_tokens=int(table.output_tokens[row]),
            priority=int(table.priority[row]),
            arrival_s=float(self.results["arrival_s"][row]),
            table=BlockTables(
                spans=tuple(zip(table.span_content[spans].tolist(), table.span_end[spans].tolist(), strict=True)),
                num_prompt_tokens=int(table.prompt_tokens[row]),
            ),
        )

    def _follow_up(self, row: int, now_s: float) -> None:
        following = self.next_turn.get(row)
        if following is None:
            following = next(self.shared_queue, None)
        if following is not None:
            self._send(following, now_s + float(self.table.think_s[following]))

    def _record_finished(self, request: Request, now_s: float) -> None:
        record = self.results[request.id]
        record["finish_s"] = now_s
        record["output"] = request.num_output_tokens
        record["preemptions"] = request.num_preemptions
        record["cached_tokens"] = request.num_cached_tokens
        record["status"] = layout.FINISHED


def _load(replica: _Replica) -> ReplicaLoad:
    scheduler = replica.scheduler
    return ReplicaLoad(outstanding=replica.outstanding, running=len(scheduler.running), waiting=len(scheduler.waiting))


def _empty_results(table: RequestTable) -> NDArray[np.void]:
    results = np.zeros(table.num_requests, layout.REQUEST)
    results["prompt"], results["max_tokens"] = table.prompt_tokens, table.output_tokens
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s"):
        results[name] = math.nan
    return results
