"""Closed-loop users who hold conversations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

import numpy as np

from files.limits import check_limit, how_to_raise, limits
from files.reading import InputError
from workloads.clients import WAIT_FOR_EVER, Clients
from workloads.distributions import Distribution, Exponential, Fixed, RoundedUp, size_biased_quantile
from workloads.images import ImageUse
from workloads.populations.at_limit import BEGINS_ANEW, END, OPENS, SUMMARY, AtLimit
from workloads.populations.counts import LONGEST_MET
from workloads.populations.draws import Draws, Talk, Turns
from workloads.populations.retrieval import Retrieval
from workloads.populations.sessions import SYSTEM_PROMPT_CONTENT, Sessions, chained, is_chained
from workloads.requests import OPEN_END, BoolArray, Int32Array, IntArray, RequestTable

_TENANTS_FROM: Final = 2**40  # numbers below it are those of chunks


@dataclass(frozen=True, kw_only=True)
class AskedContext:
    """That a mean context was asked for, which `max_model_len` is not to shorten: see `keeping_context`."""

    times: "Population | None" = None
    """Whose context it is so many times; None: it was given in tokens."""


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
    images: ImageUse | None = None
    """Before the text of messages; their tokens are a part of the prompt once the model is known."""
    at_limit: AtLimit = END
    clients: Clients = WAIT_FOR_EVER
    asked_context: AskedContext | None = None
    source: str = ""
    tables: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its file says, each part with its source."""

    def __post_init__(self) -> None:
        for key in ("turns", "output_tokens"):
            if not getattr(self, key).mean() > 0:
                raise InputError(f"workload '{self.name}': {key} is always 0; give a mean above 0")
        tenants = self.clients.tenants
        if tenants is not None and tenants.longest_system_prompt and not self.system_prompt_tokens:
            raise InputError(
                f"workload '{self.name}' has no system prompt that a tenant's own could replace; give it one of the "
                "tokens that the other tenants have"
            )
        self._check_images()
        longest = size_biased_quantile(RoundedUp(inner=self.turns), np.array([LONGEST_MET]))[0]
        if longest > limits().turns:
            raise InputError(
                f"workload '{self.name}': turns: a conversation may have {longest:,.0f} turns; give turns a maximum "
                f"of at most {limits().turns:,.0f} {how_to_raise('turns')}"
            )

    def _check_images(self) -> None:
        """Raise InputError for what would move images from where they were first."""
        tenants = self.clients.tenants
        for moves, what, remedy in (
            (self.retrieved is not None, "retrieved passages", "leave [retrieved] out"),
            (self.at_limit.goes_on, "conversations that go on beyond the longest context", "leave at_limit out"),
            (
                tenants is not None and bool(tenants.longest_system_prompt),
                "tenants with system prompts of their own",
                "leave system_prompt_tokens out",
            ),
        ):
            if moves and self.images is not None:
                raise InputError(
                    f"workload '{self.name}': images are not simulated with {what}; {remedy}, or the images"
                )

    @property
    def opening_tokens(self) -> int:
        """That every prompt of a conversation begins with: the system prompt, and the images of its first message."""
        return self.system_prompt_tokens + (self.images.opening_tokens if self.images else 0)

    @property
    def message_image_tokens(self) -> int:
        """Of the images at the beginning of each message."""
        return self.images.message_tokens if self.images else 0

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
        until_s: float = math.inf,
    ) -> Sessions:
        """What users do.

        User u's turn k depends only on (seed, u, k) and that user's earlier turns: more users or turns change nothing
        else. A conversation whose next turn would exceed `max_model_len`, output included, ends before it. A first
        turn that exceeds it is shortened: first its message, to at least half of the room after the system prompt;
        then its answer, to the rest. With `at_limit` the conversation goes on instead.

        With `stationary_start` users are in mid-session: at time 0 each has part of a think time left, somewhere in a
        conversation whose earlier turns are in its history. Turns are drawn in equilibrium; BURN_IN_TURNS more settle
        the effect of `max_model_len`. Otherwise each opens its first conversation after a whole think time.

        Turns that cannot arrive by `until_s` need not be drawn: their think time is infinite.
        """
        if self.asked_context is not None:
            asked = num_users, turns_per_user, seed, max_model_len
            return self.within(max_model_len).sessions(*asked, stationary_start=stationary_start, until_s=until_s)
        self._check(num_users, turns_per_user, max_model_len)
        draws = Draws(self, num_users, seed, self.room(max_model_len))
        until_s = math.inf if self.at_limit.summary_tokens else until_s  # no think time comes after a summary
        return next(self._blocks(draws, turns_per_user, stationary_start=stationary_start, until_s=until_s))

    def blocks(self, num_users: int, turns_at_once: int, seed: int, max_model_len: int) -> Iterator[Sessions]:
        """The turns that `sessions` draws from a stationary start, without end, so many of each user at a time.

        A block's turns go on from those of the block before; its first ones have a think time and a time.
        """
        if self.asked_context is not None:
            return self.within(max_model_len).blocks(num_users, turns_at_once, seed, max_model_len)
        self._check(num_users, turns_at_once, max_model_len)
        draws = Draws(self, num_users, seed, self.room(max_model_len))
        return self._blocks(draws, turns_at_once, stationary_start=True)

    def _blocks(
        self, draws: Draws, turns_at_once: int, *, stationary_start: bool, until_s: float = math.inf
    ) -> Iterator[Sessions]:
        talk = Talk.at_start(draws) if stationary_start else Talk.fresh(draws.num_users)
        arrival_s, leading = draws.first_arrival_s(stationary_start=stationary_start), None
        for start in count(0, turns_at_once):
            numbers = range(start, start + turns_at_once)
            think, how_many = draws.think_s(numbers, from_s=arrival_s, until_s=until_s)
            turns, was_summarized = draws.turns(numbers, how_many), talk.was_summarized.copy()
            prompt, output, conversation, *more = talk.taken(turns, how_many, draws)
            what = more[1] if self.at_limit.goes_on else None
            if what is not None:
                think[np.column_stack([was_summarized, what[:, :-1] == SUMMARY])] = 0.0
            arrival_s = arrival_s + think[:, 0]
            found = Sessions(
                first_arrival_s=arrival_s,
                think_s=think,
                prompt_tokens=prompt,
                output_tokens=output,
                conversation=conversation,
                system_prompt_tokens=self.system_prompt_tokens,
                turns_before=start,
                what=what,
            )
            if self.images is not None:
                found = replace(found, images=self.images, message_at=self.opening_tokens + more[0])
            if not self.is_appended_to:
                found = replace(found, **self._contents(found, more[0], turns, leading))
                leading = None if found.leading is None else found.leading[:, -1]
            yield found
            arrival_s = found.arrival_s()[:, -1]

    @property
    def is_appended_to(self) -> bool:
        """Whether each prompt begins with the whole turn before it: nothing is retrieved, nothing thought."""
        return self.retrieved is None and self.thinking_share is None

    def _contents(self, found: Sessions, before: Int32Array, turns: Turns, led: IntArray | None) -> dict[str, Any]:
        """What Sessions says of contents that turns share; `before` are the tokens said in earlier turns.

        `led` are the chunks behind the system prompt in the turns before these; None: not known.
        """
        own_from = np.full(before.shape, OPEN_END)
        if turns.thinking.size:
            own_from = np.where(turns.thinking.T > 0, found.prompt_tokens, own_from)
        retrieved = self.retrieved
        if retrieved is None:
            return {"own_from": own_from}
        chunks, opens = turns.chunks.transpose(1, 0, 2), before == 0
        if found.what is not None:
            opens = found.what == OPENS
            chunks = np.where((found.what == SUMMARY)[..., None], -1, chunks)
        if retrieved.in_history:  # the chunks of a conversation's first turn stay behind the system prompt
            anew = opens if found.what is None else opens | (found.what == BEGINS_ANEW)
            first = np.maximum.accumulate(np.where(anew, np.arange(opens.shape[1]), -1), axis=1)
            chunks = np.where(opens[..., None], chunks, -1)
            earlier = -1 if led is None else led[:, None]
            leading = np.where((first >= 0)[..., None], np.take_along_axis(chunks, first[..., None], axis=1), earlier)
        elif retrieved.place == "after_system_prompt":
            leading = chunks
        else:
            leading = np.where(opens[..., None], chunks, -1)
            has_chunks = chunks[..., 0] >= 0 if chunks.shape[2] else np.zeros(opens.shape, bool)
            own_from = np.where(has_chunks, self.system_prompt_tokens + before, own_from)
        return {"own_from": own_from, "leading": leading, "chunk_tokens": retrieved.chunk_tokens}

    def within(self, max_model_len: int) -> "Population":
        """The same users where no request is longer, with the mean context that was asked for, if one was."""
        if self.asked_context is None:
            return self
        from workloads.populations.asked_context import keeping_context  # noqa: PLC0415  it computes equilibria

        return keeping_context(self, max_model_len)

    def with_think_time(self, mean_s: float) -> "Population":
        """The same users with exponential think times of that mean; 0 is none."""
        return replace(self, think_time_s=Exponential(mean_value=mean_s) if mean_s else Fixed(value=0.0))

    def _check(self, num_users: int, turns_per_user: int, max_model_len: int) -> None:
        for name, value in (("num_users", num_users), ("turns_per_user", turns_per_user)):
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        check_limit("requests", num_users * turns_per_user, f"requests of {num_users:,} users")
        if self.images is not None and self.images.shape is None:
            raise InputError(
                f"workload '{self.name}' has images, and only a model tells how many tokens they become; ask about a "
                "model (headcount capacity, simulate), or take a workload of text"
            )
        self.check_room(max_model_len)

    def check_room(self, max_model_len: int) -> None:
        """Raise InputError unless the system prompt leaves room for a message and an answer."""
        longest = max_model_len - self.room(max_model_len) + self.message_image_tokens
        if max_model_len < longest + 2:
            what = "system prompt and a summary have" if self.at_limit.summary_tokens else "system prompt has"
            what = "system prompt and images have" if self.images else what
            raise InputError(
                f"max_model_len is {max_model_len:,}; workload '{self.name}' needs at least {longest + 2:,}: "
                f"its {what} {longest:,} tokens"
            )

    def room(self, max_model_len: int) -> int:
        """Tokens beside the system prompt, the longest where tenants have their own, and beside a summary."""
        own = 0 if self.clients.tenants is None else self.clients.tenants.longest_system_prompt
        return max_model_len - max(self.opening_tokens, own) - (self.at_limit.summary_tokens or 0)

    def served(self, table: RequestTable, seed: int, opens: BoolArray | None = None) -> RequestTable:
        """A draw's table with the clients, their tenants, and these tenants' own system prompts."""
        return self._with_own_prompts(self.clients.applied(table, seed, opens))

    def of_tenants(self, table: RequestTable, seed: int) -> RequestTable:
        """The same with patient clients."""
        tenants = self.clients.tenants
        return table if tenants is None else self._with_own_prompts(tenants.applied(table, seed))

    def _with_own_prompts(self, table: RequestTable) -> RequestTable:
        tenants = self.clients.tenants
        if tenants is None or not tenants.longest_system_prompt:
            return table
        return with_own_prompts(table, self.system_prompt_tokens, tenants.system_prompts)


