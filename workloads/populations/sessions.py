"""What users were drawn to do, turn by turn, before anyone serves them."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.images import ImageUse, RequestImages
from workloads.populations.at_limit import OPENS
from workloads.randomness import mixed_words
from workloads.requests import OPEN_END, BoolArray, FloatArray, Int32Array, IntArray, RequestTable

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
    prompt_tokens: Int32Array
    """The whole context sent."""
    output_tokens: Int32Array
    conversation: Int32Array
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
    what: Int32Array | None = None
    """[users, turns] what each turn is, as in `at_limit`; None: conversations end at the limit."""
    images: ImageUse | None = None
    message_at: IntArray | None = None
    """[users, turns] where each message begins, in tokens of its prompt: with its images, where there are any."""
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
        from workloads.populations.kernels import lay_rows  # noqa: PLC0415  the compiler, where users are drawn

        begin, length = self._turns_of_each(until_s)
        n = int(length.sum())
        floats, longs, ints = np.empty((2, n)), np.empty((3, n), np.int64), np.empty((2, n), np.int32)
        opened = lay_rows(
            begin, length, self.first_arrival_s, self.think_s, self.prompt_tokens, self.output_tokens,
            self.conversation, CONVERSATIONS_PER_USER, *floats, *longs, *ints,
        )  # fmt: skip
        follows, content, conversations = longs
        if self.own_from is None:
            spans = _spans(content[:opened], conversations, self.system_prompt_tokens)
        else:
            spans = self._spans_of_turns(_Rows.of_turns(begin, length), content[conversations])
        return RequestTable(
            arrival_s=floats[0],
            follows=follows,
            think_s=floats[1],
            prompt_tokens=ints[0],
            output_tokens=ints[1],
            priority=np.zeros(n, np.int32),
            images=self._images_of_rows(_Rows.of_turns(begin, length)) if self.images is not None else None,
            **spans,
        )

    def _images_of_rows(self, rows: "_Rows") -> RequestImages:
        """Those of each conversation, and of its messages so far.

        Of a conversation that began before the first of these turns, the images of its earlier messages are taken as
        text: where they stood is not known.
        """
        use, at = self.images, self.message_at
        assert use is not None and use.shape is not None and at is not None, "images are those of a model"
        shape, turns = use.shape, self.conversation.shape[1]
        opens = np.ones(self.conversation.shape, bool)
        opens[:, 1:] = self.conversation[:, 1:] != self.conversation[:, :-1]
        own = use.per_request + use.per_conversation * opens  # [users, turns] images that a turn brings
        until = np.cumsum(own, axis=None).reshape(own.shape)
        first_turn = np.maximum.accumulate(np.where(opens, np.arange(turns), 0), axis=1)
        start = np.take_along_axis(until - own, first_turn, axis=1)  # of the conversation's images
        offset = np.empty(int(until[-1, -1]), np.int64)
        places = until - use.per_request
        for number in range(use.per_request):
            offset[places + number] = at + shape.before + number * shape.tokens
        places = (until - own)[opens]
        for number in range(use.per_conversation):
            offset[places + number] = self.system_prompt_tokens + shape.before + number * shape.tokens
        return RequestImages(
            shapes=(shape,),
            start=rows.of(start).astype(np.int64),
            num=rows.of(until - start).astype(np.int32),
            content=np.arange(len(offset), dtype=np.int64),
            offset=offset.astype(np.int32),
            shape=np.zeros(len(offset), np.int32),
        )

    def _spans_of_turns(self, rows: "_Rows", content: IntArray) -> dict[str, object]:
        assert self.own_from is not None, "each turn has its own spans where something is retrieved or thought"
        alone = ALONE_FROM + rows.user * CONVERSATIONS_PER_USER + self.turns_before + rows.turn
        leading = np.zeros((len(content), 0), np.int64) if self.leading is None else rows.of(self.leading)
        ends = self.system_prompt_tokens + self.chunk_tokens * np.arange(leading.shape[1] + 1)
        return _spans_of_turns(content, alone, rows.of(self.own_from), leading, ends)

    def _turns_of_each(self, until_s: float | FloatArray) -> tuple[IntArray, IntArray]:
        """[users] which turn is the first row of the table, and how many turns are rows."""
        from workloads.populations.kernels import count_turns  # noqa: PLC0415  the compiler, where users are drawn

        begin = np.zeros(self.num_users, np.int64) if self.met_at is None else self.met_at
        end = np.empty(self.num_users, np.int64)
        each_until_s = np.broadcast_to(until_s, end.shape).astype(np.float64)
        count_turns(self.think_s, self.first_arrival_s, begin, each_until_s, end)
        if not isinstance(until_s, np.ndarray):
            end = np.minimum(end + 1, self.think_s.shape[1])
        return begin, np.maximum(end - begin, 0)

    @property
    def is_met(self) -> BoolArray:
        """[users, turns] which turns lie at time 0 or later."""
        if self.met_at is None:
            return np.ones(self.prompt_tokens.shape, bool)
        return np.arange(self.prompt_tokens.shape[1]) >= self.met_at[:, None]

    def opens(self, until_s: float | FloatArray = math.inf) -> BoolArray:
        """Which rows of the table open a conversation; a user's first row counts as one."""
        rows = _Rows.of_turns(*self._turns_of_each(until_s))
        conversation = rows.of(self.conversation)
        opens = np.ones(len(conversation), bool)
        opens[1:] = conversation[1:] != conversation[:-1] if self.what is None else rows.of(self.what)[1:] == OPENS
        opens[rows.first] = True
        return opens


