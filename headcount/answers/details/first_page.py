"""What the person who signs reads first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headcount.answers.notes import Note, Severity
from headcount.text.units import counted, percent
from headcount.text.words import promise_text
from workloads.populations.population import Population

if TYPE_CHECKING:
    from headcount.answers.answer import Answer
    from kvcache.gpus.gpu import GPU
    from simulator.engines.engines import AnyArgs
    from simulator.study.slo import SLO
    from workloads.traces.trace import Trace

MOST_TO_CONFIRM: Final = 3
MOST_OPTIONS: Final = 8
LEAST_LOST: Final = 0.005  # of the users: less is told as 0 %
APART_RISK: Final = "The network between the engines is assumed: measure a KV transfer on yours."
_OWN: Final = (None, "none", "auto", "bfloat16", "float16")  # formats that the model has of itself
_LESS: Final = {"think time": "shorter", "TTFT limit": "stricter", "TPOT limit": "stricter"}
_MORE: Final = {"step times": "slower than simulated"}
_SPOKEN: Final = {
    "step times": "Speed of the servers",
    "context length": "Length of the prompts",
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


@dataclass(frozen=True, kw_only=True)
class Options:
    """What there is to choose from, a row each; `marked` is the row that the rest of the page is about."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: int | None = None


@dataclass(frozen=True, kw_only=True)
class FirstPage:
    """A question in its asker's words, and what to do; every text is a sentence or a figure with its unit."""

    question: str
    answer: str
    figures: tuple[tuple[str, str], ...] = ()
    """Label and figure, such as ("cost", "$5,825 a month")."""
    options: Options | None = None
    sure: str = ""
    headroom: Headroom | None = None
    confirm: tuple[str, ...] = ()
    """The assumptions that matter most, at most three."""
    risk: str = ""
    words: tuple[tuple[str, str], ...] = ()
    """What a reader from another field may take for something else, and what it means here."""
    is_good: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def model_title(name: str) -> str:
    """Without who publishes it: `Llama-3.1-8B-Instruct`."""
    return name.rstrip("/").rpartition("/")[2] or name


