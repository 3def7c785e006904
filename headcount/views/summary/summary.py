"""What the person who decides reads first."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headcount.diagnostics import Diagnostic, Severity
from headcount.queries.money import price_sources, usd_per_month, usd_per_user_month
from headcount.text.blocks import Column, Row, cells, titles
from headcount.text.pools import Part
from headcount.text.populations import context_text
from headcount.text.units import counted, percent
from headcount.text.words import AT_CONFIDENCE, EACH_GETS, precision_text, promise_text, sentence
from headcount.views.summary.confidence import Headroom, combined_sensitivity, confidence_text, top_assumptions
from workloads.populations.population import Population

if TYPE_CHECKING:
    from headcount.queries.result import Result
    from kvcache.gpus.gpu import GPU
    from simulator.deployment import Deployment
    from simulator.engines.engines import AnyArgs
    from simulator.study.capacity_row import CapacityRow
    from simulator.study.slo import SLO
    from workloads.traces.trace import Trace

MOST_OPTIONS: Final = 8
PRICE: Final = "price of a GPU's hour"
DISAGGREGATED_RISK: Final = (
    "The KV cache of each prompt moves to the other servers over a network. Its speed is assumed here: measure yours."
)
_OWN: Final = (None, "none", "auto", "bfloat16", "float16")  # formats that the model has of itself
CONTEXT_WORD: Final = (
    "average context",
    "the tokens of a prompt (instructions, conversation so far, new message) and its answer, on average.",
)
TOKEN_WORD: Final = ("token", "a piece of a word; 100 tokens are about 75 English words.")
LATENCY_WORDS: Final = (
    ("TTFT", "time to first token: the wait until an answer begins."),
    ("TPOT", "time per output token: how fast an answer continues once it has begun."),
    ("ITL", "inter-token latency: the time between two tokens of an answer."),
    ("p99", "99 % of answers are at least this fast."),
    TOKEN_WORD,
)
P95_WORD: Final = (("p95", "95 % of answers are at least this fast."),)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What there is to choose from, a row each; `marked` is the row that the rest of the page is about."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: int | None = None
    note: str = ""
    """What the table leaves out, and when another row is the better one."""


def options_of(
    title: str, columns: Sequence[Column[Row]], rows: Sequence[Row], best: Row | None, note: str = ""
) -> Options:
    """A line for each row; the best is marked, if it is there."""
    return Options(
        title=title,
        columns=titles(columns),
        rows=tuple(cells(columns, row) for row in rows),
        marked=next((place for place, row in enumerate(rows) if row is best), None),
        note=note,
    )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A question in its asker's words, and what to do; every text is a sentence or a figure with its unit."""

    question: str
    answer: str
    figures: tuple[tuple[str, str], ...] = ()
    """Label and figure, such as `("cost", "$5,825 a month")`."""
    options: Options | None = None
    sure: str = ""
    headroom: Headroom | None = None
    confirm: tuple[str, ...] = ()
    """The assumptions that matter most, at most three, each changed alone."""
    confirm_together: str = ""
    """What is left where all of them are changed at once."""
    risk: str = ""
    words: tuple[tuple[str, str], ...] = ()
    """What a reader from another field may take for something else, and what it means here."""
    is_good: bool = True

    def to_json(self) -> dict[str, object]:
        """Words that the page does not use are left out."""
        found = asdict(self)
        shown = str([found[name] for name in found if name != "words"]).lower()
        used = [pair for pair in self.words if any(word in shown for word in pair[0].lower().split(", "))]
        return found | {"words": used}


Priced = tuple["GPU", float | None]
"""A GPU, and what an hour of it costs."""


