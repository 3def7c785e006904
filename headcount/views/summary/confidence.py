"""How sure the users are that an answer promises, and what to confirm first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from files.documents import ReadJson
from headcount.text.words import joined

if TYPE_CHECKING:
    from simulator.study.capacity_table import CapacityRow

MOST_TO_CONFIRM: Final = 3
LEAST_LOST: Final = 0.005  # of the users: less is told as 0 %
_LESS: Final = {"think time": "shorter", "TTFT limit": "stricter", "TPOT limit": "stricter"}
_MORE: Final = {"step times": "slower, on top of the error already counted"}
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
        """Whether more are asked for than are safe to promise."""
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
    return f"{which} changes of {details['swing']:.0%} at once, by estimate: about {left:,} users{_enough(left, room)}."


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
    return ", still enough" if left >= room.needed else f", too few for {room.needed:,.0f}"


def _swing_text(each: ReadJson, swing: float, room: Headroom) -> str:
    """Which direction costs users, how many are left, and whether they are enough."""
    is_less = each["less"] < each["more"]
    left, name = math.floor(room.low * _ratio(each)), each["name"]
    direction = _LESS.get(name, "less") if is_less else _MORE.get(name, "longer")
    return (
        f"{_SPOKEN.get(name, name.capitalize())}: {each['value']}. If this alone is {swing:.0%} {direction}: "
        f"{left:,} users{_enough(left, room)}."
    )


def confidence_text(room: Headroom, row: "CapacityRow | None" = None) -> str:
    """What the interval of users says, in a few sentences."""
    more = ""
    if room.is_too_few:
        more = f" That is too few for the {room.needed:,.0f} asked for."
    elif room.needed is not None:
        more = f" That is {math.floor(room.low - room.needed):,} more than the {room.needed:,.0f} needed."
    return (
        f"{room.low:,} users are safe to promise: 19 of 20 real fleets like this one should serve at least so many."
        f"{more} The best estimate is {room.users:,}, and 1 of 20 should serve more than {room.high:,}. That "
        f"covers {_covered_text(row)}, but not users who behave otherwise than assumed."
    )


def _covered_text(row: "CapacityRow | None") -> str:
    """Which errors the interval of users covers, in words of the first page."""
    if row is None:
        return "chance and the usual errors of the simulated speed and memory"
    error = row.step_time_error
    speed = [] if error is None else [f"the error of the simulated speed ({_within_text(row, error)})"]
    waits = [] if row.ttft_error is None else [f"that of how soon answers begin (another ±{row.ttft_error:.0%})"]
    memory = [] if row.users_at_kv_cache_low is None else ["that of the memory"]
    return joined(["chance", *speed, *waits, *memory])


def _within_text(row: "CapacityRow", error: float) -> str:
    """How large the error is, and who says so."""
    is_judged = row.plan is not None and not row.plan.latency.is_measured
    return f"within ±{error:.0%} {'by judgement' if is_judged else 'for 9 of 10 measured servers'}"
