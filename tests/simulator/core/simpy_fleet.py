"""The fleet as SimPy processes over the readable scheduler: the twin of the core's event loop, slow and obvious.

One process per session, one per client of the shared queue, one per server.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from conformance.reference.vllm.kv_cache_manager import BlockTables
from conformance.reference.vllm.requests import Plan, Request
from conformance.reference.vllm.scheduler import Scheduler
from simulator.core import layout
from simulator.core.vllm.adapter_arrays import of_requests
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.operation import Operations
from simulator.fleet.router import Router, find_router
from simulator.fleet.view import View
from simulator.simulation import check_lengths
from tests.simulator.core.simpy_autoscaling import OperatedTwin
from tests.simulator.core.simpy_gateway import Gateway, moment
from tests.simulator.core.simpy_steps import Steps
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, RequestTable

Process = Generator[simpy.Event, None, None]

# Order of events at one instant: steps end, clients cancel by id, arrivals enter by id, schedulers decide.
# A number below one follows each.
STEP_ENDS, CANCELS, ARRIVES, DECIDES = 2.0, 3.0, 4.0, 5.0


def run_simpy_fleet(
    fleet: Fleet,
    table: RequestTable,
    *,
    seed: int = 0,
    on_plan: Callable[[Plan], None] | None = None,
    operations: Operations | None = None,
) -> NDArray[np.void]:
    """Serve the whole table; one record per request, as `Simulation.requests` (times, preemptions, prefix hits).

    `on_plan` is shown every `schedule()` call's decisions. Of `operations` the events befall the fleet.
    """
    for pool in fleet.pools:
        check_lengths(pool.engine, table)
    world = World(fleet, table, find_router(fleet.router, fleet.block_size).make(seed), on_plan, seed)
    if operations is not None:
        OperatedTwin(world, operations)
    world.env.run()
    return world.results


@dataclass(eq=False)
class Engine:
    """A scheduler with its KV blocks; its plans in flight, oldest first, with when each ends."""

    number: int
    scheduler: Scheduler
    in_flight: list[tuple[Plan, float]] = field(default_factory=list)
    outstanding: int = 0


class Ended(NamedTuple):
    """How a turn ended, the engine where its session was served last, and when its user knew."""

    is_answered: bool
    last: int | None
    time_s: float


class World:
    """The router, the sessions, the servers."""

    def __init__(
        self,
        fleet: Fleet,
        table: RequestTable,
        router: Router,
        on_plan: Callable[[Plan], None] | None,
        seed: int = 0,
    ) -> None:
        self.env = simpy.Environment()
        self.table, self.adapter_of = of_requests(fleet, table, seed)
        self.router = router
        self.on_plan = on_plan
        self.results = empty_results(table)
        self.ended = [self.env.event() for _ in self.results]
        self.current: dict[int, Request] = {}  # of each attempt; another one where it begins from its start again
        self.entered: set[Request] = set()  # their engine's scheduler
        self.sent: set[int] = set()  # attempts that are with an engine
        self.begun: set[int] = set()  # those whose clients have seen a first token
        self.back: set[int] = set()  # those that came back to the gateway, or found no engine
        self.shared_queue = iter(np.flatnonzero(table.follows == NEXT_FREE).tolist())
        self.next_turn = {int(before): row for row, before in enumerate(table.follows) if before >= 0}
        has_gateway = fleet.flow_control is not None or table.tenancy is not None
        self.gateway = Gateway(self, fleet.flow_control) if has_gateway else None
        self.engines: list[Engine] = []
        self.server_of: list[Server] = []
        for pool in fleet.pools:
            for _ in range(pool.num_servers):
                server = Server(self, pool, len(self.engines))
                self.engines += server.ranks
                self.server_of += [server] * len(server.ranks)
        self.is_ready = [True] * len(self.engines)
        for row in np.flatnonzero(table.follows == NO_PREDECESSOR).tolist():
            self.env.process(self.session(row))

    def session(self, row: int) -> Process:
        """Turn after turn: wait for the answer, or give up; think, send the next."""
        arrival_s = float(self.table.arrival_s[row])
        last: int | None = None
        while True:
            yield moment(self.env, arrival_s, self.order(ARRIVES, row))
            ended = yield from self.turn(row, last)
            following = self.next_turn.get(row) if ended.is_answered else self.resumes(row)
            last = None if following is None else ended.last
            if following is None:
                following = next(self.shared_queue, None)
            if following is None:
                return
            row, arrival_s = following, ended.time_s + float(self.table.think_s[following])

    def turn(self, row: int, last: int | None) -> Generator[simpy.Event, None, "Ended"]:
        """One request, from now on, with the attempts that follow time-outs."""
        count, waits = self.table.num_requests, self.table.waits
        gives_up_s = math.inf if waits is None else self.env.now + float(waits.patience_s[row])
        attempt = row
        while True:
            self.arrive(attempt, last, gives_up_s)
            status = yield self.ended[attempt]
            number = int(self.results["replica"][attempt])
            last = None if number == layout.NONE else number
            may_retry = status in (layout.TIMED_OUT, layout.REJECTED)
            if may_retry and attempt + count < count * self.table.num_attempts:
                if attempt in self.begun:
                    gives_up_s = math.inf
                attempt += count
                arrival_s = self.env.now + float(waits.backoff_s[attempt // count - 1, row])  # type: ignore[union-attr]
                if arrival_s < gives_up_s:
                    yield moment(self.env, arrival_s, self.order(ARRIVES, attempt))
                    continue
                return Ended(False, last, gives_up_s)
            return Ended(status == layout.FINISHED, last, self.env.now)

    def arrive(self, attempt: int, last: int | None, gives_up_s: float) -> None:
        """An attempt comes to the gateway, or to the router where there is none."""
        self.results["arrival_s"][attempt] = self.env.now
        self.results["replica"][attempt] = layout.NONE if last is None else last
        request = self.current[attempt] = self.request(attempt)
        if self.table.waits is not None:
            self.env.process(self.watch(attempt, gives_up_s))
        self.enter_gateway(request, is_new=True)

    def enter_gateway(self, request: Request, *, is_new: bool) -> None:
        if self.gateway is None:
            self.send(request)
        else:
            self.gateway.arrive(request, is_new=is_new)

    def send(self, request: Request) -> None:
        """Route a request, unless no engine takes any."""
        if not any(self.is_ready):
            self.back.add(request.id)
            return
        self.sent.add(request.id)
        prompt, last = request.num_prompt_tokens, int(self.results["replica"][request.id])
        view = FleetView(self, None if last == layout.NONE else last, prompt)
        number = self.router.choose(cast("View", view))
        self.results["replica"][request.id] = number
        self.engines[number].outstanding += 1
        enters_s = self.server_of[number].pass_front_end(prompt)
        if enters_s > self.env.now:
            self.env.process(self.enter_at(request, enters_s))
        else:
            self.enter(request)

    def enter_at(self, request: Request, time_s: float) -> Process:
        """Leave the front end then, unless the client has gone meanwhile."""
        yield moment(self.env, time_s, self.order(ARRIVES, request.id))
        if not self.ended[request.id].triggered and self.current[request.id] is request:
            self.enter(request)

    def enter(self, request: Request) -> None:
        number = int(self.results["replica"][request.id])
        self.server_of[number].enqueue(self.engines[number], request)
        self.entered.add(request)

    def watch(self, attempt: int, gives_up_s: float) -> Process:
        """Cancel an attempt whose first token, or whose whole answer, has not come in time."""
        assert self.table.waits is not None, "only clients that do not wait for ever are watched"
        times_out_s = self.env.now + float(self.table.waits.timeout_s[attempt % self.table.num_requests])
        if gives_up_s <= times_out_s and gives_up_s < math.inf:
            yield moment(self.env, gives_up_s, self.order(CANCELS, attempt))
            if attempt not in self.begun:
                self.cancel(self.current[attempt], layout.ABANDONED)
        if times_out_s < math.inf:
            yield moment(self.env, times_out_s, self.order(CANCELS, attempt))
            self.cancel(self.current[attempt], layout.TIMED_OUT)

    def cancel(self, request: Request, status: int) -> None:
        if self.ended[request.id].triggered:
            return
        if request.id in self.back:
            self.back.remove(request.id)
            self.end(None, request, status)
            return
        if self.gateway is not None and request in self.gateway.held:
            self.gateway.held.remove(request)
            self.end(None, request, status)
            return
        engine = self.engines[int(self.results["replica"][request.id])]
        if request in self.entered:
            engine.scheduler.abort(request)
        self.end(engine, request, status)

    def end(self, engine: Engine | None, request: Request, status: int = layout.FINISHED) -> None:
        """Record a request that has finished, was cancelled or was rejected."""
        if engine is not None:
            engine.outstanding -= 1
            self.sent.remove(request.id)
        record = self.results[request.id]
        record["finish_s"] = self.env.now
        record["output"] = request.num_output_tokens
        record["preemptions"] = request.num_preemptions
        record["cached_tokens"] = layout.NONE if request.num_cached_tokens is None else request.num_cached_tokens
        record["computed"] = request.num_computed_tokens
        record["status"] = status
        self.ended[request.id].succeed(status)

    def resumes(self, row: int) -> int | None:
        """The turn that comes after one that was given up."""
        if self.table.waits is None:
            return self.next_turn.get(row)
        following = int(self.table.waits.resumes[row])
        return None if following == layout.NONE else following

    def order(self, kind: float, request: int) -> float:
        return kind + request / (len(self.results) + 1)

    def request(self, attempt: int) -> Request:
        table = self.table
        row = attempt % table.num_requests
        start = int(table.span_start[row])
        spans = slice(start, start + int(table.span_count[row]))
        return Request(
            id=attempt,
            num_prompt_tokens=int(table.prompt_tokens[row]),
            max_tokens=int(table.output_tokens[row]),
            priority=int(table.priority[row]),
            arrival_s=float(self.results["arrival_s"][attempt]),
            table=BlockTables(
                spans=tuple(zip(table.span_content[spans].tolist(), table.span_end[spans].tolist(), strict=True)),
                num_prompt_tokens=int(table.prompt_tokens[row]),
            ),
            adapter=int(self.adapter_of[row]) if len(self.adapter_of) else None,
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
    def candidates(self) -> list[int]:
        return [number for number, is_ready in enumerate(self.world.is_ready) if is_ready]

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

    def __init__(self, world: World, pool: Pool, first: int) -> None:
        self.world, self.env, self.pool = world, world.env, pool
        self.ranks = [Engine(first + rank, Scheduler(pool.engine)) for rank in range(pool.data_parallel_size)]
        self.is_woken = self.env.event()
        self.api_server_free_s = [0.0] * pool.api_servers
        self.stage_free_s = 0.0  # when the first pipeline stage can take the next step
        self.last_end_s = 0.0  # of the steps given to the GPU
        self.previous_end_s = 0.0
        self.steps = Steps(pool.step_times)
        self.is_gone = False
        self.env.process(self.serve())

    def pass_front_end(self, prompt_tokens: int) -> float:
        """When a request that arrives now comes to its scheduler: each API server takes one after the other."""
        times, free_s = self.pool.step_times, min(self.api_server_free_s)
        start_s = max(free_s, self.env.now)
        is_free_s = start_s + times.ingress_request_s + times.ingress_token_s * prompt_tokens
        self.api_server_free_s[self.api_server_free_s.index(free_s)] = is_free_s
        return is_free_s + times.ingress_s

    def enqueue(self, engine: Engine, request: Request) -> None:
        engine.scheduler.add_request(request)
        if not self.is_woken.triggered:
            self.is_woken.succeed()

    def serve(self) -> Process:
        """Sleep until a request comes; decide as many steps as vLLM would, and again whenever the oldest is over."""
        while True:
            yield self.is_woken
            yield moment(self.env, self.env.now, DECIDES)
            if self.is_gone:
                return
            self.decide()
            while any(rank.in_flight for rank in self.ranks):
                end_s = min(rank.in_flight[0][1] for rank in self.ranks if rank.in_flight)
                yield moment(self.env, end_s, STEP_ENDS + self.ranks[0].number / (len(self.world.engines) + 1))
                if self.is_gone:
                    return
                for rank in self.ranks:
                    if rank.in_flight and rank.in_flight[0][1] == end_s:
                        self.complete(rank)
                yield moment(self.env, self.env.now, DECIDES)
                if self.is_gone:
                    return
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
        step_s = self.steps.step_s(plan, 0.0) + self.steps.stall_s([plan], self.env.now)
        start_s, stage_s = max(self.stage_free_s, self.env.now), step_s / self.pool.engine.pipeline_parallel_size
        self.stage_free_s = start_s + stage_s
        self.last_end_s = max(start_s + step_s, self.last_end_s + stage_s)
        return self.last_end_s

    def step_together(self, plans: list[Plan]) -> None:
        """One step of all ranks: the slowest says how long it takes."""
        tokens = sum(sum(plan.num_scheduled_tokens.values()) for plan in plans)
        shared_s = float(self.pool.step_times.shared(np.array([float(tokens)]))[0])
        step_s = max(self.steps.step_s(plan, shared_s) for plan in plans) + self.steps.stall_s(plans, self.env.now)
        self.previous_end_s = self.last_end_s
        self.last_end_s = max(self.last_end_s, self.env.now) + step_s

    def complete(self, rank: Engine) -> None:
        plan, _ = rank.in_flight.pop(0)
        first = [request for request in plan.sampled if request.num_output_tokens == 0 and not request.is_finished]
        for request in rank.scheduler.complete(plan):
            self.world.end(rank, request)
        for request in first:
            self.world.results["first_token_s"][request.id] = self.env.now
            self.world.begun.add(request.id)
        while rank.in_flight and rank.in_flight[0][0].is_empty:  # it is over with the step before it
            rank.scheduler.complete(rank.in_flight.pop(0)[0])


def empty_results(table: RequestTable) -> NDArray[np.void]:
    results = np.zeros(table.num_requests, layout.REQUEST)
    results["prompt"], results["max_tokens"] = table.prompt_tokens, table.output_tokens
    results["replica"] = results["cached_tokens"] = layout.NONE
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s"):
        results[name] = math.nan
    return np.tile(results, table.num_attempts)
