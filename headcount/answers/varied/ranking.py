"""By what layouts are ranked."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from boundary.names import check_names
from headcount.answers.varied.layout import Layout


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
    """Raise ValueError for an order that is none, with the nearest that is."""
    check_names([sort], SORTS, "order")


def ranked(layouts: Sequence[Layout], sort: str) -> tuple[Layout, ...]:
    """Simulated ones that serve somebody first, then screened ones, then those that serve nobody; ties keep order."""
    measure = SORTS[sort]
    return tuple(sorted(layouts, key=lambda layout: (_tier(layout), measure(layout))))


def _tier(layout: Layout) -> int:
    if layout.row is not None and layout.row.users:
        return 0
    return 1 if layout.is_screened_only else 2
