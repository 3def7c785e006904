"""From values to places on paper, with ticks at round numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Maps `low` to `begin` and `high` to `end`, in proportion or by logarithm."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        if self.is_log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + min(max(share, -0.02), 1.02) * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers from the low end to the high one."""
        if self.is_log:
            return _log_ticks(self.low, self.high, most)
        step = _step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale_of(
    values: Iterable[float], begin: float, end: float, *, is_log: bool = False, from_zero: bool = False
) -> Scale:
    """Wide enough for the values, with some room."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)] or [1.0]
    low, high = min(known), max(known)
    if is_log:
        return Scale(low=low / 1.15, high=max(high, low * 1.5) * 1.15, begin=begin, end=end, is_log=True)
    low = min(low, 0.0) if from_zero else low
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    return Scale(low=low if from_zero else low - room, high=high + room, begin=begin, end=end)


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * 0.999)


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    for steps in ((1, 2, 5), (1, 3), (1,)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]
