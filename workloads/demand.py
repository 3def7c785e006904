"""How many sessions are open at the peak, from employees, users, requests or tokens."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Final, Literal, NamedTuple

from files.names import check_names, readable, shortened
from files.reading import InputError

MOST_PEOPLE: Final = 100_000_000  # of one service
SECONDS_PER_HOUR: Final = 3600.0
_GDS = (
    "Government Digital Service, Microsoft 365 Copilot Experiment: Cross-Government Findings Report, 2025-06 "
    "(gov.uk/government/publications), as reported by idm.net.au: 34 % of 20,000 licence holders used it daily in "
    "Teams, 33 % in Outlook. For comparison: 13 % of all US employees use AI daily (Gallup, 2026-02), half of "
    "JPMorgan's 200,000 with its own assistant (Wall Street Journal, 2025-03)"
)
_PEAK = (
    "judgement between 6 % and 12 %: JPMorgan's 200,000 use their assistant 1 to 2 hours a week (Wall Street Journal, "
    "2025-03), which is 0.4 to 0.8 hours a working day of each of the half that is active daily, 14 % of it in the "
    "busiest hour"
)
_BUSIEST_HOUR = (
    "RAGPulse (Wang et al., arXiv 2511.12979; github.com/flashserve/RAGPulse, MIT): 146 requests in the busiest hour "
    "of a week, 1,015 on its mean day. For comparison: 7.7 % in BurstGPT's busiest hour of the day, averaged over 61 "
    "days (arXiv 2401.17644)"
)


Kind = Literal["given", "measured", "assumed"]


class StandIn(NamedTuple):
    """What stands in for a link that nobody gave."""

    value: float
    source: str
    kind: Kind = "assumed"


@dataclass(frozen=True, kw_only=True)
class Link:
    """One number of the chain from people to sessions."""

    name: str
    value: float
    unit: str
    source: str
    kind: Kind
    """Measured: elsewhere, or in the workload's trace."""

    @property
    def assumed(self) -> bool:
        """Nobody gave it."""
        return self.kind != "given"

    def __str__(self) -> str:
        how = f"{self.kind}; {_flag(self.name)}" if self.assumed else self.kind
        return f"{LINKS[self.name].meaning}: {self.shown} ({how})"

    @property
    def shown(self) -> str:
        """The value with its unit, a share in percent."""
        return f"{100 * self.value:.4g} %" if self.unit == "share" else f"{readable(self.value)} {self.unit}".rstrip()


PEAK_HOUR_SHARE: Final = StandIn(0.144, _BUSIEST_HOUR, "measured")


@dataclass(frozen=True, kw_only=True)
class LinkKind:
    """What a link is, and what stands in where nobody gives it."""

    meaning: str
    unit: str
    most: float
    default: StandIn | None = None


LINKS: Final[Mapping[str, LinkKind]] = {
    "employees": LinkKind(meaning="registered people", unit="people", most=MOST_PEOPLE),
    "active_share": LinkKind(
        meaning="share of people who use it on a working day",
        unit="share",
        most=1,
        default=StandIn(0.34, _GDS, "measured"),
    ),
    "peak_share": LinkKind(
        meaning="share of the daily active with an open session at the peak minute",
        unit="share",
        most=1,
        default=StandIn(0.10, _PEAK),
    ),
    "time_zones": LinkKind(
        meaning="combined peak of all time zones over one zone's",
        unit="share",
        most=1,
        default=StandIn(1.0, "all people in one time zone"),
    ),
    "users": LinkKind(meaning="sessions open at the peak", unit="users", most=MOST_PEOPLE),
    "requests_per_s": LinkKind(meaning="requests at the peak", unit="requests/s", most=1e7),
    "tokens_per_day": LinkKind(meaning="prompt and output tokens a day", unit="tokens", most=1e15),
    "peak_hour_share": LinkKind(
        meaning="share of a day's requests in its busiest hour",
        unit="share",
        most=1,
        default=PEAK_HOUR_SHARE,
    ),
    "tokens_per_request": LinkKind(meaning="mean prompt and output tokens of a request", unit="tokens", most=2**31),
    "think_time_s": LinkKind(meaning="mean think time Z", unit="s", most=3.6e6),
    "response_time_s": LinkKind(meaning="mean response time R", unit="s", most=3.6e6),
}
_CYCLE = ("think_time_s", "response_time_s")
CHAINS: Final[Mapping[str, tuple[str, ...]]] = {
    "employees": ("active_share", "peak_share", "time_zones"),
    "users": (),
    "requests_per_s": _CYCLE,
    "tokens_per_day": ("peak_hour_share", "time_zones", "tokens_per_request", *_CYCLE),
}
"""What a chain may start from, and the links from there to users."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A chain of links that ends at `users`: active sessions N at the peak, thinking or waiting."""

    links: tuple[Link, ...]
    """What the chain starts from, then what leads from it to users."""

    @property
    def users(self) -> float:
        values = {link.name: link.value for link in self.links}
        return self.links[0].value * _users_per_start(self.links[0].name, values)

    @property
    def sessions(self) -> int:
        """Users as a whole number, rounded up; at least 1."""
        return max(math.ceil(self.users * (1 - 1e-12)), 1)

    def lines(self) -> list[str]:
        """One sentence per link, the users last."""
        before = (str(link) for link in self.links if link.name != "users")
        return [*before, f"{LINKS['users'].meaning}: {readable(self.users)} users"]

    def to_json(self) -> dict[str, object]:
        """`users`, and the links as `{name, value, unit, source, kind, assumed}`."""
        return {"users": self.users, "links": [vars(link) | {"assumed": link.assumed} for link in self.links]}