def with_own_prompts(table: RequestTable, system_prompt_tokens: int, own: Sequence[int | None]) -> RequestTable:
    """The requests with the system prompt of each one's tenant in place of the workload's; None: the workload's.

    Whatever users shared behind the workload's system prompt, they share behind their own with their tenant's alone.
    """
    assert table.tenancy is not None, "somebody says whose the requests are"
    longer = np.array([0 if tokens is None else tokens - system_prompt_tokens for tokens in own])
    has_own = np.array([tokens is not None for tokens in own])
    of = table.tenancy.of.astype(np.int64)
    whose = _whose_spans(table, of)
    is_open, content = table.span_end == OPEN_END, table.span_content
    shared = has_own[whose] & ((content == SYSTEM_PROMPT_CONTENT) | is_chained(content))
    return replace(
        table,
        prompt_tokens=(table.prompt_tokens + longer[of]).astype(np.int32),
        span_end=np.where(is_open, OPEN_END, table.span_end + longer[whose]).astype(np.int32),
        span_content=np.where(shared, chained(content, -_TENANTS_FROM - whose), content),
    )


def _whose_spans(table: RequestTable, of: IntArray) -> IntArray:
    """[m] the tenant of each span: requests that use the same spans are of one conversation."""
    count = table.span_count.astype(np.int64)
    row = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    found = np.zeros(table.num_spans, np.int64)
    found[table.span_start[row] + place] = of[row]
    return found
