"""By what layouts are ranked, and which may be as cheap as the best, as far as it is known."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from files.names import check_names
from headcount.queries.sweeps.layout import Layout
from headcount.text.units import latency_text, signed
from simulator.study.candidate import WITHIN, Level

FAR_BEHIND: Final = 1.5
"""By its estimate a layout is so many times as dear as the best: it is not simulated. Two estimates are off by less
(docs/measurements/screening.md)."""
MOST_TOLD: Final = 2
UNSURE: Final = "may be as cheap"
"""What is said of layouts that are cheaper by what is expected of them."""
NEAR: Final = 1.05
"""Times the cost of the best that count as nearly as cheap."""
SEVERAL: Final = 2
"""So many times as long is what a latency is worth telling for."""


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
    """Those that serve somebody at 95 % confidence first, then those that are expected to; ties keep order.

    Screened ones follow, then those that serve nobody.
    """
    measure = SORTS[sort]
    return tuple(sorted(layouts, key=lambda layout: (_tier(layout), measure(layout))))


def to_confirm(layouts: Sequence[Layout], sort: str) -> Layout | None:
    """The first of the ranking where few replications alone tell it; else the next that may come before it."""
    best, *others = ranked(layouts, sort)
    if best.is_coarse:
        return best
    coarse = [each for each in others if each.is_coarse and each.users and sort in ("cost", "users")]
    return next((each for each in coarse if _may_be_before(each, best, sort)), None)


def _may_be_before(each: Layout, best: Layout, sort: str) -> bool:
    """Whether it is within what few replications may be off by, or surely better where both are compared on these."""
    measure, better = SORTS[sort], WITHIN[Level.COARSE] if sort == "users" else 1 / WITHIN[Level.COARSE]
    return measure(each) * better <= measure(best) or _is_surely_before(each, best, sort)


def _is_surely_before(each: Layout, best: Layout, sort: str) -> bool:
    more, cost = each.users_over(best), each.cost_over(best)
    return bool(more and more.low > 1) if sort == "users" else bool(cost and cost.high < 1)


def _tier(layout: Layout) -> int:
    if layout.row is not None and layout.row.users:
        return 0 if layout.users else 1
    return 2 if layout.is_screened_only else 3


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


def ties(layouts: Sequence[Layout], best: Layout | None, named: Callable[[Layout], str]) -> Iterator[tuple[str, str]]:
    """A label and the options that may cost no more per user than the best.

    Step times of one GPU are wrong alike, so that the interval of the ratio says all. Those of two GPUs are not: one
    that is known less well may still be the cheaper one.
    """
    if best is None:
        return
    others = [each for each in layouts if each is not best and each.users]
    near = [each for each in others if _is_near(each, best)]
    unsure = [each for each in others if each not in near and _expected_cost(each) <= _expected_cost(best) < math.inf]
    if near:
        yield "nearly as cheap", _told([f"{named(each)} ({_nearness(each, best)})" for each in near])
    if unsure:
        found = [f"{named(each)}: {_expected(each, best)}" for each in sorted(unsure, key=_expected_cost)]
        yield UNSURE, _told(found)


def _is_near(each: Layout, best: Layout) -> bool:
    """Whether the cost shown is little more than the best's, or on the same GPU its interval holds the best's."""
    cost = each.cost_over(best)
    return cost is not None and (cost.mean <= NEAR or _is_alike(each, best))


def _is_alike(each: Layout, best: Layout) -> bool:
    cost = each.cost_over(best)
    return cost is not None and each.gpu_name == best.gpu_name and cost.low <= 1 <= cost.high


def _nearness(each: Layout, best: Layout) -> str:
    """Such as `$9.17 per user: +4 %`, the figure of its row, and why it counts where that is not plain."""
    cost, shown = each.cost_over(best), f"${each.usd_per_user_month or 0:,.2f} per user"
    if cost is None:
        return shown
    more = round(100 * (cost.mean - 1))
    includes = _is_alike(each, best) and more > 0
    less = round(100 * (1 - _expected_cost(each) / _expected_cost(best)))
    expected = f"; {less} % cheaper per expected user" if less > 0 else ""
    return f"{shown}: {signed(more)} %{', but its interval includes 0 %' * includes}{expected}"


def _expected(each: Layout, best: Layout) -> str:
    """Such as `7 % cheaper per expected user ($4.56 instead of $4.87), but known less well`, and far shorter waits."""
    mine, others = _expected_cost(each), _expected_cost(best)
    less = round(100 * (1 - mine / others))
    said = f"{f'{less} % cheaper' if less else 'as cheap'} per expected user (${mine:,.2f} instead of ${others:,.2f})"
    latencies = ((name, each.p95_s(name), best.p95_s(name)) for name in ("ttft_s", "tpot_s"))
    shorter = [
        f"{name[:4].upper()} p95 {latency_text(name, own)} instead of {latency_text(name, other)}"
        for name, own, other in latencies
        if own and other and SEVERAL * own <= other
    ]
    return ", ".join([f"{said}, but known less well", *shorter])


def _expected_cost(each: Layout) -> float:
    """Dollars a month per expected user."""
    users = each.row.users if each.row else 0
    return (each.usd_per_month or math.inf) / users if users else math.inf


def _told(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - MOST_TOLD:,} more"] if len(texts) > MOST_TOLD else []
    return "; ".join([*texts[:MOST_TOLD], *more])
