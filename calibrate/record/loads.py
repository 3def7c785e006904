"""Loads that hold an engine's batch at chosen compositions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from files.errors import HeadcountError
from files.schema import AtLeastOne, Count
from simulator.latency.step_time import BatchSums


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Keep the oldest `keep` requests (None: all), add prompts, step until they are computed, then `steps` times more.

    `budget` limits a step's tokens, `chunk` each prompt's share of a step; None is the engine's own limit.
    """

    keep: Count | None = None
    add: tuple[AtLeastOne, ...] = ()  # tokens of each prompt
    budget: AtLeastOne | None = None
    chunk: AtLeastOne | None = None
    steps: Count = 0


@dataclass(frozen=True, kw_only=True)
class Load:
    """Phases that run one after the other on an engine that was empty; prompts are random tokens from `seed`."""

    name: Annotated[str, Meta(pattern=r"^[\w-]{1,80}$", description="a name of letters, digits and dashes")]
    phases: tuple[Phase, ...]
    seed: Count = 0

    def most_requests(self) -> int:
        """How many are there at once."""
        most = held = 0
        for phase in self.phases:
            held = (held if phase.keep is None else min(held, phase.keep)) + len(phase.add)
            most = max(most, held)
        return most

    def num_steps(self, limits: "Limits") -> tuple[int, int]:
        """Most steps that it takes, and most sequences that they hold together."""
        steps = rows = held = 0
        for phase in self.phases:
            held = (held if phase.keep is None else min(held, phase.keep)) + len(phase.add)
            budget = min(phase.budget or limits.max_num_batched_tokens, limits.max_num_batched_tokens)
            by_chunk = max(phase.add, default=0) // min(phase.chunk or budget, budget)
            taken = phase.steps + max(sum(phase.add) // budget, by_chunk) + 2
            steps, rows = steps + taken, rows + taken * min(held, budget)
        return steps, rows


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an engine takes; `window` is the tokens that its windowed layers attend to, None without any."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    kv_tokens: int
    window: int | None = None


@dataclass
class _Request:
    prompt_tokens: int
    computed: int = 0

    @property
    def is_decoding(self) -> bool:
        return self.computed >= self.prompt_tokens


def expected_steps(load: Load, limits: Limits) -> Iterator[tuple[int, BatchSums]]:
    """Phase and sums of each step that the load gives if the KV cache holds it, as vLLM schedules it since 0.31."""
    assert load.most_requests() <= limits.max_num_seqs, "a load whose requests wait for each other"
    if limits.max_num_seqs > limits.max_num_batched_tokens:
        raise HeadcountError(
            f"max_num_seqs is {limits.max_num_seqs:,}, above max_num_batched_tokens {limits.max_num_batched_tokens:,}: "
            "some sequences would wait forever; lower max_num_seqs or raise max_num_batched_tokens"
        )
    alive: list[_Request] = []
    for number, phase in enumerate(load.phases):
        alive = alive[: phase.keep]
        added = [_Request(tokens) for tokens in phase.add]
        alive += added
        left = phase.steps
        while alive and (left > 0 or not all(each.is_decoding for each in added)):
            left -= all(each.is_decoding for each in added)
            yield number, _step(alive, phase, limits)


def _step(alive: list[_Request], phase: Phase, limits: Limits) -> BatchSums:
    sums = BatchSums()
    window = limits.window or limits.max_model_len
    budget = min(phase.budget or limits.max_num_batched_tokens, limits.max_num_batched_tokens)
    chunk = phase.chunk if phase.chunk and len(alive) > 1 else budget
    for request in alive[: limits.max_num_seqs]:
        known = max(request.prompt_tokens, request.computed + 1)
        tokens = min(known - request.computed, chunk, budget)
        if tokens == 0:
            break
        end = request.computed + tokens
        sums.add(start=request.computed, end=end, is_sampled=end == known, is_decode=tokens == 1, window=window)
        request.computed = end
        budget -= tokens
    return sums
