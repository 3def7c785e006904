"""How many fixed replicas meet the SLO at 95 % confidence, though step times and TTFT err."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headcount.queries.result import Progress, Watch
from simulator.fleet.scaler import ScalerFactory, scaler_name
from simulator.study.capacity_interval import ttft_limits
from simulator.study.over_time import OverTime

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import LoadOverTime, Question


@dataclass(frozen=True, kw_only=True)
class SureFleet:
    """The smallest fixed fleet that meets the SLO with steps, and with TTFT, as long as 95 % of servers have at most.

    `replicas` is None where the most that are allowed miss it; `autoscaled` is the same of the cheapest fleet that
    meets the SLO by mean times, None where that one is fixed.
    """

    replicas: int | None
    autoscaled: bool | None = None
    step_error: float
    ttft_error: float

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


def sure_fleet(
    asked: "Question", load: "LoadOverTime", smallest: OverTime, best: "str | ScalerFactory | None", progress: Watch
) -> SureFleet | None:
    """From the smallest fixed fleet that meets the SLO by mean times on; None where step times were given.

    `best` is the autoscaler of the cheapest fleet that does; None where that one is fixed.
    """
    latency, sequences = asked.plan.latency, max(smallest.in_flight_at_peak, 1.0)
    if latency.is_given:
        return None
    step_error, ttft_error = latency.step_error_at(sequences), latency.ttft_error_at(sequences)
    slower = replace(asked, plan=asked.plan.with_step_times(1 + step_error))
    later = replace(asked, slo=ttft_limits(asked.slo, ttft_error)[0])

    def meets(name: str, changed: "Callable[[Question], Question]") -> bool:
        """Each error alone, as `capacity` has them."""
        progress(Progress(done=0, total=1, note=f"{name} at 95 % confidence"))
        each = [slower] if asked.slo.ttft_s is None or not ttft_error else [slower, later]
        return all(changed(one).fleet(0, load).shown.attainment >= asked.slo.attainment for one in each)

    def fixed_meets(count: int) -> bool:
        return meets(f"{count} replicas", lambda one: one.fixed_at(count))

    few, many = smallest.most_replicas, asked.max_replicas + 1
    tried = few
    while few < many:
        if fixed_meets(tried):
            many = tried
        else:
            few = tried + 1
        guessed = math.ceil(smallest.most_replicas * (1 + step_error))
        tried = min(max(guessed if many > asked.max_replicas else (few + many) // 2, few), many - 1)
    replicas = many if many <= asked.max_replicas else None
    found = SureFleet(replicas=replicas, step_error=step_error, ttft_error=ttft_error)
    if best is None:
        return found
    return replace(found, autoscaled=meets(scaler_name(best), lambda one: replace(one, autoscalers=(best,))))
