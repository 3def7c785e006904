"""Crashes and rolling updates over the twin of the fleet, written anew: what `simulator.fleet` does to the core."""

import math
from collections.abc import Generator
from typing import TYPE_CHECKING

import simpy

from simulator.core import layout
from simulator.fleet.events import Event
from simulator.fleet.operation import Operations
from tests.simulator.core.simpy_gateway import moment

if TYPE_CHECKING:
    from tests.simulator.core.simpy_fleet import World

Process = Generator[simpy.Event, None, None]
LOOK_S = 1.0
READY, STARTING, DRAINING, GONE = range(4)


class OperatedTwin:
    """A fleet of fixed size, of engines alone, whose starts all take as long."""

    def __init__(self, world: "World", given: Operations) -> None:
        self.world, self.given, self.env = world, given, world.env
        self.states = [READY] * len(world.engines)
        self.turns = [0] * len(world.engines)
        for event in given.events:
            self.env.process(self.befalls(event))

    def after(self, seconds: float) -> simpy.Event:
        """Between the clients who cancel and the gateway's look at its queue."""
        return moment(self.env, self.env.now + seconds, self.world.order(4.0, -1.5))  # type: ignore[arg-type]

    def befalls(self, event: Event) -> Process:
        yield self.after(event.time_s)
        ready = [number for number, state in enumerate(self.states) if state == READY]
        if event.kind == "update":
            for number in ready:
                if self.states[number] == READY:
                    yield from self.update(number)
            return
        for number in ready[: event.extent.replicas]:
            self.leave(number)
        yield self.after(event.extent.restarts_after_s)
        for number in ready[: event.extent.replicas]:
            self.start(number)

    def update(self, number: int) -> Process:
        self.enter(number, DRAINING)
        self.env.process(self.goes(number, self.turns[number]))
        while self.states[number] == DRAINING:
            yield self.after(LOOK_S)
        self.start(number)
        while self.states[number] == STARTING:
            yield self.after(LOOK_S)

    def goes(self, number: int, turn: int) -> Process:
        until_s = self.env.now + self.given.grace_s
        while self.env.now < until_s and self.world.engines[number].outstanding:
            yield self.after(min(LOOK_S, until_s - self.env.now))
            if self.turns[number] != turn:
                return
        self.leave(number)

    def start(self, number: int) -> None:
        if self.states[number] == GONE:
            self.enter(number, STARTING)
            self.env.process(self.comes(number, self.turns[number]))

    def comes(self, number: int, turn: int) -> Process:
        yield self.after(self.given.start_s(True))
        if self.turns[number] == turn:
            self.enter(number, READY)

    def leave(self, number: int) -> None:
        """Its requests come back to the gateway, or are lost; an engine without anything takes its place."""
        world, gone = self.world, self.world.server_of[number]
        gone.is_gone = True
        for attempt in sorted(world.sent):
            if world.results["replica"][attempt] != number:
                continue
            old = world.current[attempt]
            if not self.given.retries:
                world.end(world.engines[number], old, layout.LOST)
                continue
            world.sent.remove(attempt)
            world.back.add(attempt)
            world.current[attempt] = world.request(attempt)
            world.current[attempt].num_preemptions = old.num_preemptions
            world.results["scheduled_s"][attempt] = world.results["first_token_s"][attempt] = math.nan
        world.server_of[number] = type(gone)(world, gone.pool, number)
        world.engines[number] = world.server_of[number].ranks[0]
        self.enter(number, GONE)

    def enter(self, number: int, state: int) -> None:
        self.turns[number] += 1
        self.states[number] = state
        self.world.is_ready[number] = state == READY
        has_queue = self.world.gateway is not None and self.world.gateway.control is not None
        if has_queue or any(self.world.is_ready):
            for attempt in sorted(self.world.back):
                self.env.process(self.comes_back(attempt))

    def comes_back(self, attempt: int) -> Process:
        yield moment(self.env, self.env.now, self.world.order(4.0, attempt))
        if attempt in self.world.back:
            self.world.back.remove(attempt)
            self.world.enter_gateway(self.world.current[attempt], is_new=False)
