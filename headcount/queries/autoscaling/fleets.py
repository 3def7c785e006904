"""Which fleets one load is served with: those that are asked for, fixed ones, and autoscalers with better targets."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headcount.queries.autoscaling.confidence import Judge, SureFleet, judge_of
from headcount.queries.autoscaling.targets import Tuner
from headcount.queries.result import Progress, Watch

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import Autoscaler, FleetOverTime, LoadOverTime, Question

    Fleets = list[FleetOverTime]


@dataclass(frozen=True, kw_only=True)
class FleetsTried:
    """All fleets, an autoscaler with a better target after the one that was asked for, the fixed ones last.

    `asked` has the autoscalers in the order of `fleets`; `sure` is None without autoscalers, where no fixed fleet meets
    the SLO, and where step times were given.
    """

    asked: "Question"
    fleets: "tuple[FleetOverTime, ...]"
    sure: SureFleet | None = None


def fleets_tried(asked: "Question", load: "LoadOverTime", progress: Watch) -> FleetsTried:
    """Run them, and judge at 95 % confidence those that may be the cheapest."""
    fleets = _asked_and_fixed(asked, load, progress)
    smallest, count = fleets[-1].shown, len(asked.autoscalers)
    if not count or smallest.attainment < asked.slo.attainment:
        return FleetsTried(asked=asked, fleets=tuple(fleets))
    tuner = Tuner(asked=asked, load=load, smallest=smallest, progress=progress)
    scaled, fixed = tuner.with_tuned(fleets[:count]), fleets[count:]
    judge, sure = judge_of(asked, load, smallest, progress), None
    if judge is not None:
        sure = judge.smallest_fixed(smallest)
        fixed = _with_sure(asked, load, fixed, sure)
        cheapest = next((fleet for fleet in fixed if fleet.shown.most_replicas == sure.replicas), None)
        if cheapest is not None:
            scaled = _judged(scaled, tuner, cheapest.shown.held_s, judge)
    whole = replace(asked, autoscalers=tuple(fleet.scaler for fleet in scaled if fleet.scaler is not None))
    return FleetsTried(asked=whole, fleets=(*scaled, *fixed), sure=sure)


def _judged(scaled: "Fleets", tuner: Tuner, least_s: float, judge: Judge) -> "Fleets":
    """Judge those that cost less than the cheapest fixed one that is sure, cheapest first, up to the first that is.

    One with a better target that is not sure gives its place to the same autoscaler with the next target.
    """
    found, target = list(scaled), tuner.asked.slo.attainment
    while True:
        open_ones = [
            place
            for place, fleet in enumerate(found)
            if fleet.is_sure is None and fleet.shown.attainment >= target and fleet.shown.held_s < least_s
        ]
        if not open_ones:
            return found
        place = min(open_ones, key=lambda place: found[place].shown.held_s)
        fleet = found[place]
        held_s = judge.held_s(fleet.name, _scaled_by(fleet.scaler))
        found[place] = replace(fleet, is_sure=held_s is not None, held_if_slow_s=held_s)
        if held_s is not None:
            return found
        later = tuner.next_target(fleet)
        if later is not None and later.shown.held_s < least_s:
            found[place] = later


def _scaled_by(scaler: "Autoscaler | None") -> "Callable[[Question], Question]":
    assert scaler is not None, "only autoscaled fleets are judged so"
    return lambda one: replace(one, autoscalers=(scaler,))


def _with_sure(asked: "Question", load: "LoadOverTime", fixed: "Fleets", sure: SureFleet) -> "Fleets":
    """The fixed fleets, with the smallest that is sure before the smallest that is not."""
    sizes = [fleet.shown.most_replicas for fleet in fixed]
    if sure.replicas is not None and sure.replicas not in sizes:
        fixed = [*fixed[:-1], asked.fixed_at(sure.replicas).fleet(0, load), fixed[-1]]
    enough = asked.max_replicas + 1 if sure.replicas is None else sure.replicas
    return [replace(fleet, is_sure=fleet.shown.most_replicas >= enough) for fleet in fixed]


def _asked_and_fixed(asked: "Question", load: "LoadOverTime", progress: Watch) -> "Fleets":
    """What is asked for and, beside autoscalers, the smallest fixed fleet that meets the SLO, found by bisection."""
    names = asked.names
    total = len(names) + bool(asked.autoscalers)
    fleets = []
    for number, name in enumerate(names):
        progress(Progress(done=number, total=total, note=name))
        fleets.append(asked.fleet(number, load))
    few, many, smallest = asked.min_replicas, asked.max_replicas, fleets[-1]
    if not asked.autoscalers or smallest.shown.attainment < asked.slo.attainment:
        return fleets
    tried = round(fleets[0].shown.mean_replicas)
    while few < many:
        tried = min(max(tried, few), many - 1)
        fixed = asked.fixed_at(tried)
        progress(Progress(done=len(names), total=total, note=fixed.names[0]))
        found = fixed.fleet(0, load)
        if found.shown.attainment >= asked.slo.attainment:
            many, smallest = tried, found
        else:
            few = tried + 1
        tried = (few + many) // 2
    return [*fleets, smallest] if smallest is not fleets[-1] else fleets
