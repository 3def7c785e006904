"""The fleet as SimPy processes over the readable scheduler: the twin of the core's event loop, slow and obvious.

One process per session, one per client of the shared queue, one per server.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.core import layout
from simulator.engines.vllm.kv_cache_manager import BlockTables
from simulator.engines.vllm.scheduler import Plan, Request, Scheduler
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.router import Router, View, find_router
from simulator.latency.step_time import BatchSums
from simulator.simulation import check_lengths
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, RequestTable

Process = Generator[simpy.Event, None, None]

# Order of events at one instant: steps end, arrivals enter by id, schedulers decide. A number below one follows each.
STEP_ENDS, ARRIVES, DECIDES = 2.0, 3.0, 4.0


def run_simpy_fleet(
    fleet: Fleet, table: RequestTable, *, seed: int = 0, on_plan: Callable[[Plan], None] | None = None
) -> NDArray[np.void]:
    """Serve the whole table; one record per request, as `Simulation.requests` (times, preemptions, prefix hits).

    `on_plan` is shown every `schedule()` call's decisions.
    """
    for pool in fleet.pools:
        check_lengths(pool.engine, table)
    world = World(fleet, table, find_router(fleet.router).make(seed), on_plan)
    world.env.run()
    return world.results


def moment(env: simpy.Environment, time_s: float, order: float) -> simpy.Event:
    """A timeout that ends at `time_s` and takes its turn there by `order`."""
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, priority=cast("simpy.events.EventPriority", order), delay=time_s - env.now)
    return event


@dataclass(eq=False)
class Engine:
    """A scheduler with its KV blocks; its plans in flight, oldest first, with when each ends."""

    number: int
    scheduler: Scheduler
    in_flight: list[tuple[Plan, float]] = field(default_factory=list)
    outstanding: int = 0


class World:
    """The router, the sessions, the servers."""

    def __init__(
        self, fleet: Fleet, table: RequestTable, router: Router, on_plan: Callable[[Plan], None] | None
    ) -> None:
        self.env = simpy.Environment()
        self.table = table
        self.router = router
        self.on_plan = on_plan
        self.results = empty_results(table)
        self.finished = [self.env.event() for _ in range(table.num_requests)]
        self.shared_queue = iter(np.flatnonzero(table.follows == NEXT_FREE).tolist())
        self.next_turn = {int(before): row for row, before in enumerate(table.follows) if before >= 0}
        self.engines: list[Engine] = []
        self.server_of: list[Server] = []
        for pool in fleet.pools:
            for _ in range(pool.num_servers):
                server = Server(self, pool)
                self.engines += server.ranks
                self.server_of += [server] * len(server.ranks)
        for row in np.flatnonzero(table.follows == NO_PREDECESSOR).tolist():
            self.env.process(self.session(row))

    def session(self, row: int) -> Process:
        """Turn after turn: wait for the answer, think, send the next."""
        arrival_s = float(self.table.arrival_s[row])
        last: int | None = None
        while True:
            self.results["arrival_s"][row] = arrival_s
            order = ARRIVES + row / (self.table.num_requests + 1)
            yield moment(self.env, arrival_s, order)
            number = self.router.choose(cast("View", FleetView(self, last, int(self.table.prompt_tokens[row]))))
            self.results["replica"][row] = number
            server, engine = self.server_of[number], self.engines[number]
            engine.outstanding += 1
            enters_s = server.pass_front_end(int(self.table.prompt_tokens[row]))
            if enters_s > self.env.now:
                yield moment(self.env, enters_s, order)
            server.enqueue(engine, self.request(row))
            yield self.finished[row]
            following = self.next_turn.get(row)
            last = None if following is None else number
            if following is None:
                following = cast("int | None", self.finished[row].value)
            if following is None:
                return
            row, arrival_s = following, self.env.now + float(self.table.think_s[following])

    def finish(self, engine: Engine, request: Request) -> None:
        """Record a finished request; its client, if its session is over, takes the next of the shared queue."""
        engine.outstanding -= 1
        record = self.results[request.id]
        record["finish_s"] = self.env.now
        record["output"] = request.num_output_tokens
        record["preemptions"] = request.num_preemptions
        record["cached_tokens"] = request.num_cached_tokens
        record["status"] = layout.FINISHED
        is_last_turn = request.id not in self.next_turn
        self.finished[request.id].succeed(next(self.shared_queue, None) if is_last_turn else None)

    def request(self, row: int) -> Request:
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


@dataclass(frozen=True)
class FleetView:
    """What `simulator.fleet.router.View` shows, of the twin."""

    world: World
    last: int | None
    prompt_tokens: int

    @property
    def num_engines(self) -> int:
        return len(self.world.engines)

    @property
    def outstanding(self) -> list[int]:
        return [engine.outstanding for engine in self.world.engines]

    @property
    def running(self) -> list[int]:
        return [len(engine.scheduler.running) for engine in self.world.engines]

    @property
    def waiting(self) -> list[int]:
        return [len(engine.scheduler.waiting) for engine in self.world.engines]

    @property
    def time_s(self) -> float:
        return self.world.env.now


class Server:
    """A front end and an engine, or the ranks of a mixture, which take every step together."""

    def __init__(self, world: World, pool: Pool) -> None:
        first = len(world.engines)
        self.world, self.env, self.pool = world, world.env, pool
        self.ranks = [Engine(first + rank, Scheduler(pool.engine)) for rank in range(pool.data_parallel_size)]
        self.is_woken = self.env.event()
        self.frontend_free_s = 0.0
        self.stage_free_s = 0.0  # when the first pipeline stage can take the next step
        self.last_end_s = 0.0  # of the steps given to the GPU
        self.previous_end_s = 0.0
        self.is_warm = False
        self.env.process(self.serve())

    def pass_front_end(self, prompt_tokens: int) -> float:
        """When a request that arrives now comes to its scheduler: the front end takes one after the other."""
        times = self.pool.step_times
        start_s = max(self.frontend_free_s, self.env.now)
        self.frontend_free_s = start_s + times.ingress_request_s + times.ingress_token_s * prompt_tokens
        return self.frontend_free_s + times.ingress_s

    def enqueue(self, engine: Engine, request: Request) -> None:
        engine.scheduler.add_request(request)
        if not self.is_woken.triggered:
            self.is_woken.succeed()

    def serve(self) -> Process:
        """Sleep until a request comes; decide as many steps as vLLM would, and again whenever the oldest is over."""
        while True:
            yield self.is_woken
            yield moment(self.env, self.env.now, DECIDES)
            self.decide()
            while any(rank.in_flight for rank in self.ranks):
                end_s = min(rank.in_flight[0][1] for rank in self.ranks if rank.in_flight)
                yield moment(self.env, end_s, STEP_ENDS + self.ranks[0].number / (len(self.world.engines) + 1))
                for rank in self.ranks:
                    if rank.in_flight and rank.in_flight[0][1] == end_s:
                        self.complete(rank)
                yield moment(self.env, self.env.now, DECIDES)
                self.decide()

    def decide(self) -> None:
        self.is_woken = self.env.event()
        if len(self.ranks) == 1:
            while (plan := self.next_plan(self.ranks[0])) is not None:
                self.ranks[0].in_flight.append((plan, self.enter_pipeline(self.ranks[0], plan)))
            return
        while (self.last_end_s > self.env.now) + (
            self.previous_end_s > self.env.now
        ) < self.pool.engine.plans_in_flight:
            taken = [(rank, plan) for rank in self.ranks if (plan := self.next_plan(rank)) is not None]
            is_idle = all(plan.is_empty for _, plan in taken)
            if not is_idle:
                self.step_together([plan for _, plan in taken if not plan.is_empty])
            for rank, plan in taken:
                rank.in_flight.append((plan, rank.in_flight[-1][1] if plan.is_empty else self.last_end_s))
            if is_idle:
                return

    def next_plan(self, rank: Engine) -> Plan | None:
        """What the engine computes next; None where it may not run further ahead, or has nothing to do."""
        scheduler = rank.scheduler
        while len(rank.in_flight) < self.pool.engine.plans_in_flight and scheduler.has_unfinished_requests:
            plan = scheduler.schedule()
            if self.world.on_plan is not None:
                self.world.on_plan(plan)
            if plan.is_empty and not rank.in_flight:
                if not plan.preempted:
                    return None
                continue
            for request in plan.num_scheduled_tokens:
                if math.isnan(self.world.results["scheduled_s"][request.id]):
                    self.world.results["scheduled_s"][request.id] = self.env.now
            return plan
        return None

    def enter_pipeline(self, rank: Engine, plan: Plan) -> float:
        """When the step ends: a stage takes the next step while the following stages still work on this one.

        An empty step waits in vLLM's batch queue like any other, and takes no time.
        """
        if plan.is_empty:
            return rank.in_flight[-1][1]
        step_s = self.step_s(plan, 0.0) + self.cold_s()
        start_s, stage_s = max(self.stage_free_s, self.env.now), step_s / self.pool.engine.pipeline_parallel_size
        self.stage_free_s = start_s + stage_s
        self.last_end_s = max(start_s + step_s, self.last_end_s + stage_s)
        return self.last_end_s

    def step_together(self, plans: list[Plan]) -> None:
        """One step of all ranks: the slowest says how long it takes."""
        tokens = sum(sum(plan.num_scheduled_tokens.values()) for plan in plans)
        shared_s = float(self.pool.step_times.shared(np.array([float(tokens)]))[0])
        step_s = max(self.step_s(plan, shared_s) for plan in plans) + self.cold_s()
        self.previous_end_s = self.last_end_s
        self.last_end_s = max(self.last_end_s, self.env.now) + step_s

    def cold_s(self) -> float:
        """How much longer its next step takes: the first does."""
        is_first, self.is_warm = not self.is_warm, True
        return self.pool.step_times.cold_start_s if is_first else 0.0

    def step_s(self, plan: Plan, shared_s: float) -> float:
        sums = BatchSums()
        for request, tokens in plan.num_scheduled_tokens.items():
            end = request.num_computed_tokens
            sums.add(
                start=end - tokens,
                end=end,
                is_sampled=request in plan.sampled,
                is_decode=tokens == 1 or request in plan.num_drafts,
                window=self.pool.step_times.window,
            )
        return self.pool.step_times.step_s(sums, shared_s)

    def complete(self, rank: Engine) -> None:
        plan, _ = rank.in_flight.pop(0)
        first = [request for request in plan.sampled if request.num_output_tokens == 0]
        for request in rank.scheduler.complete(plan):
            self.world.finish(rank, request)
        for request in first:
            self.world.results["first_token_s"][request.id] = self.env.now
        while rank.in_flight and rank.in_flight[0][0].is_empty:  # it is over with the step before it
            rank.scheduler.complete(rank.in_flight.pop(0)[0])


def empty_results(table: RequestTable) -> NDArray[np.void]:
    results = np.zeros(table.num_requests, layout.REQUEST)
    results["prompt"], results["max_tokens"] = table.prompt_tokens, table.output_tokens
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s"):
        results[name] = math.nan
    return results