@dataclass(frozen=True, kw_only=True)
class Bought:
    """GPUs and what they cost: all of them a month, and each of those they are for."""

    gpu: "GPU"
    gpus: int
    servers: int
    usd_per_gpu_hour: float | None = None
    users_low: int = 0
    heads: tuple[float, str] | None = None  # whom the cost is divided by, if not users_low, such as `user at 500 users`
    beside: tuple[Priced, ...] = ()  # what else there is to choose from
    spare_servers: int = 0
    parts: tuple["Part", ...] = ()  # of servers that compute prompts and servers that compute answers

    def __str__(self) -> str:
        return f"{self.gpus:,} × {self.gpu.title}"

    @property
    def usd_per_month(self) -> float | None:
        return usd_per_month(self.gpus, self.usd_per_gpu_hour)

    @property
    def failure(self) -> str:
        """What no spare server means; of servers that depend on each other, what their network does, too."""
        if self.parts:
            return f"{_part_risk([count for count, _ in self.parts], self.users_low)} {DISAGGREGATED_RISK}"
        month = self.usd_per_month
        return alone_risk(self.servers, self.users_low, None, None if month is None else month / max(self.servers, 1))

    @property
    def priced(self) -> tuple[Priced, ...]:
        return ((self.gpu, self.usd_per_gpu_hour), *self.beside)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        spare = ", no spare"
        if self.spare_servers:
            serving = self.servers - self.spare_servers
            spare = f": {serving:,} for the users, {self.spare_servers:,} spare"
        how = parts_text(self.parts) if self.parts else servers_text(self.servers, self.gpus)
        heads, named = self.heads or (self.users_low, if_all_come(self.users_low))
        money = money_figures(self.usd_per_month, usd_per_user_month(self.usd_per_month, heads), named)
        return (("servers", f"{how}{spare}"), *money, *price_figures([(self.gpu, self.usd_per_gpu_hour)]))


