"""The gateway as plain Python over lists: the twin of the core's, slow and obvious."""

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, cast

import simpy

from conformance.reference.vllm.requests import Request
from simulator.core import layout
from simulator.fleet.flow_control import CONCURRENCY_DETECTOR, ROUND_ROBIN, FlowControl

if TYPE_CHECKING:
    from tests.simulator.core.simpy_fleet import World


def moment(env: simpy.Environment, time_s: float, order: float) -> simpy.Event:
    """A timeout that ends at `time_s` and takes its turn there by `order`."""
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, priority=cast("simpy.events.EventPriority", order), delay=time_s - env.now)
    return event


class Gateway:
    """Turns requests down, holds them while the fleet is saturated, and lets one after the other go on."""

    def __init__(self, world: "World", control: FlowControl | None) -> None:
        self.world, self.control, self.table = world, control, world.table
        self.held: list[Request] = []  # in the order in which they came
        self.queued_s: dict[int, float] = {}  # when each came last
        self.is_empty, self.changed_s = False, 0.0  # whether no engine took requests, as seen last, and since when
        self.is_looking = False
        self.next_sweep_s = 0.0 if control is None else control.sweep_every_s
        self.last: dict[int, int] = {}  # the tenant of each priority that had its turn
        tenants = () if self.table.tenancy is None else self.table.tenancy.tenants
        self.left = [(tenant.rpm_limit, tenant.tpm_limit) for tenant in tenants]
        self.filled_s = [0.0] * len(tenants)

    def priority(self, request: Request) -> int:
        return int(self.table.priority[request.id % self.table.num_requests])

    def tenant(self, request: Request) -> int:
        tenancy = self.table.tenancy
        return 0 if tenancy is None else int(tenancy.of[request.id % self.table.num_requests])

    def arrive(self, request: Request, *, is_new: bool) -> None:
        if (is_new and not self.is_within_quota(request)) or self.is_full(request):
            self.world.end(None, request, layout.REJECTED)
        elif self.control is None:
            self.world.send(request)
        else:
            self.held.append(request)
            self.queued_s[request.id] = self.world.env.now
            self.dispatch()

    def is_within_quota(self, request: Request) -> bool:
        tenancy, number, now_s = self.table.tenancy, self.tenant(request), self.world.env.now
        if tenancy is None:
            return True
        elapsed_s, self.filled_s[number] = now_s - self.filled_s[number], now_s
        limits = tenancy.tenants[number].rpm_limit, tenancy.tenants[number].tpm_limit
        requests, tokens = (
            most if most == math.inf else min(most, left + elapsed_s * (most / 60))
            for most, left in zip(limits, self.left[number], strict=True)
        )
        is_enough = requests >= 1 and tokens >= request.num_prompt_tokens
        self.left[number] = (requests - is_enough, tokens - is_enough * request.num_prompt_tokens)
        return is_enough

    def is_full(self, request: Request) -> bool:
        if self.control is None:
            return False
        alike = sum(self.priority(other) == self.priority(request) for other in self.held)
        most = self.control.max_requests or math.inf
        return len(self.held) >= most or alike >= self.control.band_max_requests

    def saturation(self, control: FlowControl) -> float:
        engines = [engine for engine in self.world.engines if self.world.is_ready[engine.number]]
        total = 0.0
        if control.detector == CONCURRENCY_DETECTOR:
            return sum(engine.outstanding for engine in engines) / (len(engines) * control.max_concurrency)
        for engine in engines:
            scheduler = engine.scheduler
            usage = 1.0 - scheduler.blocks.pool.num_free / scheduler.config.num_usable_blocks
            waiting = len(scheduler.waiting) / control.queue_depth_threshold
            total += max(waiting, usage / control.kv_cache_util_threshold)
        return total / len(engines)

    def dispatch(self) -> None:
        """Let one request go on, unless the fleet is saturated."""
        assert self.control is not None, "there is a queue"
        is_empty = not any(self.world.is_ready)
        if is_empty != self.is_empty:
            self.is_empty, self.changed_s = is_empty, self.world.env.now
        is_full = is_empty or self.saturation(self.control) >= 1
        chosen = None if is_full else self.next_of_all(self.control)
        if chosen is not None:
            self.held.remove(chosen)
        self.look_later(self.control)
        if chosen is not None:
            self.world.send(chosen)

    def next_of_all(self, control: FlowControl) -> Request | None:
        for priority in sorted(set(self.table.priority.tolist())):
            alike = [request for request in self.held if self.priority(request) == priority]
            if control.fairness_policy == ROUND_ROBIN:
                waiting = sorted({self.tenant(request) for request in alike})
                if not waiting:
                    self.last.pop(priority, None)
                    continue
                last = self.last.get(priority, -1)
                tenant = next((each for each in waiting if each > last), waiting[0])
                self.last[priority] = tenant
                alike = [request for request in alike if self.tenant(request) == tenant]
            if alike:
                return min(alike, key=lambda request: (self.queued_s[request.id], request.id))
        return None

    def look_later(self, control: FlowControl) -> None:
        if not self.is_looking and (self.held or self.last):
            self.is_looking = True
            self.world.env.process(self.look(control))

    def look(self, control: FlowControl) -> Generator[simpy.Event, None, None]:
        now_s, every_s = self.world.env.now, control.dispatch_every_s
        yield moment(self.world.env, (now_s // every_s + 1) * every_s, self.world.order(4.0, -1))
        now_s, self.is_looking = self.world.env.now, False
        if now_s >= self.next_sweep_s:
            self.next_sweep_s = (now_s // control.sweep_every_s + 1) * control.sweep_every_s
            ttl_s = control.no_endpoint_request_ttl_s if self.is_empty else control.default_request_ttl_s
            self.sweep(ttl_s or math.inf)
        self.dispatch()

    def sweep(self, ttl_s: float) -> None:
        """Reject what has waited too long: by priority, by tenant, in the order in which it came."""
        now_s = self.world.env.now
        expired = [request for request in self.held if now_s >= max(self.queued_s[request.id], self.changed_s) + ttl_s]
        for request in sorted(expired, key=lambda each: (self.priority(each), self.tenant(each))):
            self.held.remove(request)
            self.world.end(None, request, layout.REJECTED)
