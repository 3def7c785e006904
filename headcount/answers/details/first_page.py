"""What the person who signs reads first."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headcount.answers.notes import Note, Severity

MOST_TO_CONFIRM: Final = 3
COVERED: Final = "simulation noise, step-time error and the error of the KV blocks"
_LESS: Final = {"think time": "shorter", "TTFT limit": "stricter", "TPOT limit": "stricter"}
_MORE: Final = {"step times": "longer"}


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Users that are asked for, between those that are served; None where nobody was asked for."""

    needed: float | None
    low: int
    users: int
    high: int


@dataclass(frozen=True, kw_only=True)
class FirstPage:
    """A question in its asker's words, and what to do; every text is a sentence or a figure with its unit."""

    question: str
    answer: str
    figures: tuple[tuple[str, str], ...] = ()
    """Label and figure, such as ("cost", "$5,825 a month")."""
    sure: str = ""
    headroom: Headroom | None = None
    confirm: tuple[str, ...] = ()
    """The assumptions that matter most, at most three."""
    risk: str = ""
    is_good: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def risk_of(notes: Sequence[Note], otherwise: str) -> str:
    """What stands against any such answer, and the last of what this answer's notes warn of."""
    alerts = [note for note in notes if note.severity in (Severity.WARNING, Severity.ERROR)]
    return f"{otherwise} Mind: {alerts[-1].text}.".strip() if alerts else otherwise


def money_figures(usd_per_month: float | None, usd_per_user_month: float | None) -> tuple[tuple[str, str], ...]:
    """Cost a month, of all and of a user; nothing without a price."""
    found = []
    if usd_per_month is not None:
        found.append(("cost", f"${usd_per_month:,.0f} a month"))
    if usd_per_user_month is not None:
        found.append(("cost of a user", f"${usd_per_user_month:,.2f} a month"))
    return tuple(found)


def confirmed_first(details: Mapping[str, Any], links: Sequence[str] = ()) -> tuple[str, ...]:
    """What moves the answer most: links of the demand that nobody gave, then the widest swings."""
    swings = [_swing_text(each, details["swing"]) for each in details.get("tornado", ()) if each.get("value")]
    return (*links[: MOST_TO_CONFIRM - 1], *swings)[:MOST_TO_CONFIRM]


def _swing_text(each: Mapping[str, Any], swing: float) -> str:
    """Which direction costs users, and how many."""
    is_less = each["less"] < each["more"]
    lost = 1 - min(each["less"], each["more"])
    direction = _LESS.get(each["name"], "less") if is_less else _MORE.get(each["name"], "longer")
    return (
        f"{each['name'].capitalize()}: {each['value']}. If {swing:.0%} {direction}, {lost:.0%} fewer users are served."
    )


def sureness(low: int, users: int, high: int, covers: str) -> str:
    """What the interval of users says, in a sentence or two."""
    return (
        f"With 95 % confidence at least {low:,} users are served; {users:,} are expected, {high:,} at best. "
        f"That covers {covers}."
    )


def users_risk(users: int, attainment: str) -> str:
    """What happens beyond the users that are expected, and what nobody simulated."""
    return (
        f"With more than {users:,} users, fewer than {attainment} of answers keep the promise. Users who send "
        "more or longer requests than assumed lower every figure on this page."
    )
