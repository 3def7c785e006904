"""By what layouts are ranked."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from files.names import check_names
from headcount.queries.sweeps.layout import Layout

FAR_BEHIND: Final = 1.5
"""By its estimate a layout is so many times as dear as the best: it is not simulated. Two estimates are off by less
(docs/measurements/screening.md)."""


def _least(value: float | None) -> float:
    """A missing figure is the last."""
    return math.inf if value is None else value


SORTS: Final[dict[str, Callable[[Layout], float]]] = {
    "cost": lambda layout: _least(layout.usd_per_user_month),
    "users": lambda layout: -layout.users,
    "ttft": lambda layout: _least(layout.p95_s("ttft_s")),
    "tpot": lambda layout: _least(layout.p95_s("tpot_s")),
    "month": lambda layout: _least(layout.usd_per_month) if layout.users else math.inf,
}
"""What a layout is ranked by, the best being the least."""


def check_sort(sort: str) -> None:
    """Raise HeadcountError for an order that is none, with the nearest that is."""
    check_names([sort], SORTS, "order")


def ranked(layouts: Sequence[Layout], sort: str) -> tuple[Layout, ...]:
    """Simulated ones that serve somebody first, then screened ones, then those that serve nobody; ties keep order."""
    measure = SORTS[sort]
    return tuple(sorted(layouts, key=lambda layout: (_tier(layout), measure(layout))))


def _tier(layout: Layout) -> int:
    if layout.row is not None and layout.row.users:
        return 0
    return 1 if layout.is_screened_only else 2


def is_promising(found: Sequence[Layout], place: int, sort: str) -> bool:
    """Whether a layout runs, and is the base, or by its estimate not far behind the best."""
    layout = found[place]
    if layout.looked is None or layout.looked.plan is None:
        return False
    if place == 0 or sort in ("ttft", "tpot") or layout.looked.disaggregated is not None:
        return True
    costs = [_estimated_cost(each, sort) for each in found]
    least = min(costs)
    return costs[place] <= FAR_BEHIND * least or least == math.inf


def _estimated_cost(layout: Layout, sort: str) -> float:
    """What a user costs by the estimate; where users are what counts, or there is no price, a user counts alone."""
    if not layout.users:
        return math.inf
    month = layout.usd_per_month if sort != "users" else None
    return (month or 1.0) / layout.users