@dataclass(frozen=True, kw_only=True)
class Bought:
    """GPUs and what they cost: all of them a month, and each person or user."""

    gpu: "GPU"
    gpus: int
    servers: int
    usd_per_gpu_hour: float | None = None
    usd_per_month: float | None = None
    usd_per_head: float | None = None
    head: str = "user"
    spare_servers: int = 0
    how: str = ""  # the servers in words, where some compute prompts and others answers

    def __str__(self) -> str:
        return f"{self.gpus:,} × {self.gpu.title}"

    def failure(self, users_low: int, needed: float | None = None) -> str:
        """What no spare server means; of engines that depend on each other, what their network does."""
        if self.how:
            return APART_RISK
        usd_per_server = None if self.usd_per_month is None else self.usd_per_month / max(self.servers, 1)
        return alone_risk(self.servers, users_low, needed, usd_per_server)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        spare = f", {self.spare_servers} of them spare" if self.spare_servers else ""
        each = counted(self.gpus // max(self.servers, 1), "GPU")
        servers = f"{self.servers:,} with {each}{' each' if self.servers > 1 else ''}{spare}"
        return (("servers", self.how or servers), *money_figures(self.usd_per_month, self.usd_per_head, self.head))

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """The GPU's name in the tables, and where the price is from."""
        named = ((self.gpu.title, f"'{self.gpu.name}' in the tables."),) if self.gpu.product else ()
        if self.usd_per_gpu_hour is None:
            return (*named, ("rent", "no price of this GPU is known; give one with --price."))
        listed = self.usd_per_gpu_hour == self.gpu.usd_per_hour
        source = self.gpu.source["usd_per_hour"] if listed else "the price that was given"
        return (
            *named,
            ("rent", f"${self.usd_per_gpu_hour:,.2f} per GPU and hour, for all 730 hours of a month ({source}). "
             "Staff, storage, network and taxes are not in it."),
        )  # fmt: skip


def served_page(
    answer: "Answer",
    question: str,
    said: str,
    *,
    bought: Bought,
    whom: str,
    load: "Population | Trace",
    slo: "SLO",
    given: "AnyArgs",
    headroom: Headroom,
    covers: str = "chance and the usual errors of the simulated speed and memory",
    about: str = "",
    links: Sequence[str] = (),
    risk: str = "",
    options: Options | None = None,
    words: Sequence[tuple[str, str]] = (),
) -> FirstPage:
    """Of an answer that serves somebody under the arguments `given`.

    `covers` ends a sentence, `about` begins what is said of how sure it is.
    """
    name = Path(load.name).name
    late = (
        f"The promise is safe up to {headroom.low:,} users and likely up to {headroom.users:,}; beyond, more than "
        f"{percent(1 - slo.attainment)} of answers probably break it."
    )
    return FirstPage(
        question=question,
        answer=said,
        figures=(("for", f"{whom}, workload {name}"), *bought.figures, ("promise", promise_text(slo))),
        options=options,
        sure=f"{about}{_sureness(headroom, covers)}",
        headroom=headroom,
        confirm=confirmed_first(answer.known_details, headroom, (*_formats_text(given), *links)),
        risk=risk_of(
            answer.notes,
            " ".join(filter(None, (risk, late, "Users who send more or longer requests than assumed lower both."))),
        ),
        words=(*_words(name, load), *words, *bought.words),
    )


def _formats_text(given: "AnyArgs") -> tuple[str, ...]:
    """What nobody has judged: answers of a model that is stored in other formats than its own."""
    named = (("weights", given.quantization), ("KV cache", given.kv_cache_dtype))
    formats = [f"{what} in {name}" for what, name in named if name not in _OWN]
    if not formats:
        return ()
    return (f"Quality of the answers with {' and '.join(formats)}: not judged here. Test it on your own prompts.",)


def _words(name: str, load: "Population | Trace") -> tuple[tuple[str, str], ...]:
    what = str(load.tables.get("title", "")) if isinstance(load, Population) else f"a recorded load ({load.format})"
    return (
        ("user", "somebody with a conversation open at that moment: reading, writing, or waiting for an answer. "
         "Of people who have access, few are at once."),
        ("safe to promise", "users that are served as promised with 95 % confidence; 'users to sign' in the tables."),
        *(((f"workload {name}", f"{what}."),) if what else ()),
        ("token", "a piece of text; 100 tokens are about 75 English words."),
    )  # fmt: skip


def alone_risk(servers: int, users_low: int, needed: float | None, usd_per_server: float | None = None) -> str:
    """What no spare server means."""
    if servers == 1:
        spare = "" if usd_per_server is None else f" A second, as a spare, is ${usd_per_server:,.0f} a month more."
        return f"There is one server: while it is down, nobody is served.{spare}"
    left = math.floor(users_low * (servers - 1) / servers)
    enough = "" if needed is None else ": still enough" if left >= needed else f" of the {needed:,.0f} needed"
    return f"No server is spare: while one of {servers:,} is down, about {left:,} users are served{enough}."


def risk_of(notes: Sequence[Note], otherwise: str) -> str:
    """What stands against any such answer, and the last of what this answer's notes warn of."""
    alerts = [note for note in notes if note.severity in (Severity.WARNING, Severity.ERROR)]
    return f"{otherwise} Mind: {alerts[-1].text}.".strip() if alerts else otherwise


def money_figures(
    usd_per_month: float | None, usd_per_head: float | None, head: str = "user"
) -> tuple[tuple[str, str], ...]:
    """Cost a month, of all and of one; nothing without a price."""
    if usd_per_month is None:
        return ()
    each = "" if usd_per_head is None else f", ${usd_per_head:,.2f} a {head}"
    return (("rent", f"${usd_per_month:,.0f} a month{each}"),)


def confirmed_first(details: Mapping[str, Any], room: Headroom, links: Sequence[str] = ()) -> tuple[str, ...]:
    """What moves the answer most: links of the demand that nobody gave, then the widest swings that cost users."""
    costly = (each for each in details.get("tornado", ()) if min(each["less"], each["more"]) < 1 - LEAST_LOST)
    swings = [_swing_text(each, details["swing"], room) for each in costly if each.get("value")]
    return (*links[: MOST_TO_CONFIRM - 1], *swings)[:MOST_TO_CONFIRM]


def _swing_text(each: Mapping[str, Any], swing: float, room: Headroom) -> str:
    """Which direction costs users, how many are left, and whether they are enough."""
    is_less = each["less"] < each["more"]
    left = math.floor(room.low * min(each["less"], each["more"]))
    name = each["name"]
    direction = _LESS.get(name, "less") if is_less else _MORE.get(name, "longer")
    enough = f" instead of {room.low:,}"
    if room.needed is not None:
        enough = ": still enough" if left >= room.needed else f": too few for {room.needed:,.0f}"
    return (
        f"{_SPOKEN.get(name, name.capitalize())}: {each['value']}. If {swing:.0%} {direction}, {left:,} users are "
        f"safe to promise{enough}."
    )


def _sureness(room: Headroom, covers: str) -> str:
    """What the interval of users says, in a few sentences."""
    spare = ""
    if room.needed is not None:
        spare = f"; {room.needed:,.0f} are needed, so {room.low / room.needed - 1:.0%} are spare"
    return (
        f"{room.low:,} users are safe to promise, with 95 % confidence{spare}. The best estimate is {room.users:,}, "
        f"the most hopeful {room.high:,}. That covers {covers}, but not users who behave otherwise than assumed."
    )