class _Rows(NamedTuple):
    """Turns that stand together as rows, user by user: [n] each."""

    user: IntArray
    turn: IntArray
    first: IntArray
    """[users who have any] each one's first row."""

    @classmethod
    def of_turns(cls, begin: IntArray, length: IntArray) -> "_Rows":
        """So many turns of each user, from one on."""
        first = np.cumsum(length) - length
        user = np.repeat(np.arange(len(length)), length)
        return cls(user, np.arange(len(user)) - np.repeat(first - begin, length), first[length > 0])

    def of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[n] of [users, turns]."""
        return np.asarray(values[self.user, self.turn])


def _spans_of_turns(
    content: IntArray, alone: IntArray, own_from: IntArray, leading: IntArray, ends: IntArray
) -> dict[str, object]:
    """The columns of `RequestTable` that tell what requests share; `ends` are those of system prompt and chunks."""
    n, most = leading.shape
    named, end = np.empty((n, most + 3), np.int64), np.empty((n, most + 3), np.int64)
    named[:, 0], end[:, 0] = SYSTEM_PROMPT_CONTENT, ends[0]
    for place in range(most):
        has = leading[:, place] >= 0
        named[:, place + 1] = np.where(has, chained(named[:, place], -1 - leading[:, place]), named[:, place])
        end[:, place + 1] = np.where(has, ends[place + 1], end[:, place])
    shared = np.where(end[:, most] > ends[0], chained(named[:, most], content), content)
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


def chained(before: IntArray, part: IntArray) -> IntArray:
    """Content ids of parts that follow a content: a hash of both (splitmix64), above all other ids.

    A part below 0 is a chunk or a tenant, above 0 a conversation.
    """
    mixed = before.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + part.astype(np.uint64)
    return (mixed_words(mixed) >> np.uint64(2)).astype(np.int64) | _CHAINED_FROM


def is_chained(content: IntArray) -> BoolArray:
    """Which content ids `chained` made."""
    return content >= _CHAINED_FROM


def _spans(opened: IntArray, conversations: IntArray, system_prompt_tokens: int) -> dict[str, Any]:
    """The columns of `RequestTable` that tell what requests share, of contents of conversations and which is whose."""
    each = 2 if system_prompt_tokens else 1
    named = np.full((len(opened), each), SYSTEM_PROMPT_CONTENT, np.int64)
    named[:, -1] = opened
    end = np.full(named.shape, OPEN_END, np.int32)
    if system_prompt_tokens:
        end[:, 0] = system_prompt_tokens
    return {
        "span_start": conversations * each,
        "span_count": np.full(len(conversations), each, np.int32),
        "span_content": named.ravel(),
        "span_end": end.ravel(),
    }
