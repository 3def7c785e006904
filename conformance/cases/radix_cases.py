"""Random operations on a radix tree, for laying ours beside SGLang's."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.engines.sglang.eviction import EVICTION_POLICIES
from simulator.engines.sglang.token_spans import Spans

PAGE_SIZES = (1, 16, 64)
OPERATIONS = {"match": 0.4, "insert": 0.3, "unlock": 0.17, "evict": 0.08, "order": 0.05}


@dataclass(frozen=True, kw_only=True)
class RadixCase:
    """A pool, sequences that share prefixes, and what is done with them one after the other."""

    name: str
    page_size: int
    max_total_num_tokens: int
    radix_eviction_policy: str
    threshold: int
    next_prompt_estimate: int
    sequences: tuple[Spans, ...]
    operations: tuple[dict[str, Any], ...]

    def to_json(self, tree_core: str) -> dict[str, Any]:
        """What the probe reads; `tree_core` is one of SGLang's two implementations."""
        return asdict(self) | {"tree_core": tree_core, "disable_radix_cache": False}


def random_radix_case(seed: int, number: int, *, num_operations: int = 120) -> RadixCase:
    """Case `number` of a seed, decided by both alone."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    page_size = PAGE_SIZES[number % len(PAGE_SIZES)]
    sequences = random_sequences(rng, int(rng.integers(2, 12)), scale=max(8, page_size * 2))
    longest = max(spans[-1][1] for spans in sequences)
    next_prompt = int(rng.integers(0, 40))
    return RadixCase(
        name=f"{seed}/{number}",
        page_size=page_size,
        max_total_num_tokens=page_size * (longest // page_size + 1) * int(rng.integers(1, 5)),
        radix_eviction_policy=EVICTION_POLICIES[number // len(PAGE_SIZES) % len(EVICTION_POLICIES)],
        threshold=next_prompt + int(rng.integers(1, longest)),
        next_prompt_estimate=next_prompt,
        sequences=sequences,
        operations=tuple(_operation(rng, sequences) for _ in range(num_operations)),
    )


def random_sequences(rng: np.random.Generator, count: int, *, scale: int) -> tuple[Spans, ...]:
    """Sequences that begin as an earlier one does, up to any of its tokens, and go on otherwise."""
    found: list[Spans] = []
    for content in range(1, count + 1):
        shared: Spans = ()
        if found and rng.random() < 0.7:
            origin = found[int(rng.integers(len(found)))]
            shared = cut(origin, int(rng.integers(1, origin[-1][1] + 1)))
        start = shared[-1][1] if shared else 0
        found.append((*shared, (content, start + int(rng.integers(1, scale * 6)))))
    return tuple(found)


def cut(spans: Spans, end: int) -> Spans:
    """A sequence's first `end` tokens."""
    kept = [(content, min(run_end, end)) for content, run_end in spans]
    return tuple(run for place, run in enumerate(kept) if place == 0 or kept[place - 1][1] < end)


def _operation(rng: np.random.Generator, sequences: tuple[Spans, ...]) -> dict[str, Any]:
    does = str(rng.choice([*OPERATIONS], p=[*OPERATIONS.values()]))
    if does == "unlock":
        return {"do": does, "lock": int(rng.integers(1000))}
    if does == "evict":
        return {"do": does, "num_tokens": int(rng.integers(1, 200))}
    if does == "order":
        return {"do": does, "waiting": [_part(rng, sequences) for _ in range(rng.integers(1, 8))]}
    number, num_tokens = _part(rng, sequences)
    inserted = int(rng.integers(0, num_tokens + 1)) if rng.random() < 0.3 else 0
    return {
        "do": does, "sequence": number, "num_tokens": num_tokens, "locks": bool(rng.random() < 0.5),
        "priority": int(rng.integers(0, 3)), "inserted_len": inserted,
    }  # fmt: skip


def _part(rng: np.random.Generator, sequences: tuple[Spans, ...]) -> tuple[int, int]:
    """A sequence, and how many of its tokens."""
    number = int(rng.integers(len(sequences)))
    length = sequences[number][-1][1]
    return number, length if rng.random() < 0.4 else int(rng.integers(1, length + 1))
