"""Closed-loop users who hold conversations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from boundary.files import InputError
from boundary.limits import check_limit, how_to_raise, limits
from workloads.clients import WAIT_FOR_EVER, Clients
from workloads.distributions import (
    Distribution,
    Exponential,
    Fixed,
    RoundedUp,
    size_biased_quantile,
    token_counts,
)
from workloads.populations.counts import looked_up, whole_turns
from workloads.populations.retrieval import Retrieval
from workloads.populations.sessions import Sessions
from workloads.randomness import first_uniforms, uniform_rows
from workloads.requests import OPEN_END, FloatArray, IntArray, RequestTable

BURN_IN_TURNS: Final = 32
"""Turns that everyone takes before a stationary start, so that conversations cut by max_model_len settle as well."""
DRAWN_AT_ONCE: Final = 2**17  # numbers
_Stream = tuple[str, tuple[int, ...]]
_STREAMS: Final[tuple[_Stream, ...]] = (
    ("user_tokens", ()), ("output_tokens", ()), ("turns", ()), ("retrieved", (0,)), ("thinking", ()),
)  # fmt: skip
_HISTORY: Final[tuple[_Stream, ...]] = tuple(("history", (part,)) for part in range(len(_STREAMS)))
_LONGEST_AT_START: Final = 1 - 1e-6
"""Longer than all but one in a million users are in at the start, no conversation is met: its turns are drawn."""


@dataclass(frozen=True, kw_only=True)
class Population:
    """What each of the users does; lengths in tokens per turn.

    A user holds one conversation after another. Each turn sends the system prompt, everything said so far in the
    conversation, and a new message; after the answer the user thinks, then sends the next turn or opens the next
    conversation.
    """

    name: str
    system_prompt_tokens: int
    """Shared by all conversations of all users; may be 0."""
    turns: Distribution
    """Turns per conversation, rounded up to a whole number."""
    user_tokens: Distribution
    output_tokens: Distribution
    think_time_s: Distribution
    """From the end of an answer to the next request; between conversations too."""
    retrieved: Retrieval | None = None
    thinking_share: Distribution | None = None
    """Of an answer's tokens, from 0 to 1: they are generated first, and are in no later prompt."""
    clients: Clients = WAIT_FOR_EVER
    source: str = ""
    tables: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its file says, each part with its source."""

    def __post_init__(self) -> None:
        for key in ("turns", "output_tokens"):
            if not getattr(self, key).mean() > 0:
                raise InputError(f"workload '{self.name}': {key} is always 0; give a mean above 0")
        longest = size_biased_quantile(RoundedUp(inner=self.turns), np.array([_LONGEST_AT_START]))[0]
        if longest > limits().turns:
            raise InputError(
                f"workload '{self.name}': turns: a conversation may have {longest:,.0f} turns; give turns a maximum "
                f"of at most {limits().turns:,.0f} {how_to_raise('turns')}"
            )

    def draw(
        self,
        num_users: int,
        turns_per_user: int,
        seed: int,
        max_model_len: int,
        *,
        stationary_start: bool = True,
    ) -> RequestTable:
        """One chain of `turns_per_user` rows per user, user 0 first; arguments as of `sessions`."""
        return self.sessions(num_users, turns_per_user, seed, max_model_len, stationary_start=stationary_start).table()

    def sessions(
        self,
        num_users: int,
        turns_per_user: int,
        seed: int,
        max_model_len: int,
        *,
        stationary_start: bool = True,
    ) -> Sessions:
        """What users do.

        User u's turn k depends on (seed, u, k) and what came before it alone: more users or more turns leave the rest
        as it was. A conversation whose next turn would exceed `max_model_len`, output included, ends before it; a
        first turn that exceeds it is shortened: its message to no less than half the room beside the system prompt,
        then its answer to what is left.

        With `stationary_start` the users are met in the middle of things: at time 0 each is thinking, with the rest
        of a think time to go, somewhere in a conversation whose earlier turns are in its history. Turns are
        in equilibrium as they are drawn; BURN_IN_TURNS more settle what `max_model_len` cuts. Otherwise each opens its
        first conversation after a whole think time.
        """
        self._check(num_users, turns_per_user, max_model_len)
        draws = _Draws(self, num_users, seed, max_model_len - self.system_prompt_tokens)
        return next(self._blocks(draws, turns_per_user, stationary_start=stationary_start))

    def blocks(self, num_users: int, turns_at_once: int, seed: int, max_model_len: int) -> Iterator[Sessions]:
        """The turns that `sessions` draws from a stationary start, without end, so many of each user at a time.

        A block's turns go on from those of the block before; its first ones have a think time and a time.
        """
        self._check(num_users, turns_at_once, max_model_len)
        draws = _Draws(self, num_users, seed, max_model_len - self.system_prompt_tokens)
        return self._blocks(draws, turns_at_once, stationary_start=True)

    def _blocks(self, draws: "_Draws", turns_at_once: int, *, stationary_start: bool) -> Iterator[Sessions]:
        talk = _Talk.fresh(draws.num_users)
        if stationary_start:
            talk = _walk_into(talk, draws)
        arrival_s, leading = draws.first_arrival_s(stationary_start=stationary_start), None
        for start in count(0, turns_at_once):
            numbers = range(start, start + turns_at_once)
            turns = list(draws.turns(numbers))
            columns = [talk.next_turn(turn, draws.room) for turn in turns]
            before, prompt, output, conversation = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
            think = draws.think_s(numbers)
            arrival_s = arrival_s + think[:, 0]
            found = Sessions(
                first_arrival_s=arrival_s,
                think_s=think,
                prompt_tokens=self.system_prompt_tokens + prompt,
                output_tokens=output,
                conversation=conversation,
                system_prompt_tokens=self.system_prompt_tokens,
                turns_before=start,
            )
            if not self.is_appended_to:
                found = replace(found, **self._contents(found, before, turns, leading))
                leading = None if found.leading is None else found.leading[:, -1]
            yield found
            arrival_s = found.arrival_s()[:, -1]

    @property
    def is_appended_to(self) -> bool:
        """Whether each prompt begins with the whole turn before it: nothing is retrieved, nothing thought."""
        return self.retrieved is None and self.thinking_share is None

    def _contents(
        self, found: Sessions, before: IntArray, turns: "list[_Turn]", led: IntArray | None
    ) -> dict[str, Any]:
        """What Sessions says of contents that turns share; `before` are the tokens said in earlier turns.

        `led` are the chunks behind the system prompt in the turns before these; None: not known.
        """
        thinking = np.stack([np.broadcast_to(turn.thinking, before.shape[:1]) for turn in turns], axis=1)
        own_from = np.where(thinking > 0, found.prompt_tokens, OPEN_END)
        retrieved = self.retrieved
        if retrieved is None:
            return {"own_from": own_from}
        chunks = np.stack([turn.chunks for turn in turns if turn.chunks is not None], axis=1)
        opens = before == 0
        if retrieved.in_history:  # the chunks of a conversation's first turn stay behind the system prompt
            first = np.maximum.accumulate(np.where(opens, np.arange(len(turns)), -1), axis=1)
            earlier = -1 if led is None else led[:, None]
            leading = np.where((first >= 0)[..., None], np.take_along_axis(chunks, first[..., None], axis=1), earlier)
        elif retrieved.place == "after_system_prompt":
            leading = chunks
        else:
            leading = np.where(opens[..., None], chunks, -1)
            has_chunks = chunks[..., 0] >= 0 if chunks.shape[2] else np.zeros(opens.shape, bool)
            own_from = np.where(has_chunks, self.system_prompt_tokens + before, own_from)
        return {"own_from": own_from, "leading": leading, "chunk_tokens": retrieved.chunk_tokens}

    def with_think_time(self, mean_s: float) -> "Population":
        """The same users with exponential think times of that mean; 0 is none."""
        return replace(self, think_time_s=Exponential(mean_value=mean_s) if mean_s else Fixed(value=0.0))

    def _check(self, num_users: int, turns_per_user: int, max_model_len: int) -> None:
        for name, value in (("num_users", num_users), ("turns_per_user", turns_per_user)):
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        check_limit("requests", num_users * turns_per_user, f"requests of {num_users:,} users")
        self.check_room(max_model_len)

    def check_room(self, max_model_len: int) -> None:
        """Raise InputError unless the system prompt leaves room for a message and an answer."""
        if max_model_len < self.system_prompt_tokens + 2:
            raise InputError(
                f"max_model_len is {max_model_len:,}; workload '{self.name}' needs at least "
                f"{self.system_prompt_tokens + 2:,}: its system prompt has {self.system_prompt_tokens:,} tokens"
            )


@dataclass(frozen=True)
class _Draws:
    """The random choices of all users, turn by turn: [num_users] arrays."""

    population: Population
    num_users: int
    seed: int
    room: int

    def _uniform(self, purpose: str, *index: int) -> FloatArray:
        return first_uniforms(self.num_users, self.seed, purpose, *index)

    def _by_turn(self, stream: _Stream, turns: range) -> FloatArray:
        purpose, index = stream
        return uniform_rows(self.num_users, self.seed, purpose, turns, *index)

    def _parts(self, turns: range) -> Iterator[range]:
        """Turns to draw at once: many of few users, since each array costs a call."""
        size = max(DRAWN_AT_ONCE // self.num_users, 1)
        return (turns[start : start + size] for start in range(0, len(turns), size))

    def turns(self, numbers: range) -> "Iterator[_Turn]":
        return self._turns(numbers, _STREAMS, has_chunks=True)

    def skipped_turns(self, count: int) -> "Iterator[_Turn]":
        """Before the start; which chunks they have nobody needs to know."""
        return self._turns(range(count), _HISTORY, has_chunks=False)

    def _turns(self, numbers: range, streams: Sequence[_Stream], *, has_chunks: bool) -> "Iterator[_Turn]":
        """Turn by turn, drawn from the streams of messages, answers, turns, chunks and thinking."""
        for part in self._parts(numbers):
            drawn = (self._by_turn(stream, part) for stream in streams)
            user_u, output_u = next(drawn), next(drawn)
            num_turns = looked_up(whole_turns, self.population.turns, next(drawn))
            if self.population.is_appended_to:
                yield from map(_Turn, *self._fitted(user_u, output_u, self.room), num_turns)
            else:
                more = self._more(user_u, output_u, next(drawn), next(drawn))
                chunks = self._chunks(more[2] // self._chunk_tokens, part) if has_chunks else repeat(None)
                yield from map(_Turn, *more[:2], num_turns, *more[2:], chunks)

    @property
    def _chunk_tokens(self) -> int:
        retrieved = self.population.retrieved
        return retrieved.chunk_tokens if retrieved else 1

    def _more(
        self, user_u: FloatArray, output_u: FloatArray, chunks_u: FloatArray, thinking_u: FloatArray
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        """Tokens of messages, answers, chunks; of thinking; of what later prompts do not hold."""
        retrieved, share = self.population.retrieved, self.population.thinking_share
        counts = np.zeros(user_u.shape, np.int64) if retrieved is None else retrieved.fitted_counts(chunks_u, self.room)
        tokens = counts * self._chunk_tokens
        user, output = self._fitted(user_u, output_u, self.room - tokens)
        thinking = np.zeros_like(user) if share is None else thinking_tokens(share.quantile(thinking_u), output)
        is_dropped = retrieved is not None and not retrieved.in_history
        return user, output, tokens, thinking, thinking + tokens * is_dropped

    def _chunks(self, counts: IntArray, turns: range) -> Iterator[IntArray | None]:
        """Turn by turn, [users, most] numbers of chunks, -1 where a user has no more."""
        retrieved = self.population.retrieved
        if retrieved is None:
            return repeat(None)
        found = np.full((*counts.shape, retrieved.most_chunks), -1, np.int64)
        for place in range(retrieved.most_chunks):
            which = retrieved.which(self._by_turn(("retrieved", (1 + place,)), turns))
            found[..., place] = np.where(place < counts, which, -1)
        return iter(found)

    def position(self) -> tuple[IntArray, IntArray]:
        """In equilibrium: turns of the current conversation, how many of them have been."""
        length, share = np.minimum(self._uniform("start", 0), _LONGEST_AT_START), self._uniform("start", 1)
        num_turns = size_biased_quantile(RoundedUp(inner=self.population.turns), length)
        return num_turns.astype(np.int64), (share * num_turns).astype(np.int64)

    def think_s(self, numbers: range) -> FloatArray:
        """[num_users, numbers] think time before each of these turns, 0 before the first of all."""
        distribution = self.population.think_time_s
        think = np.zeros((self.num_users, len(numbers)))
        for part in self._parts(range(max(numbers.start, 1), numbers.stop)):
            place = slice(part.start - numbers.start, part.stop - numbers.start)
            think[:, place] = distribution.quantile(self._by_turn(("think_time", ()), part)).T
        return think

    def first_arrival_s(self, *, stationary_start: bool) -> FloatArray:
        """[num_users] of the first turn."""
        distribution, uniform = self.population.think_time_s, self._uniform("start", 2)
        if not stationary_start:
            return distribution.quantile(uniform)
        return self._uniform("start", 3) * size_biased_quantile(distribution, uniform)

    def _fitted(self, user_u: FloatArray, output_u: FloatArray, room: int | IntArray) -> tuple[IntArray, IntArray]:
        user = looked_up(token_counts, self.population.user_tokens, user_u)
        return fitted(user, looked_up(token_counts, self.population.output_tokens, output_u), room)


class _Turn(NamedTuple):
    """What turns add: [users] arrays of tokens; each fits alone."""

    user: IntArray
    output: IntArray
    num_turns: IntArray
    """Of a conversation that this turn opens."""
    retrieved: IntArray | int = 0
    thinking: IntArray | int = 0
    """Of the output."""
    lost: IntArray | int = 0
    """What later prompts do not hold."""
    chunks: IntArray | None = None

    def of(self, who: npt.NDArray[np.intp]) -> "_Turn":
        """The same for some users."""
        by_user = {name: part[who] for name, part in self._asdict().items() if isinstance(part, np.ndarray)}
        return self._replace(**by_user)


def thinking_tokens(share: FloatArray, output: IntArray) -> IntArray:
    """So much of each answer, in whole tokens."""
    return np.rint(np.clip(share, 0, 1) * output).astype(np.int64)


def fitted(user: IntArray, output: IntArray, room: int | IntArray) -> tuple[IntArray, IntArray]:
    """Messages and answers of turns that each fit alone beside the system prompt: what is too long is shortened."""
    if (user + output <= room).all():
        return user, output
    kept = np.minimum(user, np.maximum(room - output, room // 2))
    return kept, np.minimum(output, room - kept)


@dataclass
class _Talk:
    """Where each user is in the conversation: [num_users] arrays."""

    history: IntArray
    """Tokens said in this conversation, the system prompt left out."""
    turns_left: IntArray
    conversation: IntArray
    """Counts the user's conversations from 0; -1 before the first."""

    @classmethod
    def fresh(cls, num_users: int) -> "_Talk":
        zeros = np.zeros(num_users, np.int64)
        return cls(history=zeros, turns_left=zeros.copy(), conversation=zeros - 1)

    def next_turn(self, turn: _Turn, room: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Let everyone take a turn: tokens said before, of the prompt beside the system prompt, of the output; talk."""
        added = turn.user + turn.retrieved
        opens = (self.turns_left == 0) | (self.history + added + turn.output > room)
        before = np.where(opens, 0, self.history)
        prompt = before + added
        self.history = prompt + turn.output - turn.lost
        self.turns_left = np.where(opens, turn.num_turns, self.turns_left) - 1
        self.conversation = self.conversation + opens
        return before, prompt, turn.output, self.conversation


def _walk_into(talk: _Talk, draws: _Draws) -> _Talk:
    """Let everyone take the turns that lie before the start."""
    talk.turns_left, been = draws.position()
    skipped = been + BURN_IN_TURNS
    everyone = int(skipped.min())
    for k, turn in enumerate(draws.skipped_turns(int(skipped.max()))):
        if k < everyone:
            talk.next_turn(turn, draws.room)
            continue
        who = np.flatnonzero(skipped > k)
        part = _Talk(talk.history[who], talk.turns_left[who], talk.conversation[who])
        part.next_turn(turn.of(who), draws.room)
        talk.history[who], talk.turns_left[who] = part.history, part.turns_left
    talk.conversation[:] = np.where(talk.turns_left > 0, 0, -1)
    return talk
