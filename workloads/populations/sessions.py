"""What users were drawn to do, turn by turn, before anyone serves them."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from workloads.randomness import mixed_words
from workloads.requests import NO_PREDECESSOR, OPEN_END, BoolArray, FloatArray, IntArray, RequestTable

SYSTEM_PROMPT_CONTENT: Final = 0
CONVERSATIONS_PER_USER: Final = 2**24
"""Room for content ids: conversation c of user u has the id 1 + u * CONVERSATIONS_PER_USER + c."""
ALONE_FROM: Final = 2**61
"""What turn k of user u shares with no other has the id ALONE_FROM + u * CONVERSATIONS_PER_USER + k."""
_CHAINED_FROM: Final = 2**62


@dataclass(frozen=True, kw_only=True)
class AnswerTimes:
    """About how long answers take, from the prompt to the last token: seconds for each answer, and for each token."""

    answer_s: float = 0.0
    prompt_token_s: float = 0.0
    output_token_s: float = 0.0

    def of(self, prompt_tokens: Any, output_tokens: Any) -> Any:
        """Of answers with so many tokens: of one or of the mean, given as numbers, or of many, given as arrays."""
        return self.answer_s + self.prompt_token_s * prompt_tokens + self.output_token_s * output_tokens


NO_TIME: Final = AnswerTimes()


@dataclass(frozen=True, kw_only=True, eq=False)
class Sessions:
    """[users, turns] arrays, times in seconds, lengths in tokens."""

    first_arrival_s: FloatArray
    """[users] of each one's first turn."""
    think_s: FloatArray
    """Before each turn; 0 before the first."""
    prompt_tokens: IntArray
    """The whole context sent."""
    output_tokens: IntArray
    conversation: IntArray
    """Counts each user's conversations; -1 never appears."""
    system_prompt_tokens: int
    own_from: IntArray | None = None
    """[users, turns] token position from which on no other turn has the same, OPEN_END where later turns go on with it.
    None: they always do."""
    leading: IntArray | None = None
    """[users, turns, chunks] numbers of the chunks that follow the system prompt, -1 where there are no more."""
    chunk_tokens: int = 0
    met_at: IntArray | None = None
    """[users] the turn, counted from 0, that is a user's first; None: it is turn 0. Earlier ones lie before time 0."""
    turns_before: int = 0
    """Each user's turns before these, in a block of turns that goes on from another."""

    @property
    def num_users(self) -> int:
        return len(self.first_arrival_s)

    def head(self, num_users: int) -> "Sessions":
        """The first users."""
        by_user: dict[str, Any] = {
            name: value[:num_users] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **by_user)

    def shifted(self, by_s: FloatArray) -> "Sessions":
        """The same users, each so much later."""
        return replace(self, first_arrival_s=self.first_arrival_s + by_s)

    def arrival_s(self, answers: AnswerTimes = NO_TIME) -> FloatArray:
        """[users, turns] when each turn arrives if answers take so long: with NO_TIME, no turn can be sooner.

        Those before a user's first arrive with it.
        """
        gaps = self.think_s.copy()
        gaps[:, 0] = 0.0
        if answers != NO_TIME:
            gaps[:, 1:] += answers.of(self.prompt_tokens[:, :-1], self.output_tokens[:, :-1])
        if self.met_at is not None:
            gaps[np.arange(gaps.shape[1]) <= self.met_at[:, None]] = 0.0
        return np.asarray(np.cumsum(gaps, axis=1) + self.first_arrival_s[:, None])

    def met_later(self, time_s: float, answers: AnswerTimes) -> "Sessions":
        """What comes from that time on, which is the new time 0, if answers take so long until then.

        Users whose turns do not reach it have none.
        """
        arrival_s = self.arrival_s(answers)
        met_at = (arrival_s < time_s).sum(axis=1)
        last = np.minimum(met_at, arrival_s.shape[1] - 1)
        first_arrival_s = np.take_along_axis(arrival_s, last[:, None], axis=1)[:, 0] - time_s
        return replace(self, first_arrival_s=np.maximum(first_arrival_s, 0.0), met_at=met_at)

    @property
    def reach_the_start(self) -> bool:
        """Whether every user has a turn from time 0 on."""
        return self.met_at is None or bool(self.met_at.max(initial=0) < self.prompt_tokens.shape[1])

    def table(self, until_s: float | FloatArray = math.inf) -> RequestTable:
        """Rows user by user; each user's last is the first that cannot arrive by `until_s`.

        Where each of the users has a time of its own, no row is kept that cannot arrive by then.

        Two spans per conversation, shared by its turns: the system prompt, and what is the conversation's own. Where
        chunks are retrieved or thinking is left out, each turn has its own spans: the system prompt, each chunk that
        follows it, what it shares with other turns of the conversation, what is its own.
        """
        keep = self._kept(until_s)
        users, turns = np.nonzero(keep)
        n, is_first = len(users), turns == (0 if self.met_at is None else self.met_at[users])
        content = 1 + users * CONVERSATIONS_PER_USER + self.conversation[keep]
        if self.own_from is None:
            spans = _spans(content, self.system_prompt_tokens)
        else:
            alone = ALONE_FROM + users * CONVERSATIONS_PER_USER + self.turns_before + turns
            leading = np.zeros((n, 0), np.int64) if self.leading is None else self.leading[keep]
            ends = self.system_prompt_tokens + self.chunk_tokens * np.arange(leading.shape[1] + 1)
            spans = _spans_of_turns(content, alone, self.own_from[keep], leading, ends)
        return RequestTable(
            arrival_s=np.where(is_first, self.first_arrival_s[users], np.nan),
            follows=np.where(is_first, NO_PREDECESSOR, np.arange(n) - 1),
            think_s=np.where(is_first, 0.0, self.think_s[keep]),
            prompt_tokens=self.prompt_tokens[keep].astype(np.int32),
            output_tokens=self.output_tokens[keep].astype(np.int32),
            priority=np.zeros(n, np.int32),
            **spans,
        )

    def _kept(self, until_s: float | FloatArray) -> BoolArray:
        """[users, turns] which turns are rows of the table."""
        if isinstance(until_s, np.ndarray):
            return np.asarray(self.is_met & (self.arrival_s() <= until_s[:, None]))
        keep = self.is_met
        if until_s == math.inf:
            return keep
        keep[:, 1:] &= self.arrival_s()[:, :-1] <= until_s
        return keep

    @property
    def is_met(self) -> BoolArray:
        """[users, turns] which turns lie at time 0 or later."""
        if self.met_at is None:
            return np.ones(self.prompt_tokens.shape, bool)
        return np.arange(self.prompt_tokens.shape[1]) >= self.met_at[:, None]

    def opens(self, until_s: float | FloatArray = math.inf) -> BoolArray:
        """Which rows of the table open a conversation; a user's first row counts as one."""
        opens = np.ones(self.prompt_tokens.shape, bool)
        opens[:, 1:] = self.conversation[:, 1:] != self.conversation[:, :-1]
        opens[:, 1:] |= ~self.is_met[:, :-1]
        return opens[self._kept(until_s)]


