"""Which fleets meet the SLO at 95 % confidence, though step times and TTFT err."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headcount.queries.result import Progress, Watch
from simulator.study.capacity_interval import ttft_limits
from simulator.study.over_time import OverTime

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import LoadOverTime, Question


@dataclass(frozen=True, kw_only=True)
class SureFleet:
    """The smallest fixed fleet that meets the SLO with steps, and with TTFT, as long as 95 % of servers have at most.

    `replicas` is None where the most that are allowed miss it.
    """

    replicas: int | None
    step_error: float
    ttft_error: float

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Serves a load with steps, and with TTFT, as long as 95 % of servers have at most: each error alone, as `capacity`
    has them."""

    asked: "Question"
    load: "LoadOverTime"
    step_error: float
    ttft_error: float
    progress: Watch

    def held_s(self, name: str, changed: "Callable[[Question], Question]") -> float | None:
        """Replica-seconds of the first fleet of the changed question, if it meets the SLO both ways: the larger."""
        self.progress(Progress(done=0, total=1, note=f"{name} at 95 % confidence"))
        asked = self.asked
        each = [replace(asked, plan=asked.plan.with_step_times(1 + self.step_error))]
        if asked.slo.ttft_s is not None and self.ttft_error:
            each.append(replace(asked, slo=ttft_limits(asked.slo, self.ttft_error)[0]))
        most_s = 0.0
        for one in each:
            shown = changed(one).fleet(0, self.load).shown
            if shown.attainment < asked.slo.attainment:
                return None
            most_s = max(most_s, shown.held_s)
        return most_s

    def smallest_fixed(self, by_mean_times: OverTime) -> SureFleet:
        """From the smallest fixed fleet that meets the SLO by mean times on."""
        fewest, most = by_mean_times.most_replicas, self.asked.max_replicas
        few, many = fewest, most + 1
        tried = few
        while few < many:
            if self.held_s(f"{tried} replicas", _fixed_at(tried)) is not None:
                many = tried
            else:
                few = tried + 1
            guessed = math.ceil(fewest * (1 + self.step_error))
            tried = min(max(guessed if many > most else (few + many) // 2, few), many - 1)
        return SureFleet(
            replicas=many if many <= most else None, step_error=self.step_error, ttft_error=self.ttft_error
        )


def _fixed_at(replicas: int) -> "Callable[[Question], Question]":
    return lambda asked: asked.fixed_at(replicas)


def judge_of(asked: "Question", load: "LoadOverTime", smallest: OverTime, progress: Watch) -> Judge | None:
    """With the errors at the load of the smallest fixed fleet that meets the SLO; None where step times were given."""
    latency, sequences = asked.plan.latency, max(smallest.in_flight_at_peak, 1.0)
    if latency.is_given:
        return None
    return Judge(
        asked=asked,
        load=load,
        step_error=latency.step_error_at(sequences),
        ttft_error=latency.ttft_error_at(sequences),
        progress=progress,
    )
