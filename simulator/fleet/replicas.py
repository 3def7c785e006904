"""The replicas of a fleet that changes: each is absent, starting, ready, draining or dead."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import simpy

from simulator.core import layout
from simulator.core.vllm.layout import BLOCK
from simulator.simulation import Simulation

Process = Generator[simpy.Event, None, None]
DRAIN_LOOK_S = 1.0  # how often a draining replica is asked whether it is empty


class State(Enum):
    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


HELD = (State.STARTING, State.READY, State.DRAINING)  # those whose GPUs are paid for


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many replicas there were from a time on."""

    time_s: float
    ready: int
    starting: int
    draining: int

    @property
    def held(self) -> int:
        return self.ready + self.starting + self.draining


class Replicas:
    """Prepared engines in slots of `engines_each`; a slot's engines take requests while its replica is ready.

    `start_s` says how long a start takes, on a new node or on one that has started a replica before; nodes have room
    for `each_node` replicas. A replica that goes loses what it has not answered within `grace_s`, or at once where it
    fails: the gateway sends that again if it `retries`, else it is lost.
    """

    def __init__(
        self,
        simulation: Simulation,
        env: simpy.Environment,
        *,
        num_ready: int,
        start_s: Callable[[bool], float],
        engines_each: int = 1,
        each_node: int = 1,
        grace_s: float = 30.0,
        retries: bool = True,
    ) -> None:
        simulation.fleet.check_vllm_alone("a fleet that changes (--autoscaler, --daily-profile, --event)")
        self.simulation = simulation
        self.env = env
        self.engines_each, self.each_node = engines_each, each_node
        self.grace_s, self.retries = grace_s, retries
        self._start_s = start_s
        self._has_queue = simulation.fleet.flow_control is not None
        self._blank = simulation.arrays.replicas.copy(), simulation.arrays.engine_views.copy()
        self._blank_tiers = simulation.arrays.tiers.copy()
        self._blank_adapters = simulation.arrays.adapters.copy(), simulation.arrays.adapter_states.copy()
        self._blank_cache = simulation.arrays.caches[:1].copy()
        num_slots = simulation.fleet.num_engines // engines_each
        self.states = [State.READY if slot < num_ready else State.ABSENT for slot in range(num_slots)]
        self._ready_s = [0.0] * num_slots
        self._turns = [0] * num_slots  # a process of an earlier life of the slot ends when it sees another number
        self._warm_nodes = set(range(math.ceil(num_ready / each_node)))
        self.num_taken = 0
        """Requests taken off replicas that had not answered them."""
        self.history: list[Count] = []
        self._show()

    # -- what there is

    def slots(self, *states: State) -> list[int]:
        return [slot for slot, state in enumerate(self.states) if state in states]

    def engines(self, slot: int) -> range:
        return range(slot * self.engines_each, (slot + 1) * self.engines_each)

    @property
    def num_wanted(self) -> int:
        """Those that start and those that are ready."""
        return len(self.slots(State.STARTING, State.READY))

    @property
    def num_held_requests(self) -> int:
        """Requests that wait at the gateway: in its queue, or because no replica is ready."""
        arrays = self.simulation.arrays
        if self._has_queue:
            return int(arrays.gateways["num_held"][0])
        return int((arrays.requests["status"] == layout.AT_GATEWAY).sum()) if arrays.cursor["is_closed"][0] else 0

    def held_s(self, until_s: float) -> float:
        """Replica-seconds that were paid for."""
        ends_s = [count.time_s for count in self.history[1:]] + [until_s]
        return sum(
            count.held * (max(min(end_s, until_s) - count.time_s, 0.0))
            for count, end_s in zip(self.history, ends_s, strict=True)
        )

    # -- what is done to them

    def scale_to(self, desired_replicas: int) -> None:
        """Start as many as are missing and have a slot; let go of the others, those that came last first."""
        for slot in self.slots(State.ABSENT)[: max(desired_replicas - self.num_wanted, 0)]:
            self.start(slot)
        leaving = sorted(self.slots(State.STARTING), reverse=True)
        leaving += sorted(self.slots(State.READY), key=lambda slot: (-self._ready_s[slot], -slot))
        for slot in leaving[: max(self.num_wanted - desired_replicas, 0)]:
            self.drain(slot)

    def start(self, slot: int) -> None:
        node = slot // self.each_node
        self._enter(slot, State.STARTING)
        self.env.process(self._becomes_ready(slot, self._turns[slot], self._start_s(node not in self._warm_nodes)))

    def drain(self, slot: int) -> None:
        """It takes no new request, and goes once it is empty, or after its grace period; if it starts, at once."""
        if self.states[slot] is State.STARTING:
            self._leave(slot, State.ABSENT)
        elif self.states[slot] is State.READY:
            self._enter(slot, State.DRAINING)
            self.env.process(self._goes(slot, self._turns[slot]))

    def fail(self, slot: int, *, node: bool = False) -> None:
        """It is gone with its KV and its requests; with its node, whoever starts there next finds nothing kept."""
        self._leave(slot, State.DEAD)
        if node:
            self._warm_nodes.discard(slot // self.each_node)

    def restart(self, slot: int, *, is_wanted: bool) -> None:
        """Start a replica that has gone where it was, or leave its place empty; one that others started stays."""
        if self.states[slot] in (State.DEAD, State.ABSENT):
            if is_wanted:
                self.start(slot)
            else:
                self._enter(slot, State.ABSENT)

    def _becomes_ready(self, slot: int, turn: int, seconds: float) -> Process:
        yield self.env.timeout(seconds)
        if self._turns[slot] == turn:
            self._warm_nodes.add(slot // self.each_node)
            self._ready_s[slot] = self.env.now
            self._enter(slot, State.READY)

    def _goes(self, slot: int, turn: int) -> Process:
        until_s = self.env.now + self.grace_s
        while self.env.now < until_s and self._outstanding(slot):
            yield self.env.timeout(min(DRAIN_LOOK_S, until_s - self.env.now))
            if self._turns[slot] != turn:
                return
        self._leave(slot, State.ABSENT)

    def _outstanding(self, slot: int) -> int:
        engines = self.engines(slot)
        return int(self.simulation.arrays.engine_views["outstanding"][engines.start : engines.stop].sum())

    # -- what the core and the history get to know

    def _enter(self, slot: int, state: State) -> None:
        self._turns[slot] += 1
        self.states[slot] = state
        self._show()

    def _leave(self, slot: int, state: State) -> None:
        """Its engines lose their requests, and are as new."""
        from simulator.core.outage import take_down  # noqa: PLC0415  imports all kernels

        engines, arrays = self.engines(slot), self.simulation.arrays
        self.num_taken += take_down(arrays, engines.start, engines.stop, int(self.retries))
        for engine in engines:
            blank = self._blank[0][engine]
            first, count = int(blank["first_block"]), int(blank["num_usable_blocks"]) + 1
            arrays.replicas[engine] = blank
            arrays.api_server_free_s[engine] = 0.0
            arrays.replicas["accounted_s"][engine] = self.env.now
            arrays.blocks[first : first + count] = np.zeros(1, BLOCK)
            if len(self._blank_tiers):  # what lay in its own host memory is gone, too; a shared store stays
                arrays.tiers[engine] = self._blank_tiers[engine]
                if not self.simulation.fleet.shares_kv_store:
                    arrays.caches[engine] = self._blank_cache
                    arrays.chunk_buckets[engine] = 0
                arrays.fences[first : first + count] = arrays.handed_out[first : first + count] = 0
            if len(arrays.adapter_states):
                arrays.adapters[engine] = self._blank_adapters[0][engine]
                arrays.adapter_states[engine] = self._blank_adapters[1][engine]
            arrays.decode_fast_forward[engine] = layout.NONE
            arrays.engine_views[engine] = self._blank[1][engine]
        self._enter(slot, state)
        self._give_up_empty_node(slot // self.each_node)

    def _give_up_empty_node(self, node: int) -> None:
        on_it = self.states[node * self.each_node : (node + 1) * self.each_node]
        if all(state is State.ABSENT for state in on_it):
            self._warm_nodes.discard(node)

    def _show(self) -> None:
        from simulator.core.outage import send_on  # noqa: PLC0415

        arrays = self.simulation.arrays
        for slot, state in enumerate(self.states):
            engines = self.engines(slot)
            arrays.engine_views["routable"][engines.start : engines.stop] = state is State.READY
        is_closed = State.READY not in self.states
        arrays.cursor["is_closed"] = is_closed
        if (self._has_queue or not is_closed) and (arrays.requests["status"] == layout.AT_GATEWAY).any():
            send_on(arrays)
        counts = {state.value: len(self.slots(state)) for state in HELD}
        if self.history and self.history[-1].time_s == self.env.now:
            self.history.pop()
        self.history.append(Count(time_s=self.env.now, **counts))