def _users_per_start(start: str, values: Mapping[str, float]) -> float:
    if start == "employees":
        return values["active_share"] * values["peak_share"] * values["time_zones"]
    if start == "users":
        return 1.0
    cycle_s = values["think_time_s"] + values["response_time_s"]  # N = λ (Z + R)
    if start == "requests_per_s":
        return cycle_s
    per_second = values["peak_hour_share"] * values["time_zones"] / SECONDS_PER_HOUR
    return per_second / values["tokens_per_request"] * cycle_s


def check_links(given: Mapping[str, float | None]) -> str:
    """Which of CHAINS the chain starts from. Raises InputError for what `demand` refuses in what is given alone."""
    check_names(given, LINKS, "link")
    named = {name: value for name, value in given.items() if value is not None}
    starts = [name for name in CHAINS if name in named]
    if len(starts) != 1:
        found = f"{' and '.join(map(_flag, starts))} are given" if starts else "nothing says how many people there are"
        raise InputError(f"{found}; give one of {', '.join(map(_flag, CHAINS))}")
    foreign = next((name for name in named if name not in (starts[0], *CHAINS[starts[0]])), None)
    if foreign is not None:
        raise InputError(f"{_flag(foreign)} does not belong to {_flag(starts[0])}; leave out one or the other")
    for name, value in named.items():
        _checked(name, value)
    return starts[0]


def demand(*, stand_ins: Mapping[str, StandIn] | None = None, **given: float | None) -> Demand:
    """The chain from exactly one of CHAINS; the other links of LINKS are given, in `stand_ins`, or have a default.

    `stand_ins` are by link, such as the workload's think time. Raises InputError for an unknown
    link, none or two to start from, a link that does not belong, is missing, or is out of its range.
    """
    start = check_links(given)
    named = {name: value for name, value in given.items() if value is not None}
    chain = Demand(links=tuple(_link(name, named, stand_ins or {}) for name in (start, *CHAINS[start])))
    if not 0 < chain.users <= MOST_PEOPLE:
        allowed = f"it must be above 0, at most {MOST_PEOPLE:,}"
        raise InputError(f"the number of users that follows from {_flag(start)} is {readable(chain.users)}; {allowed}")
    return chain


def _link(name: str, given: Mapping[str, float], stand_ins: Mapping[str, StandIn]) -> Link:
    kind = LINKS[name]
    if name in given:
        return Link(name=name, value=_checked(name, given[name]), unit=kind.unit, source="", kind="given")
    found = stand_ins.get(name, kind.default)
    if found is None:
        raise InputError(f"{_flag(name)} is missing: the {kind.meaning}; give it")
    return Link(name=name, value=_checked(name, found.value), unit=kind.unit, source=found.source, kind=found.kind)


def _checked(name: str, value: float) -> float:
    """The value. Raises InputError unless it is a number in the link's range."""
    kind = LINKS[name]
    may_be_0 = name in _CYCLE  # clients without think time; an answer at once
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= kind.most or (value == 0 and not may_be_0):
        least = "from 0 to" if may_be_0 else "above 0, at most"
        most = "100 %" if kind.unit == "share" else f"{kind.most:,.16g}"
        given = shortened(repr(value))
        raise InputError(f"{_flag(name)} is {given}; the {kind.meaning} must be a number {least} {most}")
    return float(value)


def _flag(name: str) -> str:
    return f"--{name.replace('_time_s', '_time').replace('_', '-')}"
