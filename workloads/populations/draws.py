"""What the users of a population do at random, and the conversations that follow from it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from workloads.distributions import Distribution, size_biased_quantile, token_counts
from workloads.images import ImageUse
from workloads.populations.at_limit import AtLimit
from workloads.populations.counts import Counts, counts_by_row, met_turns, whole_turns
from workloads.populations.retrieval import Retrieval
from workloads.randomness import keys_of_rows, uniform_rows
from workloads.requests import BoolArray, FloatArray, Int32Array, IntArray

BURN_IN_TURNS: Final = 32
"""Turns that everyone takes before a stationary start, so that conversations cut by max_model_len settle as well."""
DRAWN_AT_ONCE: Final = 2**17  # numbers
_TURNS_AT_ONCE: Final = 6  # of users who may have enough of them
_NUMBERS_AT_ONCE: Final = 2**12  # of each of four users: so much stays in the processor's cache
_SPARE_S: Final = 1.0  # beyond what rounding may add to a sum of times
_NONE: Final[Int32Array] = np.empty((0, 0), np.int32)
_LONG: Final = np.array([0.95])
_Stream = tuple[str, tuple[int, ...]]
_STREAMS: Final[tuple[_Stream, ...]] = (
    ("user_tokens", ()), ("output_tokens", ()), ("turns", ()), ("retrieved", (0,)), ("thinking", ()),
)  # fmt: skip
_HISTORY: Final[tuple[_Stream, ...]] = tuple(("history", (part,)) for part in range(len(_STREAMS)))


class Behaviour(Protocol):
    """What is drawn of users: see `Population`."""

    @property
    def system_prompt_tokens(self) -> int: ...
    @property
    def turns(self) -> Distribution: ...
    @property
    def user_tokens(self) -> Distribution: ...
    @property
    def output_tokens(self) -> Distribution: ...
    @property
    def think_time_s(self) -> Distribution: ...
    @property
    def retrieved(self) -> Retrieval | None: ...
    @property
    def thinking_share(self) -> Distribution | None: ...
    @property
    def at_limit(self) -> AtLimit: ...
    @property
    def is_appended_to(self) -> bool: ...
    @property
    def opening_tokens(self) -> int: ...
    @property
    def message_image_tokens(self) -> int: ...
    @property
    def images(self) -> ImageUse | None: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """What turns add: [turns, users] arrays of tokens; each fits alone."""

    added: Int32Array
    """The message, and what is retrieved."""
    output: Int32Array
    num_turns: Int32Array
    """Of a conversation that this turn opens."""
    thinking: Int32Array
    """Of the output; empty where there is none, as the next two."""
    lost: Int32Array
    """What later prompts do not hold."""
    chunks: IntArray
    """[turns, users, most] numbers of chunks, -1 where a user has no more."""


@dataclass(frozen=True)
class Draws:
    """The random choices of all users, turn by turn."""

    population: Behaviour
    num_users: int
    seed: int
    room: int
    """Beside what conversations begin with, in tokens."""

    def _by_turn(self, stream: _Stream, turns: range) -> FloatArray:
        purpose, index = stream
        return uniform_rows(self.num_users, self.seed, purpose, turns, *index)

    def _parts(self, turns: range) -> Iterator[range]:
        """Turns to draw at once: many of few users, since each array costs a call."""
        size = max(DRAWN_AT_ONCE // self.num_users, 1)
        return (turns[start : start + size] for start in range(0, len(turns), size))

    def turns(self, numbers: range, how_many: Int32Array) -> Turns:
        """These turns of all users, of each as many as it needs."""
        return self._turns(numbers, _STREAMS, how_many, has_chunks=True)

    def skipped_turns(self, how_many: Int32Array) -> Iterator[tuple[Int32Array, Turns]]:
        """So many of each user before the start, some at a time; which chunks they have nobody needs to know."""
        for part in self._parts(range(int(how_many.max()))):
            of_these = np.clip(how_many - part.start, 0, len(part)).astype(np.int32)
            yield of_these, self._turns(part, _HISTORY, of_these, has_chunks=False)

    def _turns(self, numbers: range, streams: Sequence[_Stream], how_many: Int32Array, *, has_chunks: bool) -> Turns:
        """Drawn from the streams of messages, answers, turns, chunks and thinking."""
        population = self.population
        wanted: tuple[tuple[Counts, Distribution], ...] = (
            (token_counts, population.user_tokens), (token_counts, population.output_tokens),
            (whole_turns, population.turns),
        )  # fmt: skip
        user, output, num_turns = (
            counts_by_row(counts, distribution, (self.seed, stream[0], numbers, *stream[1]), how_many)
            for stream, (counts, distribution) in zip(streams, wanted, strict=False)
        )
        tokens: Any = population.message_image_tokens
        lost, thinking, chunks = _NONE, _NONE, np.empty((0, 0, 0), np.int64)
        retrieved, share = population.retrieved, population.thinking_share
        if retrieved is not None:
            counts = retrieved.fitted_counts(self._by_turn(streams[3], numbers), chunk_room(population, self.room))
            tokens = (counts * retrieved.chunk_tokens).astype(np.int32)
            lost = _NONE if retrieved.in_history else tokens
            chunks = self._chunks(retrieved, counts, numbers) if has_chunks else chunks
        if population.message_image_tokens or not population.is_appended_to:  # else they are as they are taken
            user, output = fitted(user, output, self.room - tokens)
        if share is not None:
            thinking = thinking_tokens(share.quantile(self._by_turn(streams[4], numbers)), output)
            lost = lost + thinking if lost.size else thinking
        added = user if retrieved is None and not population.message_image_tokens else user + tokens
        return Turns(added=added, output=output, num_turns=num_turns, thinking=thinking, lost=lost, chunks=chunks)

    def _chunks(self, retrieved: Retrieval, counts: IntArray, numbers: range) -> IntArray:
        """[numbers, users, most] of chunks."""
        found = np.full((*counts.shape, retrieved.most_chunks), -1, np.int64)
        for place in range(retrieved.most_chunks):
            has = place < counts
            found[has, place] = retrieved.which(self._by_turn(("retrieved", (1 + place,)), numbers)[has])
        return found

    def position(self) -> tuple[IntArray, IntArray]:
        """In equilibrium: turns of the current conversation, how many of them have been."""
        one = np.ones(self.num_users, np.int32)
        num_turns = counts_by_row(met_turns, self.population.turns, (self.seed, "start", range(1)), one)[0]
        share = self._by_turn(("start", ()), range(1, 2))[0]
        return num_turns.astype(np.int64), (share * num_turns).astype(np.int64)

    def think_s(self, numbers: range, *, from_s: FloatArray, until_s: float) -> tuple[FloatArray, Int32Array]:
        """[num_users, numbers] think time before each of these turns, 0 before the first of all; how many are drawn.

        Those after some turn that cannot come by `until_s` are not, and infinite.
        """
        from workloads.populations.kernels import put_think_times  # noqa: PLC0415  the compiler
        from workloads.streams import NUMBERS_AT_ONCE, first_numbers  # noqa: PLC0415

        begin, keys = int(numbers.start == 0), keys_of_rows(self.seed, "think_time", numbers)
        think, at_s = np.full((self.num_users, len(numbers)), np.inf), from_s.copy()
        think[:, :begin] = 0.0
        how_many = np.full(self.num_users, begin, np.int32)
        at_once, enough_s = _TURNS_AT_ONCE if until_s < math.inf else len(numbers), until_s + _SPARE_S
        for first in range(begin, len(numbers), at_once):
            still = np.flatnonzero(at_s <= enough_s) // NUMBERS_AT_ONCE
            blocks = still[np.append(True, still[1:] != still[:-1])[: len(still)]]
            for some in np.array_split(blocks, -(-len(blocks) * at_once // _NUMBERS_AT_ONCE) or 1):
                found = self.population.think_time_s.quantile(first_numbers(keys[first : first + at_once], some))
                put_think_times(found, some, first, enough_s, think, at_s, how_many)
        return think, how_many

    def first_arrival_s(self, *, stationary_start: bool) -> FloatArray:
        """[num_users] of the first turn."""
        distribution = self.population.think_time_s
        uniform, share = self._by_turn(("start", ()), range(2, 4))
        return (
            share * size_biased_quantile(distribution, uniform) if stationary_start else distribution.quantile(uniform)
        )


def thinking_tokens(share: FloatArray, output: Int32Array) -> Int32Array:
    """So much of each answer, in whole tokens."""
    return np.rint(np.clip(share, 0, 1) * output).astype(np.int32)


def chunk_room(population: Behaviour, room: int) -> int:
    """Tokens that chunks may fill of what is beside the system prompt: what most conversations leave, at least half."""
    said = population.user_tokens, population.output_tokens
    earlier = float(whole_turns(population.turns, _LONG)[0] - 1) * sum(each.mean() for each in said)
    beside = earlier + sum(token_counts(each, _LONG)[0] for each in said)
    return int(max(room - math.ceil(beside), room // 2))


def fitted(user: Any, output: Any, room: Any) -> tuple[Any, Any]:
    """Messages and answers of turns that each fit alone beside the system prompt: what is too long is shortened.

    Arrays of int32 or int64, or a number for the room.
    """
    if (user <= room - output).all():
        return user, output
    kept = np.minimum(user, np.maximum(room - output, room // 2))
    return kept, np.minimum(output, room - kept)


@dataclass
class Talk:
    """Where each user is in the conversation: [num_users] arrays."""

    history: IntArray
    """Tokens said in this conversation, the system prompt left out."""
    turns_left: IntArray
    conversation: IntArray
    """Counts the user's conversations from 0; -1 before the first."""
    was_summarized: BoolArray
    """Whether the turn before was a request for a summary."""

    @classmethod
    def fresh(cls, num_users: int) -> "Talk":
        zeros = np.zeros(num_users, np.int64)
        return cls(zeros, zeros.copy(), zeros - 1, np.zeros(num_users, bool))

    @classmethod
    def at_start(cls, draws: Draws) -> "Talk":
        """In the middle of things, after the turns that lie before time 0."""
        talk = cls.fresh(draws.num_users)
        talk.turns_left, been = draws.position()
        for how_many, turns in draws.skipped_turns((been + BURN_IN_TURNS).astype(np.int32)):
            talk._take(turns, how_many, draws, np.empty((0, 0, 0), np.int32))
        talk.conversation = np.where(talk.turns_left > 0, 0, -1)
        return talk

    def taken(self, turns: Turns, how_many: Int32Array, draws: Draws) -> Int32Array:
        """Let each take so many of these turns: [3 to 5, users, turns] tokens of prompt and output, the conversation.

        Where not all that was said is in later prompts, fourth the tokens of it that are in the prompt. Where a
        conversation goes on beyond the limit, fifth what each turn is, as in `at_limit`.
        """
        num_turns, num_users = turns.added.shape
        population = draws.population
        columns = 5 if population.at_limit.goes_on else 3 if population.is_appended_to and not population.images else 4
        rows = np.zeros((columns, num_users, num_turns), np.int32)
        self._take(turns, how_many, draws, rows)
        return rows

    def _take(self, turns: Turns, how_many: Int32Array, draws: Draws, rows: Int32Array) -> None:
        from workloads.populations.kernels import take_turns, take_turns_on  # noqa: PLC0415  the compiler

        what = (turns.added, turns.output, turns.num_turns, turns.lost), draws.population.opening_tokens, rows
        at_limit = draws.population.at_limit
        if not at_limit.goes_on:
            take_turns(self.history, self.turns_left, self.conversation, how_many, draws.room, *what)
            return
        tokens = at_limit.kept_tokens(draws.room), at_limit.summary_tokens or 0
        take_turns_on(
            self.history, self.turns_left, self.conversation, self.was_summarized, how_many, draws.room, tokens, *what
        )