def _spans_of_turns(
    content: IntArray, alone: IntArray, own_from: IntArray, leading: IntArray, ends: IntArray
) -> dict[str, Any]:
    """The columns of `RequestTable` that tell what requests share; `ends` are those of system prompt and chunks."""
    n, most = leading.shape
    named, end = np.empty((n, most + 3), np.int64), np.empty((n, most + 3), np.int64)
    named[:, 0], end[:, 0] = SYSTEM_PROMPT_CONTENT, ends[0]
    for place in range(most):
        has = leading[:, place] >= 0
        named[:, place + 1] = np.where(has, _chained(named[:, place], -1 - leading[:, place]), named[:, place])
        end[:, place + 1] = np.where(has, ends[place + 1], end[:, place])
    shared = np.where(end[:, most] > ends[0], _chained(named[:, most], content), content)
    named[:, most + 1], end[:, most + 1] = shared, np.maximum(own_from, end[:, most])
    named[:, most + 2], end[:, most + 2] = alone, OPEN_END
    given = end > np.concatenate([np.zeros((n, 1), np.int64), end[:, :-1]], axis=1)  # a span holds a token at least
    count = given.sum(axis=1)
    return {
        "span_start": np.cumsum(count) - count,
        "span_count": count.astype(np.int32),
        "span_content": named[given],
        "span_end": end[given].astype(np.int32),
    }


def _chained(before: IntArray, part: IntArray) -> IntArray:
    """Content ids of parts that follow a content: a hash of both (splitmix64), above all other ids.

    A part below 0 is a chunk, above 0 a conversation.
    """
    mixed = before.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + part.astype(np.uint64)
    return (mixed_words(mixed) >> np.uint64(2)).astype(np.int64) | _CHAINED_FROM


def _spans(content: IntArray, system_prompt_tokens: int) -> dict[str, Any]:
    """The columns of `RequestTable` that tell what requests share; rows of one conversation stand together."""
    opens: BoolArray = np.concatenate([[True], content[1:] != content[:-1]])
    each = 2 if system_prompt_tokens else 1
    named = np.full((int(opens.sum()), each), SYSTEM_PROMPT_CONTENT, np.int64)
    named[:, -1] = content[opens]
    end = np.full(named.shape, OPEN_END, np.int32)
    if system_prompt_tokens:
        end[:, 0] = system_prompt_tokens
    return {
        "span_start": (np.cumsum(opens) - 1) * each,
        "span_count": np.full(len(content), each, np.int32),
        "span_content": named.ravel(),
        "span_end": end.ravel(),
    }
