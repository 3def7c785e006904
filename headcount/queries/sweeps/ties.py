"""Which options may be as cheap as the best, as far as it is known."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headcount.queries.sweeps.layout import Layout
from simulator.study.statistics import Interval

MOST_TOLD: Final = 2


def ties(layouts: Sequence[Layout], best: Layout | None, named: Callable[[Layout], str]) -> Iterator[tuple[str, str]]:
    """A label and the options, by cost per user: those of the best's GPU, and those of other GPUs.

    Step times of one GPU are wrong alike, so that the interval of the ratio says all. Those of two GPUs are not.
    """
    pairs = [
        (each, ratio)
        for each in layouts
        if best is not None and each is not best and each.users
        if (ratio := each.cost_over(best)) is not None and ratio.low <= 1
    ]
    near = [pair for pair in pairs if best and pair[0].gpu_name == best.gpu_name and pair[1].high >= 1]
    others = [pair for pair in pairs if pair not in near]
    if near:
        found = _told([f"{named(each)} ({_cost(each)} per user)" for each, _ in near])
        yield "nearly as cheap", f"{found}: the difference is within its interval"
    if others:
        yield (
            "may be as cheap",
            f"{_told([_beside(named, *pair) for pair in others])}, because the interval of this GPU is wider",
        )


def _beside(named: Callable[[Layout], str], each: Layout, ratio: Interval) -> str:
    """What its expected users cost, and the users at 95 % confidence."""
    percent = round(100 * (ratio.mean - 1))
    change = f"{abs(percent)} % {'less' if percent < 0 else 'more'}" if percent else "the same"
    ends = f"{100 * (ratio.low - 1):+.0f} to {100 * (ratio.high - 1):+.0f} %"
    return f"{named(each)}: costs {change} per expected user ({ends}), but {_cost(each)} per user at 95 % confidence"


def _cost(each: Layout) -> str:
    return f"${each.usd_per_user_month or 0:,.2f}"


def _told(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - MOST_TOLD:,} more"] if len(texts) > MOST_TOLD else []
    return "; ".join([*texts[:MOST_TOLD], *more])
