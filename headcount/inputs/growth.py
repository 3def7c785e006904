"""How the number of users grows: at once, or by a share each month, quarter or year."""

from dataclasses import dataclass
from typing import Final

from files.errors import HeadcountError
from files.names import shortened
from simulator.engines.values import Extra

MOST_MONTHS: Final = 120
PERIODS: Final = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, kw_only=True)
class GrowthRate:
    """A share on top after so many months, again and again."""

    share: float
    months: int

    @property
    def text(self) -> str:
        """Such as `30 % a quarter`."""
        named = {months: name for name, months in PERIODS.items()}
        return f"{100 * self.share:.4g} % a {named[self.months]}"


@dataclass(frozen=True)
class Growth:
    """A share on top, at once or again and again: `30%`, `30%/quarter`."""

    name: str = "SHARE|SHARE/quarter"

    def read(self, given: object) -> float | GrowthRate:
        if isinstance(given, GrowthRate):
            return given
        share, slash, period = str(given).partition("/")
        if slash and period.strip() not in PERIODS:
            text = shortened(period.strip())
            raise HeadcountError(f"'{text}' is no period; give {', '.join(PERIODS)}, such as 30%/quarter")
        found = Extra().read(share)
        return GrowthRate(share=found, months=PERIODS[period.strip()]) if slash else found


@dataclass(frozen=True, kw_only=True)
class Period:
    """Some months with the same number of users: `factor` times those of the first."""

    start_month: int
    months: int
    factor: float


def periods_of(rate: GrowthRate | None, months: int) -> tuple[Period, ...]:
    """So many months in periods of growth; in one without growth."""
    step, share = (months, 0.0) if rate is None else (rate.months, rate.share)
    return tuple(
        Period(start_month=start, months=min(step, months - start), factor=(1 + share) ** (start // step))
        for start in range(0, months, step)
    )