def servers_text(servers: int, gpus: int) -> str:
    """Such as `4 with 2 GPUs each`."""
    each = counted(gpus // max(servers, 1), "GPU")
    return f"{servers:,} with {each}{' each' if servers > 1 else ''}"


def parts_text(parts: Sequence["Part"]) -> str:
    """Such as `1 with 1 GPU for prompts, 3 with 1 GPU each for answers`."""
    named = zip(parts, ("prompts", "answers"), strict=True)
    return ", ".join(f"{servers_text(count, count * size)} for {what}" for (count, size), what in named)


def rent_words(priced: Sequence[Priced]) -> tuple[tuple[str, str], ...]:
    """What rent is, and where the prices are from."""
    listed = "; ".join(price_sources(priced))
    if not listed:
        return (("rent", "no price of this GPU is known."),)
    return (
        ("rent", f"all GPUs for all 730 hours of a month. Price per GPU and hour: {listed}. Check it: prices change. "
         "Staff, storage, network and taxes are not included."),
    )  # fmt: skip


def price_figures(priced: Sequence[Priced]) -> tuple[tuple[str, str], ...]:
    """An hour of each GPU, and who asks for it; nothing without a price."""
    listed = "; ".join(price_sources(priced))
    only = f"{priced[0][0].title} " if len(priced) == 1 else ""
    return ((PRICE, listed.removeprefix(only)),) if listed else ()


def serves_nobody(question: str, why: str) -> Summary:
    """Of GPUs that serve nobody."""
    answer = "These GPUs serve no users within the limits"
    return Summary(question=question, answer=answer, risk=sentence(f"{why}."), is_good=False)


def served_summary(
    answer: "Result",
    question: str,
    said: str,
    *,
    figures: Sequence[tuple[str, str]],
    priced: Sequence[Priced],
    load: "Population | Trace",
    slo: "SLO",
    plan: "Deployment",
    headroom: Headroom,
    serves: tuple[str, str] | None = None,
    found: "CapacityRow | None" = None,
    about: str = "",
    links: Sequence[str] = (),
    risk: str = "",
    options: Options | None = None,
    words: Sequence[tuple[str, str]] = (),
    leads: str = "",
) -> Summary:
    """Of an answer that serves somebody with servers such as `plan`.

    `figures` are the servers and their cost, `priced` the GPUs of the page; `serves` is a label and the users, without
    it the low end of the headroom; `found` is the row of the numbers; `about` begins the confidence text; `leads` is
    the assumption to confirm first.
    """
    name = Path(load.name).name
    label, whom = serves or (f"capacity {AT_CONFIDENCE}", f"up to {counted(headroom.low, 'user')} at once")
    return Summary(
        question=question,
        answer=said,
        figures=(
            (label, f"{whom}, workload {name}, {context_text(load)}"),
            ("model", precision_text(plan)),
            *figures,
            (EACH_GETS, promise_text(slo)),
        ),
        options=options,
        sure=f"{about}{confidence_text(headroom, found)}",
        headroom=headroom,
        confirm=top_assumptions(answer.evidence, headroom, unsure := (*_formats_text(plan.given), *links), leads),
        confirm_together=combined_sensitivity(answer.evidence, headroom, unsure, leads),
        risk=risk_of(answer.diagnostics, " ".join(filter(None, (risk, _late_text(headroom, slo))))),
        words=(*_words(name, load), *words, *rent_words(priced)),
    )


def _late_text(room: Headroom, slo: "SLO") -> str:
    """What becomes of the promise with more and more users."""
    more = max(room.users, room.low)
    half = f"About half of such fleets can serve {more:,} users. " if room.users > room.low else ""
    return (
        f"{half}With more than {more:,} users, probably more than {percent(1 - slo.attainment)} of answers are late or "
        "slow. If users send more or longer requests, fewer users are served."
    )


def _formats_text(given: "AnyArgs") -> tuple[str, ...]:
    """Not evaluated: answer quality in formats other than the model's own."""
    named = (("weights", given.quantization), ("KV cache", given.kv_cache_dtype))
    formats = [f"{what} in {name}" for what, name in named if name not in _OWN]
    if not formats:
        return ()
    return (f"Answer quality with {' and '.join(formats)}: not evaluated here. Test it on your own prompts.",)


def _words(name: str, load: "Population | Trace") -> tuple[tuple[str, str], ...]:
    what = str(load.tables.get("title", "")) if isinstance(load, Population) else f"a recorded load ({load.format})"
    return (
        ("user", "a person with an open conversation, who reads, writes or waits for an answer. Only some of the "
         "people with access are users at any moment."),
        ("95 % confidence", "95 % of fleets like this one can serve at least this many users at once."),
        *(((f"workload {name.partition(',')[0]}", f"{what}."),) if what else ()),
        ("weights", "the numbers that make up a model. With fewer bits, such as fp8, they need less GPU memory, but "
         "answers may change."),
        CONTEXT_WORD,
        TOKEN_WORD,
    )  # fmt: skip


def alone_risk(servers: int, users_low: int, needed: float | None, usd_per_server: float | None = None) -> str:
    """What no spare server means."""
    spare = "" if usd_per_server is None else f" A spare server costs ${usd_per_server:,.0f} a month more."
    if servers == 1:
        return f"There is one server and no spare: while it is down, nobody is served.{spare}"
    left = math.floor(users_low * (servers - 1) / servers)
    enough = "" if needed is None else ", still enough" if left >= needed else f", of the {needed:,.0f} needed"
    down = f"while one of {servers:,} is down, the others serve about {left:,} users{enough}"
    return f"There is no spare server: {down}.{spare}"


def _part_risk(counts: Sequence[int], users_low: int) -> str:
    """The same where some servers compute prompts and others answers."""
    if min(counts) > 1:
        left = min(math.floor(users_low * (count - 1) / count) for count in counts)
        return f"There is no spare server: while one is down, the others serve at least about {left:,} users."
    alone = [what for count, what in zip(counts, ("prompts", "answers"), strict=True) if count == 1]
    return f"There is only one server for {' and one for '.join(alone)}: while it is down, nobody is served."


def risk_of(notes: Sequence[Diagnostic], otherwise: str) -> str:
    """The general risk, and this answer's last warning."""
    alerts = [note for note in notes if note.severity in (Severity.WARNING, Severity.ERROR)]
    return f"{otherwise} Note: {alerts[-1].text}.".strip() if alerts else otherwise


def money_figures(
    usd_per_month: float | None, usd_per_head: float | None = None, heads: str = ""
) -> tuple[tuple[str, str], ...]:
    """Cost a month, of all and of one; nothing without a price."""
    if usd_per_month is None:
        return ()
    each = "" if usd_per_head is None else f": ${usd_per_head:,.2f} per {heads}"
    return (("rent", f"${usd_per_month:,.0f} a month with all GPUs running{each}"),)


def if_all_come(users: int) -> str:
    """Whom a cost is divided by: the users at 95 % confidence."""
    return f"user at {counted(users, 'user')}; more per user if fewer come"
