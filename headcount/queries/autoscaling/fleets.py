"""Which fleets one load is served with: those that are asked for, the smallest fixed one, a suggested autoscaler."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headcount.queries.result import Progress, Watch
from simulator.fleet.scaler import goal_of, with_target

if TYPE_CHECKING:
    from headcount.queries.autoscaling.over_time import FleetOverTime, LoadOverTime, Question

SUGGESTED: Final = (0.9, 0.75, 0.6)
"""Targets tried, as shares of the requests in flight of a replica of the smallest fixed fleet in its busiest hour: by
judgement, the first that meets the SLO counts."""


def fleets_tried(
    asked: "Question", load: "LoadOverTime", progress: Watch
) -> "tuple[Question, tuple[FleetOverTime, ...]]":
    """All fleets, the fixed ones last, with the question that has the suggested autoscaler after those asked for."""
    fleets, count = _asked_and_fixed(asked, load, progress), len(asked.autoscalers)
    if not count or fleets[-1].shown.attainment < asked.slo.attainment:
        return asked, fleets
    found = _suggested(asked, load, fleets, progress)
    if found is None or found.autoscaler is None:
        return asked, fleets
    return replace(asked, autoscalers=(*asked.autoscalers, found.autoscaler)), (*fleets[:count], found, *fleets[count:])


def _asked_and_fixed(asked: "Question", load: "LoadOverTime", progress: Watch) -> "tuple[FleetOverTime, ...]":
    """What is asked for and, beside autoscalers, the smallest fixed fleet that meets the SLO, found by bisection."""
    names = asked.names
    total = len(names) + bool(asked.autoscalers)
    fleets = []
    for number, name in enumerate(names):
        progress(Progress(done=number, total=total, note=name))
        fleets.append(asked.fleet(number, load))
    few, many, smallest = asked.min_replicas, asked.max_replicas, fleets[-1]
    if not asked.autoscalers or smallest.shown.attainment < asked.slo.attainment:
        return tuple(fleets)
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
    return (*fleets, smallest) if smallest is not fleets[-1] else tuple(fleets)


def _suggested(
    asked: "Question", load: "LoadOverTime", fleets: "tuple[FleetOverTime, ...]", progress: Watch
) -> "FleetOverTime | None":
    """The autoscaler that did best, with the highest target that meets the SLO; None where it has no such target.

    Or where one that was asked for is the cheapest, or no target saves GPU-hours. The last of `fleets` is the smallest
    fixed one, which meets the SLO.
    """
    count, smallest = len(asked.autoscalers), fleets[-1].shown
    target = asked.slo.attainment
    least_s = min(fleet.shown.held_s for fleet in fleets if fleet.shown.attainment >= target)

    def merit(number: int) -> tuple[float, float]:
        shown = fleets[number].shown
        return min(shown.attainment, target), -shown.held_s

    closest = max(range(count), key=merit)
    given, best = asked.autoscalers[closest], fleets[closest].shown
    goal = goal_of(given)
    is_cheapest = best.attainment >= target and best.held_s == least_s
    if is_cheapest or not isinstance(given, str) or goal is None or smallest.most_replicas <= asked.min_replicas:
        return None
    for share in SUGGESTED:
        changed = with_target(given, goal, share * smallest.in_flight_at_peak)
        if changed is None:
            return None
        if changed in asked.autoscalers:
            continue
        progress(Progress(done=count, total=count + 1, note=changed))
        found = replace(asked, autoscalers=(changed,)).fleet(0, load)
        if found.shown.attainment >= target:
            return found if found.shown.held_s < least_s else None
    return None
