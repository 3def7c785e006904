"""Loads that hold an engine's batch at chosen compositions."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from simulator.latency.step_time import BatchSums


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Keep the oldest `keep` requests (None: all), add prompts, step until they are computed, then `steps` times more.

    `budget` limits a step's tokens, `chunk` each prompt's share of a step; None is the engine's own limit.
    """

    keep: int | None = None
    add: tuple[int, ...] = ()  # tokens of each prompt
    budget: int | None = None
    chunk: int | None = None
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Load:
    """Phases that run one after the other on an engine that was empty; prompts are random tokens from `seed`."""

    name: str
    phases: tuple[Phase, ...]
    seed: int = 0

    def most_requests(self) -> int:
        """How many are there at once."""
        most = held = 0
        for phase in self.phases:
            held = (held if phase.keep is None else min(held, phase.keep)) + len(phase.add)
            most = max(most, held)
        return most

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        return asdict(self)


def load_from_json(record: Mapping[str, Any]) -> Load:
    """The inverse of `Load.to_json`."""
    phases = tuple(Phase(**{**phase, "add": tuple(phase["add"])}) for phase in record["phases"])
    return Load(name=record["name"], phases=phases, seed=record["seed"])


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
