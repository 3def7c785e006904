"""Two rows beside each other: their ratio, paired by replication, so that common random numbers cancel."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from simulator.study.statistics import Interval

if TYPE_CHECKING:
    from simulator.study.capacity_row import CapacityRow
    from simulator.study.slo_crossing import SLOCrossing

COARSE_ERROR: Final = 0.05
"""By which the users of a coarse row may be off, beside a confirmed one's (docs/measurements/search.md)."""
UNSURE_ERROR: Final = 0.15
"""The same where steps may take UNSURE_STEPS longer: its low end is scaled, not simulated."""
UNSURE_STEPS: Final = 0.3


def coarse_error(step_time_error: float | None) -> float:
    """By which a coarse row's users may be off, by the share by which its steps may take longer."""
    return UNSURE_ERROR if step_time_error is not None and step_time_error >= UNSURE_STEPS else COARSE_ERROR


def users_ratio(row: "CapacityRow", base: "CapacityRow", *, numbers: int | None = None) -> Interval | None:
    """The users of a row over those of another, with its 95 % interval over replications; None if either has none.

    The users at 95 % confidence, which people compare; the expected ones where a row has none of these. The interval
    is that of the expected users' ratio, as a share, and wider by `coarse_error` where one of them is coarse. 1 to 1
    for a row and itself. `numbers` is how many replications count, where not all that both have.
    """
    found = expected_ratio(row, base, numbers=numbers)
    if found is None or not row.users_low or not base.users_low:
        return found
    shown = times(found, row.users_low / base.users_low / found.mean)
    if row.evidence == base.evidence:
        return shown
    wider = 1 + coarse_error((base if base.evidence == "coarse" else row).step_time_error)
    return Interval(shown.mean, shown.low / wider, shown.high * wider)


def expected_ratio(row: "CapacityRow", base: "CapacityRow", *, numbers: int | None = None) -> Interval | None:
    """The same of the expected users."""
    if row.evidence != base.evidence:  # a confirmed row is paired by what few replications showed of it
        row, base = row.coarse or row, base.coarse or base
    if not row.users or not base.users or row.knee is None or base.knee is None:
        return None
    found = _first(row.knee, numbers).over(_first(base.knee, numbers))
    return times(found, _users_per_size(row) / _users_per_size(base))


def chain_ratios(rows: "Sequence[CapacityRow]", *, numbers: int | None = None) -> list[Interval | None]:
    """Each row over the one before it; where all serve somebody, their product is the last row over the first."""
    numbers = numbers if numbers is not None else common_replications(rows)
    pairs = zip(rows[1:], rows, strict=False)
    return [users_ratio(row, before, numbers=numbers) for row, before in pairs]


def common_replications(rows: "Sequence[CapacityRow]") -> int | None:
    """How many replications all of them have that serve somebody."""
    return min((len(row.knee.log_sizes) for row in rows if row.knee is not None), default=None)


def times(found: Interval, factor: float) -> Interval:
    """A ratio of something that is users times a factor, such as users per dollar."""
    return Interval(found.mean * factor, found.low * factor, found.high * factor)


def inverse(found: Interval) -> Interval:
    """The ratio the other way round, such as dollars per user."""
    return Interval(1 / found.mean, 1 / found.high, 1 / found.low if found.low > 0 else math.inf)


def _first(knee: "SLOCrossing", numbers: int | None) -> "SLOCrossing":
    return knee if numbers is None else replace(knee, log_sizes=knee.log_sizes[:numbers])


def _users_per_size(row: "CapacityRow") -> float:
    """1 for users; of a trace, users for each request/s."""
    return row.users / row.point.size if row.point else 1.0
