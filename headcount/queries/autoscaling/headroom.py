"""How much room a target must leave for the load that comes while a replica starts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.study.over_time import OverTime

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import Question


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Growth of the load within a start, and the target that it leaves."""

    start_s: float
    """Of a replica on a new node."""
    growth: float
    """Requests in flight after a start over those before it, at most, where the fewest replicas do not suffice."""
    carried_in_flight: float
    """By each replica of the smallest fixed fleet that meets the SLO, in its busiest hour."""

    @property
    def target_in_flight(self) -> float:
        """From which a replica comes to what it carries while another one starts."""
        return self.carried_in_flight / self.growth


def headroom_of(asked: "Question", largest: OverTime, smallest: OverTime) -> Headroom:
    """Of a load, as the largest fixed fleet has it in flight: in one that is nearly full, queues grow on top of it."""
    start_s, least = asked.stages()[0].total_s, max(asked.min_replicas, 1) / smallest.most_replicas
    growth = largest.growth_within(max(start_s, 1.0), least * largest.in_flight_at_peak * largest.most_replicas)
    return Headroom(start_s=start_s, growth=growth, carried_in_flight=smallest.in_flight_at_peak)
