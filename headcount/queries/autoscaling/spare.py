"""Whether a planned fleet's spare servers suffice: they fail while it serves its users."""

import math
from dataclasses import dataclass
from typing import Final

from headcount.queries.autoscaling.over_time import Question
from headcount.text.units import counted, percent
from simulator.fleet.events import Event, Extent
from simulator.fleet.operation import Operation
from simulator.fleet.startup import Startup
from simulator.simulation import Simulation
from simulator.study.fleets.search import FleetSearch
from simulator.study.over_time import over_time
from workloads.populations.population import Population
from workloads.populations.presence import users_over_time

MOST_USERS: Final = 4_000  # for the sake of time
FAILS_S, ENDS_S = 600.0, 2_400.0  # once caches are full; long enough for new nodes to start


@dataclass(frozen=True, kw_only=True)
class SpareTried:
    """What a simulated failure of the spare servers did."""

    servers: int
    """Of the fleet, spare ones included."""
    failed_servers: int
    attainment: float
    """Of the whole run of 40 minutes, the failure after 10 in it."""
    attainment_lowest_minute: float
    recovered_after_s: float | None
    """Until attainment meets the target for five minutes on end; None: not within the run."""
    restarted_after_s: float
    """New servers on new nodes serve again after so long."""
    requests_interrupted: int

    def __str__(self) -> str:
        held = "too few, and not recovered within 30 min"
        if self.recovered_after_s is not None:
            after_s = self.recovered_after_s
            held = "still enough" if after_s == 0 else f"too few, but recovered after {after_s / 60:.0f} min"
        worst = percent(round(self.attainment_lowest_minute, 3))
        fails, back = ("fails", "is") if self.failed_servers == 1 else ("fail at once", "are")
        return (
            f"simulated: {self.failed_servers:,} of {counted(self.servers, 'server')} {fails} and {back} back after "
            f"{self.restarted_after_s / 60:.0f} min; in the worst minute {worst} of answers are within the limits, "
            f"{held}; interrupted requests, sent again: {self.requests_interrupted:,}"
        )


def try_spare(race: FleetSearch) -> SpareTried | None:
    """One run of the cheapest fleet; None without spare servers, of a trace, or of more users than are tried.

    Nor of two pools: the failure of one of their engines is not simulated.
    """
    best, asked = race.best, race.question
    if best is None or not race.is_over or not asked.spare or asked.users > MOST_USERS:
        return None
    if not isinstance(asked.workload, Population) or best.layout.disaggregated is not None:
        return None
    plan, servers = best.layout.plan, best.servers + asked.spare
    event = Event(kind="zone", time_s=FAILS_S, extent=Extent(replicas=asked.spare))
    whole = Question(
        plan=plan, router=best.layout.router, slo=asked.slo, autoscalers=(), min_replicas=servers,
        max_replicas=servers, initial_replicas=None, events=(event,), startup=Startup(), grace_period_s=0.0,
        sends_again=True, seed=asked.seed,
    )  # fmt: skip
    table = users_over_time(
        asked.workload, math.ceil(asked.users), duration_s=ENDS_S, seed=asked.seed,
        max_model_len=plan.engine.max_model_len,
    )  # fmt: skip
    operation = Operation(Simulation(plan.fleet(servers, best.layout.router), table, seed=asked.seed), whole.operations)
    operation.run(2 * ENDS_S)
    shown = over_time(operation, asked.slo, ENDS_S)
    (recovery,) = shown.recoveries
    return SpareTried(
        servers=servers,
        failed_servers=asked.spare,
        attainment=shown.attainment,
        attainment_lowest_minute=recovery.lowest,
        recovered_after_s=recovery.recovered_s,
        restarted_after_s=whole.stages()[0].total_s,
        requests_interrupted=shown.num_taken,
    )
