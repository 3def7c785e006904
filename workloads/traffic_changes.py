"""What about traffic can be changed, and by how much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from files.names import readable
from files.reading import InputError
from workloads.clients import LIBRARY_TIMEOUT_S

LEAST_FACTOR: Final = 0.01
MOST_FACTOR: Final = 100.0
Form = Literal["mean", "share", "switch"]
FORMS: Final[Mapping[Form, str]] = {
    "mean": "x2 or a value",
    "share": "SHARE:TOKENS, such as 10%:32K",
    "switch": "true or false",
}
"""How an amount is written."""
_FACTORS: Final = f"give x{LEAST_FACTOR:g} to x{MOST_FACTOR:g}"


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much of something: a factor (`x2`), a value (`600`), a value for a share of the turns (`10%:32K`), or
    whether it is so (`true`)."""

    value: float
    is_factor: bool = False
    share: float | None = None
    is_switch: bool = False
    """The value is 1, true, or 0, false."""

    @property
    def form(self) -> Form:
        return "switch" if self.is_switch else "mean" if self.share is None else "share"

    def __str__(self) -> str:
        if self.is_switch:
            return "true" if self.value else "false"
        if self.is_factor:
            return f"x{self.value:g}"
        return f"{self.value:.15g}" if self.share is None else f"{100 * self.share:g}%:{self.value:.15g}"

    def factor_of(self, mean: float, what: str) -> float:
        """By what a mean is multiplied. Raises InputError for a factor that is out of range."""
        if not self.is_factor and not mean > 0:
            raise InputError(f"{what} is always 0; no factor makes its mean {self.value:g}")
        factor = self.value if self.is_factor else self.value / mean
        if not LEAST_FACTOR <= factor <= MOST_FACTOR:
            if self.is_factor:
                raise InputError(f"{what} x{factor:.4g}; {_FACTORS}")
            least, most = (readable(limit * mean) for limit in (LEAST_FACTOR, MOST_FACTOR))
            given = f"{what} {readable(self.value)} is x{readable(factor)} of the mean, {readable(mean)}"
            raise InputError(f"{given}; give {least} to {most}, or x{LEAST_FACTOR:g} to x{MOST_FACTOR:g}")
        return factor


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing about traffic that can be changed; an amount that is no factor is a new mean in `unit`."""

    meaning: str
    unit: str
    """Of an amount that is no factor: tokens, s, turns, chunks or retries; "" of a switch."""
    form: Form = "mean"
    """A new mean, a value for a share of the turns, or a switch; only a mean may be a factor."""


CHANGES: Final[Mapping[str, Change]] = {
    "context": Change(
        meaning="Mean length of prompt and answer together: each message of a user is as much longer as that takes; "
        "in a trace each prompt is longer.",
        unit="tokens",
    ),
    "output": Change(
        meaning="Length of each answer; prompts of a trace stay as they were recorded.",
        unit="tokens",
    ),
    "think-time": Change(
        meaning="Time from an answer to the next message; its spread is scaled too.",
        unit="s",
    ),
    "turns": Change(meaning="Turns per conversation, at least one.", unit="turns"),
    "system-prompt": Change(meaning="Tokens that all conversations begin with.", unit="tokens"),
    "retrieved": Change(
        meaning="Chunks that a turn retrieves, rounded to whole ones; of workloads such as rag.",
        unit="chunks",
    ),
    "retrieved-in-history": Change(
        meaning="Whether later turns keep the chunks of earlier ones in their prompts; kept chunks stand before the "
        "message of their turn.",
        unit="",
        form="switch",
    ),
    "drop-oldest": Change(
        meaning="Whether a conversation that fills the model's context goes on without its oldest half; otherwise it "
        "ends.",
        unit="",
        form="switch",
    ),
    "long-prompts": Change(
        meaning="Messages of so many tokens, for a share of all turns: 10%:32K.",
        unit="tokens",
        form="share",
    ),
    "patience": Change(
        meaning="Mean time that users wait for the first token before they give up; exponential, unless the workload "
        "says otherwise.",
        unit="s",
    ),
    "client-timeout": Change(
        meaning="Time after which a client library cancels an attempt whose answer is not complete; it tries again.",
        unit="s",
    ),
    "retries": Change(
        meaning=f"Attempts that follow time-outs; without a time-out it is openai-python's, {LIBRARY_TIMEOUT_S:g} s.",
        unit="retries",
    ),
}
