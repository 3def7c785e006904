"""What `max_model_len` makes of a workload: what it cuts, shortens and refuses, and how long requests are then."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import numpy as np

from workloads.populations.asked_context import AS_LONG, keeps_context, whole_context
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.requests import BoolArray, RequestTable, Waits

CUT_FROM: Final = 0.01  # of conversations, messages, prompts or answers: with less the traffic is what was asked for
_OF_ROWS: Final = (
    "arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens", "priority", "span_start", "span_count",
)  # fmt: skip
LONGER_CONTEXTS: Final = tuple(2**power for power in range(12, 25))
"""Tokens, of models that may hold what another cuts."""
KEPT: Final = 0.98  # of a mean context that was asked for


@dataclass(frozen=True, kw_only=True)
class TrafficEffects:
    """Shares from 0 to 1; None where the kind of load has no such thing."""

    max_model_len: int
    prompt_tokens: float
    """Of a request that is served, on average."""
    output_tokens: float
    conversations_cut: float | None = None
    """Of a population's conversations: they end before their last turn, which would not fit."""
    conversations_truncated: float | None = None
    """Of a population's conversations: they go on without the oldest of what was said."""
    conversations_summarized: float | None = None
    """Of a population's conversations: they go on with a summary of what was said."""
    messages_shortened: float | None = None
    """Of a population's turns."""
    prompts_refused: float | None = None
    """Of recorded requests: the prompt leaves no room for a token, or comes after one that left none."""
    answers_cut: float | None = None
    """Of all turns or requests: the answer ends early."""
    asked_context_tokens: float = 0.0
    """Of prompt and answer together, on average, where nothing were cut; 0 where that is not known."""
    keeps_context: bool = False
    """Whether that mean was asked for: all messages are longer for what is cut, so that it holds where it can."""
    held_from_tokens: int | None = None
    """The least longest context, of usual ones, that serves a population as it was asked for; None where this does."""

    @property
    def is_as_asked(self) -> bool:
        """Whether hardly anything is cut, and requests are about as long as they would be without a limit.

        Where a mean context was asked for, whether requests have it.
        """
        return self.is_as_long and (self.keeps_context or self.worst < CUT_FROM)

    @property
    def is_as_long(self) -> bool:
        """Whether requests are about as long, on average, as they would be without a limit."""
        return self.context_tokens >= (KEPT if self.keeps_context else AS_LONG) * self.asked_context_tokens

    @property
    def context_tokens(self) -> float:
        """Of prompt and answer together, on average."""
        return self.prompt_tokens + self.output_tokens

    @property
    def worst(self) -> float:
        """The largest share."""
        return max(getattr(self, name) or 0.0 for name in _SHARES)

    @property
    def cut(self) -> float:
        """The largest share, or that of the mean context that is missing."""
        return max(self.worst, 1 - self.context_tokens / max(self.asked_context_tokens, self.context_tokens, 1.0))

    def to_json(self) -> dict[str, float | None]:
        return asdict(self)


_SHARES: Final = tuple(item.name for item in fields(TrafficEffects) if item.type == float | None)
_AT_LIMIT: Final = {
    "end": "conversations_cut", "truncate": "conversations_truncated", "summarize": "conversations_summarized",
}  # fmt: skip


def traffic_effects(load: Population | RequestTable, max_model_len: int) -> TrafficEffects:
    """What a limit does to a load: counted for recorded requests, in equilibrium for a population."""
    if isinstance(load, RequestTable):
        return _of_requests(load, max_model_len)
    effects = _of_population(load, max_model_len)
    if effects.is_as_asked:
        return effects
    longer = (length for length in LONGER_CONTEXTS if length > max_model_len)
    held = next((length for length in longer if _of_population(load, length).is_as_asked), None)
    return replace(effects, held_from_tokens=held)


def _of_population(load: Population, max_model_len: int) -> TrafficEffects:
    found = equilibrium(load, max_model_len)
    cut: dict[str, Any] = {_AT_LIMIT[load.at_limit.does]: found.conversations_cut}
    return TrafficEffects(
        max_model_len=max_model_len,
        prompt_tokens=found.prompt,
        output_tokens=found.context - found.prompt,
        messages_shortened=found.messages_shortened,
        answers_cut=found.answers_cut,
        asked_context_tokens=whole_context(load),
        keeps_context=keeps_context(load, max_model_len),
        **cut,
    )


def refused_requests(table: RequestTable, max_prompt_tokens: int) -> BoolArray:
    """[n] whose prompt is longer, and the turns of their sessions after them: an error ends a conversation."""
    refused: BoolArray = table.prompt_tokens > max_prompt_tokens
    if not refused.any():
        return refused
    later = np.flatnonzero(table.follows >= 0)
    while (more := later[refused[table.follows[later]] & ~refused[later]]).size:
        refused[more] = True
    return refused


def served_requests(table: RequestTable, max_prompt_tokens: int) -> RequestTable:
    """The others, each at its own time; the same table where none is refused, or all are."""
    kept = ~refused_requests(table, max_prompt_tokens)
    if kept.all() or not kept.any():
        return table
    index = np.cumsum(kept) - 1
    rows = {name: getattr(table, name)[kept] for name in _OF_ROWS}
    follows = table.follows[kept]
    rows["follows"] = np.where(follows >= 0, index[follows], follows)
    waits = table.waits
    if waits is not None:
        resumes = waits.resumes[kept]
        again = np.where((resumes >= 0) & kept[resumes], index[resumes], -1).astype(np.int32)
        waits = Waits(waits.patience_s[kept], waits.timeout_s[kept], waits.backoff_s[:, kept], again)
    images = table.images and table.images.rows(kept)
    return replace(table, **rows, waits=waits, tenancy=table.tenancy and table.tenancy.rows(kept), images=images)


def _of_requests(table: RequestTable, max_model_len: int) -> TrafficEffects:
    room = max_model_len - table.prompt_tokens.astype(np.int64)
    refused = refused_requests(table, max_model_len - 1)
    served = ~refused
    outputs = np.minimum(table.output_tokens, room)[served]
    return TrafficEffects(
        max_model_len=max_model_len,
        prompt_tokens=float(table.prompt_tokens[served].mean()) if len(outputs) else 0.0,
        output_tokens=float(outputs.mean()) if len(outputs) else 0.0,
        prompts_refused=float(refused.mean()),
        answers_cut=float((~refused & (table.output_tokens > room)).mean()),
    )
