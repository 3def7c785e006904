"""When people are there: requests by hour of the day or week, and the peak of several time zones together."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from files.names import shortened
from files.reading import InputError
from workloads.distributions import FloatArray

RAGPULSE: Final = (
    "RAGPulse (Wang et al., arXiv 2511.12979; github.com/flashserve/RAGPulse, MIT): 7,106 requests of a week from "
    "Wednesday, 10 September 2025, 12:00"
)
_STEPS: Final = 12  # of an hour: time zones differ by halves and quarters of one
_ZONE: Final = re.compile(r"^(?:UTC)?([+-]?)(\d{1,2})(?::([0-5]\d))?$", re.IGNORECASE)
_DAY, _WEEK = 24, 168
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Requests by hour, local time: 24 of a day, or 168 of a week from Monday 0:00. Raises InputError."""

    hours: tuple[float, ...]
    source: str = "given"

    def __post_init__(self) -> None:
        if len(self.hours) not in (_DAY, _WEEK):
            raise InputError(f"the profile has {len(self.hours)} numbers; give 24, of a day, or 168, of a week")
        if not all(0 <= each < math.inf for each in self.hours) or not sum(self.hours) > 0:
            raise InputError("the profile has a number below 0, or is all 0; give requests by hour, in any unit")

    @property
    def busiest_hour_share(self) -> float:
        """Of a mean day's requests, those of the busiest hour."""
        return max(self.hours) / (sum(self.hours) / (len(self.hours) / _DAY))

    def peak(self, zones: Mapping[float, float]) -> tuple[float, float]:
        """The peak of people in time zones, over that of all in one, and its hour in UTC, from the profile's start.

        `zones` has the share of people by hours ahead of UTC. Between the middles of two hours the profile is a line.
        """
        together = sum(share * self._utc(ahead) for ahead, share in zones.items())
        at = int(np.argmax(together))
        return float(np.max(together) / self._utc(0.0).max()), at / _STEPS

    def day_of(self, hour: float) -> str:
        """The weekday of an hour of the profile; "" of one that has a day alone."""
        return _DAYS[int(hour // _DAY)] if len(self.hours) == _WEEK else ""

    def mean_over_peak(self, zones: Mapping[float, float]) -> float:
        """Load of a mean hour over that of the peak, of people in time zones."""
        return sum(self.hours) / len(self.hours) / (max(self.hours) * self.peak(zones)[0])

    def over_peak(self, time_s: FloatArray) -> FloatArray:
        """Load over that of the busiest hour, from midnight on; between the middles of two hours it is a line."""
        middles = np.arange(len(self.hours)) + 0.5
        found = np.interp(time_s / 3600, middles, self.hours, period=len(self.hours))
        return np.asarray(found / max(self.hours), dtype=np.float64)

    def _utc(self, ahead: float) -> FloatArray:
        """The profile in UTC, in steps, of people so many hours ahead of it."""
        time = np.arange(_STEPS * len(self.hours)) / _STEPS
        middles = np.arange(len(self.hours)) + 0.5
        return np.interp(time + ahead, middles, self.hours, period=len(self.hours))


WEEK: Final = Profile(
    hours=(
        28, 12, 5, 3, 1, 4, 7, 6, 44, 39, 81, 56, 48, 41, 54, 81, 73, 46, 60, 51, 74, 53, 38, 53,  # Monday
        46, 13, 2, 4, 0, 2, 4, 12, 26, 39, 70, 47, 46, 41, 83, 63, 70, 35, 38, 49, 58, 54, 59, 70,  # Tuesday
        36, 8, 12, 0, 4, 0, 2, 27, 37, 44, 74, 92, 134, 146, 122, 100, 66, 99, 114, 116, 54, 84, 127, 60,  # Wednesday
        71, 20, 9, 5, 3, 1, 8, 9, 46, 55, 60, 43, 28, 55, 67, 72, 62, 59, 60, 86, 61, 61, 50, 44,  # Thursday
        35, 17, 28, 2, 1, 3, 3, 27, 24, 82, 52, 93, 53, 77, 79, 86, 68, 48, 42, 61, 45, 43, 50, 46,  # Friday
        68, 23, 3, 2, 7, 0, 6, 9, 31, 28, 59, 51, 36, 38, 33, 42, 50, 32, 60, 51, 36, 31, 43, 21,  # Saturday
        36, 14, 7, 9, 4, 12, 5, 18, 23, 24, 49, 71, 37, 25, 41, 41, 57, 60, 61, 47, 48, 48, 31, 31,  # Sunday
    ),
    source=f"{RAGPULSE}, by hour",
)  # fmt: skip
"""Its mean hour has 29 % of the busiest hour, 146 requests on Wednesday from 13:00; of each day alone, 44 to 50 %."""

MEAN_DAY: Final = Profile(
    hours=tuple(sum(WEEK.hours[hour::_DAY]) for hour in range(_DAY)), source=f"{RAGPULSE}, by hour of the day"
)
"""The mean of the seven days. They peak in different hours, so it is flatter than each: 61 % of its busiest hour."""

NAMED: Final[Mapping[str, Profile]] = {"day": MEAN_DAY, "week": WEEK}


ONE_ZONE: Final[Mapping[float, float]] = {0.0: 1.0}


def read_profile(text: str) -> Profile:
    """`day` or `week`, or 24 or 168 numbers, separated by commas. Raises InputError."""
    if named := NAMED.get(text.strip().lower()):
        return named
    try:
        return Profile(hours=tuple(float(part) for part in text.split(",")))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"'{shortened(text)}' is no profile; give {', '.join(NAMED)}, or 24 or 168 numbers, separated by commas"
        ) from None


def read_zones(text: str) -> dict[float, float]:
    """Shares of people by hours ahead of UTC: `+1=60%,-5=30%,+5:30=10%`. Raises InputError."""
    zones: dict[float, float] = {}
    for part in text.split(","):
        name, _, share = (piece.strip() for piece in part.partition("="))
        zone, percent = _ZONE.match(name), re.match(r"^(\d{1,3}(?:\.\d{1,6})?)\s*%$", share)
        ahead = (int(zone[2]) + int(zone[3] or 0) / 60) * (-1 if zone[1] == "-" else 1) if zone else math.inf
        if percent is None or not -12 <= ahead <= 14:
            raise InputError(
                f"'{shortened(part)}' is no time zone with its share; give hours ahead of UTC, such as "
                "+1=60%,-5=30%,+5:30=10%"
            )
        zones[ahead] = zones.get(ahead, 0.0) + float(percent[1]) / 100
    if not math.isclose(sum(zones.values()), 1.0, abs_tol=0.005):
        raise InputError(f"the shares of the time zones sum to {100 * sum(zones.values()):.4g} %; make it 100 %")
    return zones
