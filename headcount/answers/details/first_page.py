"""What the person who signs reads first."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headcount.answers.notes import Note, Severity
from headcount.text.units import percent
from headcount.text.words import promise_text

if TYPE_CHECKING:
    from headcount.answers.answer import Answer
    from simulator.study.slo import SLO

MOST_TO_CONFIRM: Final = 3
LEAST_LOST: Final = 0.005  # of the users: less is told as 0 %
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


def served_page(
    answer: "Answer",
    question: str,
    said: str,
    *,
    buy: str,
    whom: str,
    workload: str,
    money: tuple[float | None, float | None],
    slo: "SLO",
    headroom: Headroom,
    covers: str = COVERED,
    links: Sequence[str] = (),
) -> FirstPage:
    """Of an answer that serves somebody; `money` is dollars a month, of all and of a user; `covers` ends a sentence."""
    return FirstPage(
        question=question,
        answer=said,
        figures=(
            ("buy", buy),
            ("for", f"{whom}, workload {Path(workload).name}"),
            *money_figures(*money),
            ("promise", promise_text(slo)),
        ),
        sure=_sureness(headroom, covers),
        headroom=headroom,
        confirm=confirmed_first(answer.known_details, links),
        risk=risk_of(
            answer.notes,
            f"With more than {headroom.users:,} users, fewer than {percent(slo.attainment)} of answers keep the "
            "promise. Users who send more or longer requests than assumed lower every figure on this page.",
        ),
    )


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
    """What moves the answer most: links of the demand that nobody gave, then the widest swings that cost users."""
    costly = (each for each in details.get("tornado", ()) if min(each["less"], each["more"]) < 1 - LEAST_LOST)
    swings = [_swing_text(each, details["swing"]) for each in costly if each.get("value")]
    return (*links[: MOST_TO_CONFIRM - 1], *swings)[:MOST_TO_CONFIRM]


def _swing_text(each: Mapping[str, Any], swing: float) -> str:
    """Which direction costs users, and how many."""
    is_less = each["less"] < each["more"]
    lost = 1 - min(each["less"], each["more"])
    direction = _LESS.get(each["name"], "less") if is_less else _MORE.get(each["name"], "longer")
    return (
        f"{each['name'].capitalize()}: {each['value']}. If {swing:.0%} {direction}, {lost:.0%} fewer users are served."
    )


def _sureness(room: Headroom, covers: str) -> str:
    """What the interval of users says, in a sentence or two."""
    spare = "" if room.needed is None else f"{room.low / room.needed - 1:.0%} more users than needed. "
    return (
        f"{spare}With 95 % confidence at least {room.low:,} users are served; {room.users:,} are expected, "
        f"{room.high:,} at best. That covers {covers}."
    )
