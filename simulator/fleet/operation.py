"""A fleet that an autoscaler grows and shrinks, and that events befall, while it serves a load."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from files.errors import HeadcountError
from simulator.fleet.events import Event
from simulator.fleet.replicas import Count, Process, Replicas, State
from simulator.fleet.scaler import Observed, Scaler, ScalerFactory, find_scaler
from simulator.simulation import Simulation

IntArray = NDArray[np.int64]
UPDATE_LOOK_S = 1.0  # how often a rolling update looks whether a replica has gone or come


@dataclass(frozen=True, kw_only=True)
class Operations:
    """How a fleet is operated. Raises HeadcountError for limits that contradict each other."""

    min_replicas: int
    max_replicas: int
    initial_replicas: int | None = None
    """Ready at the start; None: the least."""
    scaler: str | ScalerFactory | None = None
    """None: the fleet is fixed at its initial size."""
    events: tuple[Event, ...] = ()
    start_s: Callable[[bool], float]
    """Seconds from the wish for a replica to its first request, on a new node or on one that has started one before."""
    replicas_per_node: int = 1
    grace_s: float = 30.0
    """Kubernetes' terminationGracePeriodSeconds."""
    retries: bool = True
    """The gateway sends what a lost replica had not answered once more, from the start."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise HeadcountError(
                f"min_replicas {self.min_replicas} and max_replicas {self.max_replicas}; give at least 0 and 1, the "
                "least not above the most"
            )
        if not self.min_replicas <= self.first <= self.max_replicas:
            raise HeadcountError(
                f"initial_replicas is {self.first}; give a number from {self.min_replicas} to {self.max_replicas}"
            )

    @property
    def first(self) -> int:
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas


class Operation:
    """One run of a fleet that is operated; the simulation has engines for `max_replicas`."""

    def __init__(self, simulation: Simulation, given: Operations) -> None:
        self.simulation = simulation
        self.given = given
        self.plane = ControlPlane(simulation)
        self.replicas = Replicas(
            simulation,
            self.plane.env,
            num_ready=given.first,
            start_s=given.start_s,
            engines_each=simulation.fleet.num_engines // given.max_replicas,
            each_node=given.replicas_per_node,
            grace_s=given.grace_s,
            retries=given.retries,
        )
        self._wanted = given.first
        self._updating = 0  # replicas that an update has taken and not yet given back
        for event in given.events:
            self.plane.env.process(self._apply_event(event))
        if given.scaler is not None:
            self.plane.env.process(self._scales(find_scaler(given.scaler)()))

    def run(self, until_s: float = math.inf) -> None:
        """Serve to `until_s`, or until nothing is left to do; what no replica will ever take stays at the gateway."""
        self.plane.run(until_s)

    @property
    def history(self) -> list[Count]:
        return self.replicas.history

    # -- the autoscaler

    def _scales(self, scaler: Scaler) -> Process:
        metrics = Metrics(self.simulation, self.replicas, self.given)
        while True:
            yield self.plane.env.timeout(scaler.period_s)
            yield self.plane.env.timeout(0)  # replicas that are ready or gone at this instant come first
            seen = metrics.observed(self._wanted)
            self._wanted = seen.bounded(int(scaler.desired_replicas(seen)))
            self._follow()

    def _follow(self) -> None:
        self.replicas.scale_to(self._wanted - self._updating)

    # -- events

    def _apply_event(self, event: Event) -> Process:
        yield self.plane.env.timeout(event.time_s)
        if event.kind == "update":
            yield from self._update()
            return
        hit = self.replicas.slots(State.READY)[: event.extent.replicas]
        for slot in hit:
            self.replicas.fail(slot, node=event.takes_node)
        yield self.plane.env.timeout(event.extent.restarts_after_s)
        for slot in hit:
            self.replicas.restart(slot, is_wanted=self.replicas.num_wanted < self._wanted)

    def _update(self) -> Process:
        """Each replica that is ready now goes, and is started again before the next one goes."""
        env, replicas = self.plane.env, self.replicas
        for slot in replicas.slots(State.READY):
            if replicas.states[slot] is not State.READY:
                continue
            self._updating += 1
            replicas.drain(slot)
            while replicas.states[slot] is State.DRAINING:
                yield env.timeout(UPDATE_LOOK_S)
            self._updating -= 1
            replicas.restart(slot, is_wanted=replicas.num_wanted < self._wanted)
            while replicas.states[slot] is State.STARTING:
                yield env.timeout(UPDATE_LOOK_S)


class Metrics:
    """What an autoscaler reads of the fleet: gauges of the moment, means since it looked before."""

    def __init__(self, simulation: Simulation, replicas: Replicas, given: Operations) -> None:
        self._simulation, self._replicas, self._given = simulation, replicas, given
        self._before_s, self._arrived, self._in_flight_s = 0.0, 0, 0.0

    def observed(self, desired_replicas: int) -> Observed:
        """The metrics of this instant."""
        now_s, state = self._simulation.now_s, self._simulation.arrays.replicas
        cursor, ready = self._simulation.arrays.cursor[0], tuple(self._replicas.slots(State.READY))
        elapsed_s = now_s - self._before_s
        held = self._replicas.num_held_requests
        total_s, arrived = self._in_flight_integral(now_s), int(cursor["num_arrived"])
        not_in_integral = held if self._simulation.held_s is None else 0
        mean = (total_s - self._in_flight_s) / elapsed_s + not_in_integral if elapsed_s else 0.0
        found = Observed(
            time_s=now_s,
            elapsed_s=elapsed_s,
            replicas=desired_replicas,
            min_replicas=self._given.min_replicas,
            max_replicas=self._given.max_replicas,
            ready=ready,
            running=tuple(int(value) for value in self._by_slot(ready, state["num_running"])),
            waiting=tuple(int(value) for value in self._by_slot(ready, state["num_waiting"])),
            kv_usage=self._kv_share(ready, state["num_usable_blocks"] - state["num_free_blocks"]),
            queued_kv=self._kv_share(ready, self._queued_blocks()),
            held=held,
            in_flight_mean=mean,
            arrived=arrived - self._arrived,
        )
        self._before_s, self._arrived, self._in_flight_s = now_s, arrived, total_s
        return found

    def _by_slot(self, ready: tuple[int, ...], values: IntArray) -> list[int]:
        """Sums over the engines of each ready replica."""
        return [int(values[engines.start : engines.stop].sum()) for engines in map(self._replicas.engines, ready)]

    def _kv_share(self, ready: tuple[int, ...], blocks: IntArray) -> tuple[float, ...]:
        usable = self._by_slot(ready, self._simulation.arrays.replicas["num_usable_blocks"])
        return tuple(used / all_of for used, all_of in zip(self._by_slot(ready, blocks), usable, strict=True))

    def _queued_blocks(self) -> IntArray:
        """Blocks of the smallest group that the prompts waiting at each engine will take."""
        arrays = self._simulation.arrays
        sizes = arrays.pools["block_size"][arrays.replicas["pool"]]
        tokens = np.zeros(len(arrays.replicas), np.int64)
        for engine in np.flatnonzero(arrays.replicas["num_waiting"]):
            request = int(arrays.replicas["waiting_head"][engine])
            while request >= 0:
                tokens[engine] += arrays.requests["prompt"][request]
                request = int(arrays.requests["next"][request])
        found: IntArray = -(-tokens // sizes)
        return found

    def _in_flight_integral(self, now_s: float) -> float:
        """Request-seconds in all engines, and in the gateway's queue, up to now."""
        state, totals = self._simulation.arrays.replicas, self._simulation.totals
        since_s = now_s - state["accounted_s"]
        current = since_s * (state["num_running"] + state["num_waiting"])
        in_engines_s = float((totals["running_s"] + totals["waiting_s"] + current).sum())
        return in_engines_s + (self._simulation.held_s or 0.0)


class ControlPlane:
    """SimPy processes beside a simulation: what is rare and varied happens between the core's events.

    At one instant steps end, then `env`'s events come, then requests arrive, then schedulers decide. Processes are
    started with `env.process` before `run`; they end with the load.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.env = simpy.Environment(initial_time=simulation.now_s)

    def run(self, until_s: float = math.inf) -> None:
        """Advance the simulation to `until_s`, or until nothing is left to do, the processes with it."""
        while (next_s := self.env.peek()) <= until_s and self.simulation.run_to_control(next_s):
            while self.env.peek() == next_s:
                self.env.step()
        self.simulation.run(until_s)
