"""Closed-loop users who hold conversations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boundary.files import InputError
from boundary.limits import check_limit, how_to_raise, limits
from boundary.schema import Strict, Tokens, typed
from workloads.distributions import (
    Distribution,
    Exponential,
    Fixed,
    RoundedUp,
    Spec,
    parse_distribution,
    size_biased_quantile,
    token_counts,
)
from workloads.randomness import first_uniforms
from workloads.requests import FloatArray, IntArray, RequestTable
from workloads.sessions import Sessions

BURN_IN_TURNS: Final = 32
"""Turns that everyone takes before a stationary start, so that conversations cut by max_model_len settle as well."""
DRAWN_AT_ONCE: Final = 2**15  # numbers
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
        room = max_model_len - self.system_prompt_tokens
        draws = _Draws(self, num_users, seed, room)
        talk = _Talk.fresh(num_users)
        if stationary_start:
            talk = _walk_into(talk, draws)
        columns = [talk.next_turn(*turn, room) for turn in draws.turns(turns_per_user)]
        user_prompt, output, conversation = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
        first_arrival, think = draws.think_times(turns_per_user, stationary_start)
        return Sessions(
            first_arrival_s=first_arrival,
            think_s=think,
            prompt_tokens=self.system_prompt_tokens + user_prompt,
            output_tokens=output,
            conversation=conversation,
            system_prompt_tokens=self.system_prompt_tokens,
        )

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

    def _by_turn(self, purpose: str, turns: range) -> FloatArray:
        return np.stack([self._uniform(purpose, k) for k in turns])

    def _parts(self, turns: range) -> Iterator[range]:
        """Turns to draw at once: many of few users, since each array costs a call."""
        size = max(DRAWN_AT_ONCE // self.num_users, 1)
        return (turns[start : start + size] for start in range(0, len(turns), size))

    def turns(self, count: int) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """User tokens, output tokens, turns of a conversation opened now; each such that the turn alone fits."""
        for part in self._parts(range(count)):
            user, output, turns = (self._by_turn(name, part) for name in ("user_tokens", "output_tokens", "turns"))
            yield from zip(*self._fitted(user, output), _whole_turns(self.population.turns, turns), strict=True)

    def skipped_turn(self, k: int, who: npt.NDArray[np.intp]) -> tuple[IntArray, IntArray, IntArray]:
        """User tokens, output tokens, turns of a new conversation before the start, for the users `who`."""
        user, output, turns = (self._uniform("history", k, part)[who] for part in range(3))
        return *self._fitted(user, output), _whole_turns(self.population.turns, turns)

    def position(self) -> tuple[IntArray, IntArray]:
        """In equilibrium: turns of the current conversation, how many of them have been."""
        length, share = np.minimum(self._uniform("start", 0), _LONGEST_AT_START), self._uniform("start", 1)
        num_turns = size_biased_quantile(RoundedUp(inner=self.population.turns), length)
        return num_turns.astype(np.int64), (share * num_turns).astype(np.int64)

    def think_times(self, turns_per_user: int, stationary_start: bool) -> tuple[FloatArray, FloatArray]:
        """[num_users] first arrival, [num_users, turns_per_user] think time before each turn, 0 before the first."""
        distribution = self.population.think_time_s
        think = np.zeros((self.num_users, turns_per_user))
        for part in self._parts(range(1, turns_per_user)):
            think[:, part.start : part.stop] = distribution.quantile(self._by_turn("think_time", part)).T
        uniform = self._uniform("start", 2)
        if not stationary_start:
            return distribution.quantile(uniform), think
        return self._uniform("start", 3) * size_biased_quantile(distribution, uniform), think

    def _fitted(self, user_u: FloatArray, output_u: FloatArray) -> tuple[IntArray, IntArray]:
        user = token_counts(self.population.user_tokens, user_u)
        return fitted(user, token_counts(self.population.output_tokens, output_u), self.room)


def fitted(user: IntArray, output: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """Messages and answers of turns that each fit alone beside the system prompt: what is too long is shortened."""
    kept = np.minimum(user, np.maximum(room - output, room // 2))
    return kept, np.minimum(output, room - kept)


def _whole_turns(turns: Distribution, u: FloatArray) -> IntArray:
    return RoundedUp(inner=turns).quantile(u).astype(np.int64)


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

    def next_turn(
        self, user: IntArray, output: IntArray, num_turns: IntArray, room: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Let everyone take a turn: prompt tokens beside the system prompt, output tokens, conversation."""
        opens = (self.turns_left == 0) | (self.history + user + output > room)
        prompt = np.where(opens, 0, self.history) + user
        self.history = prompt + output
        self.turns_left = np.where(opens, num_turns, self.turns_left) - 1
        self.conversation = self.conversation + opens
        return prompt, output, self.conversation


def _walk_into(talk: _Talk, draws: _Draws) -> _Talk:
    """Let everyone take the turns that lie before the start."""
    talk.turns_left, been = draws.position()
    skipped = been + BURN_IN_TURNS
    for k in range(int(skipped.max())):
        who = np.flatnonzero(skipped > k)
        part = _Talk(talk.history[who], talk.turns_left[who], talk.conversation[who])
        part.next_turn(*draws.skipped_turn(k, who), draws.room)
        talk.history[who], talk.turns_left[who] = part.history, part.turns_left
    talk.conversation[:] = np.where(talk.turns_left > 0, 0, -1)
    return talk


class _SystemPrompt(Strict, frozen=True, kw_only=True):
    tokens: Tokens
    source: str = ""


class _Tables(Strict, frozen=True, kw_only=True):
    """A population's file."""

    title: str = ""
    system_prompt: Tokens | _SystemPrompt
    turns: Spec
    user_tokens: Spec
    output_tokens: Spec
    think_time_s: Spec


_DISTRIBUTIONS: Final = ("turns", "user_tokens", "output_tokens", "think_time_s")


def population_from_mapping(data: Mapping[str, Any], *, name: str, file: Path | str = "") -> Population:
    """A population from the tables of a preset file such as workloads/presets/chat.toml. Raises InputError."""
    place = file or f"workload '{name}'"
    tables = typed(data, _Tables, place)
    prompt = tables.system_prompt
    parts = {key: parse_distribution(getattr(tables, key), file=place, name=key) for key in _DISTRIBUTIONS}
    sources = {key: part["source"] for key, part in data.items() if isinstance(part, Mapping) and "source" in part}
    return Population(
        name=name,
        system_prompt_tokens=prompt.tokens if isinstance(prompt, _SystemPrompt) else prompt,
        source="; ".join(f"{key}: {source}" for key, source in sources.items()),
        tables=data,
        **parts,
    )
