"""SimPy processes beside a simulation: what is rare and varied happens between the core's events."""

import math

import simpy

from simulator.simulation import Simulation


class ControlPlane:
    """A SimPy environment on the simulation's clock.

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
