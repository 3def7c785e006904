"""The confidence in an answer's users, and which assumptions to confirm first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from files.documents import ReadJson
from headcount.text.units import counted
from headcount.text.words import LEAST_LOST, error_sign, joined

if TYPE_CHECKING:
    from simulator.study.capacity_row import CapacityRow

MOST_TO_CONFIRM: Final = 3
_LESS: Final = {"think time": "shorter", "TTFT limit": "stricter", "TPOT limit": "stricter"}
_MORE: Final = {"step times": "slower, in addition to that error"}
_SPOKEN: Final = {
    "step times": "Speed of the servers",
    "context length": "Length of the context",
    "length of answers": "Length of the answers",
    "think time": "A user's pause before the next message",
    "TTFT limit": "Wait for the first word",
    "TPOT limit": "Pace of the answers",
}


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Users that are asked for, between those that are served; None where nobody was asked for."""

    needed: float | None
    low: int
    users: int
    high: int

    @property
    def is_too_few(self) -> bool:
        """Whether more are asked for than are served at 95 % confidence."""
        return self.needed is not None and self.low < self.needed


def top_assumptions(details: ReadJson, room: Headroom, links: Sequence[str] = (), leads: str = "") -> tuple[str, ...]:
    """The swing that `leads`, what nobody has given or judged, then the swings that cost the most users."""
    found = _costliest(details, links, leads)
    said = [_swing_text(each, details["swing"], room) for each in found]
    first = 1 if found and found[0]["name"] == leads else 0
    return (*said[:first], *links[: MOST_TO_CONFIRM - 1], *said[first:])


def combined_sensitivity(
    details: Mapping[str, object], room: Headroom, links: Sequence[str] = (), leads: str = ""
) -> str:
    """What is left where all those swings come together, by the product of their ratios; "" for a single one."""
    ratios = [_ratio(each) for each in _costliest(details, links, leads)]
    if len(ratios) < 2:
        return ""
    left = math.floor(room.low * math.prod(ratios))
    which = "Both" if len(ratios) == 2 else f"All {len(ratios)}"
    return f"{which} changes of {details['swing']:.0%} together: about {left:,} users{_enough(left, room)} (estimated)."


def _costliest(details: ReadJson, links: Sequence[str], leads: str) -> list[Mapping[str, object]]:
    """The swings for which there is room beside the links: the one that leads, then the costliest."""
    found = [each for each in details.get("tornado", ()) if each.get("value") and _ratio(each) < 1 - LEAST_LOST]
    found.sort(key=lambda each: (each["name"] != leads, _ratio(each)))
    return found[: MOST_TO_CONFIRM - len(links[: MOST_TO_CONFIRM - 1])]


def _ratio(swing: ReadJson) -> float:
    """Users that are left in the direction that costs users."""
    return float(min(swing["less"], swing["more"]))


def _enough(left: int, room: Headroom) -> str:
    if room.needed is None or room.is_too_few:
        return f" instead of {room.low:,}"
    return ", still enough" if left >= room.needed else f", too few for the {room.needed:,.0f} needed"


def _swing_text(each: ReadJson, swing: float, room: Headroom) -> str:
    """Which direction costs users, how many are left, and whether they are enough."""
    is_less = each["less"] < each["more"]
    left, name = math.floor(room.low * _ratio(each)), each["name"]
    direction = _LESS.get(name, "less") if is_less else _MORE.get(name, "longer")
    return (
        f"{_SPOKEN.get(name, name.capitalize())}: {each['value']}. If only this is {swing:.0%} {direction}: "
        f"about {left:,} users{_enough(left, room)} ({'simulated' if each.get('simulated') else 'estimated'})."
    )


def confidence_text(room: Headroom, row: "CapacityRow | None" = None) -> str:
    """What the interval of users says, in a few sentences."""
    more = ""
    if room.is_too_few:
        more = f" That is fewer than the {room.needed:,.0f} asked for."
    elif room.needed is not None:
        more = f" That is {math.floor(room.low - room.needed):,} more than the {room.needed:,.0f} needed."
    return (
        f"95 % of fleets like this one can serve at least {counted(room.low, 'user')}.{more} The expected number is "
        f"{room.users:,}, and 5 % of such fleets can serve more than {room.high:,}. This range covers "
        f"{_covered_text(row)}. It does not cover users who behave differently than assumed."
    )


def _covered_text(row: "CapacityRow | None") -> str:
    """Which errors the interval of users covers, in words of the summary."""
    if row is None:
        return "random variation and the usual errors of the simulated speed and memory"
    error, is_judged = row.step_time_error, row.plan is not None and not row.plan.latency.is_measured
    whose = ", estimated" if is_judged else " for 90 % of measured servers"
    known = None if row.plan is None else row.plan.latency
    of_speed = error_sign(None if known is None else known.tpot_log_error)
    of_waits = error_sign(None if known is None else known.ttft_log_error_of(in_step=False))
    speed = [] if error is None else [f"the error of the simulated speed ({of_speed}{error:.0%}{whose})"]
    longer = row.ttft_error
    waits = [] if longer is None else [f"the error of the time to first token (another {of_waits}{longer:.0%})"]
    memory = [] if row.users_at_kv_cache_low is None else ["the error of the memory size"]
    return joined(["random variation", *speed, *waits, *memory])
