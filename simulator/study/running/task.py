"""The unit of work of a study: one replication of a load on a fleet."""

from dataclasses import dataclass
from typing import NamedTuple

from simulator.fleet.fleet import Fleet
from simulator.study.loads import Load
from simulator.study.replication import Replication, replicate
from simulator.study.slo import SLO
from simulator.study.store.origin import Origin, origin


class Outcome(NamedTuple):
    """A replication, and where it was computed."""

    replication: Replication
    origin: Origin


@dataclass(frozen=True, kw_only=True)
class Task:
    """What decides one simulation, beside the code."""

    fleet: Fleet
    load: Load
    size: float
    slo: SLO
    replication: int  # its number: each has random numbers of its own

    def run(self) -> Outcome:
        """Simulate it here."""
        return Outcome(replicate(self.fleet, self.load, self.size, self.slo, self.replication), origin())
