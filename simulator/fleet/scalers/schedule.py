"""Replicas by the time of day: `schedule:0h=2,8h=10,18.5h=4`."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from files.errors import HeadcountError
from files.names import shortened
from simulator.engines.values import Duration, WholeNumber
from simulator.fleet.scaler import Goal, Observed

DAY_S = 86_400.0


@dataclass(frozen=True)
class Settings:
    """From each time of the day on so many replicas, in order; before the first as after the last."""

    entries: tuple[tuple[float, int], ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """`0h=2,8h=10`. Raises HeadcountError."""
        found = []
        for part in text.split(","):
            time, equals, count = part.partition("=")
            if not equals:
                raise HeadcountError(
                    f"'{shortened(part)}' is no time with its replicas; write the schedule as schedule:0h=2,8h=10,18h=4"
                )
            found.append((Duration().read(time), WholeNumber(0).read(count)))
        if any(not later > sooner for (sooner, _), (later, _) in pairwise(found)) or found[-1][0] >= DAY_S:
            raise HeadcountError(f"the schedule '{shortened(text)}' must have ascending times below 24h")
        return cls(tuple(found))

    @property
    def goal(self) -> Goal:
        return Goal(
            text=" ".join(f"{count} from {start_s / 3600:g}h" for start_s, count in self.entries),
            for_more="more replicas in the schedule",
            for_fewer="fewer replicas in the schedule",
        )


class Scaler:
    period_s = 60.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def desired_replicas(self, seen: Observed) -> int:
        now_s = seen.time_s % DAY_S
        entries = self.settings.entries
        return next((count for from_s, count in reversed(entries) if from_s <= now_s), entries[-1][1])
