"""vLLM's `--limit-mm-per-prompt`: how many images, videos, sounds a prompt may hold."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from files.documents import parse_json
from files.errors import HeadcountError
from files.names import shortened
from simulator.engines.values import LARGEST

_PAIRS = re.compile(r"^\s*\w+\s*=\s*\d+\s*(,\s*\w+\s*=\s*\d+\s*)*$", re.ASCII)  # image=2,video=0: before JSON


@dataclass(frozen=True)
class ModalityLimits:
    """The most items of each modality that is limited."""

    counts: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """As vLLM takes it."""
        return json.dumps(dict(self.counts))

    def excludes(self, modalities: Collection[str]) -> bool:
        """Whether none of these can be in a prompt."""
        return all(dict(self.counts).get(modality) == 0 for modality in modalities)


def check_undivided(
    items: Sequence[tuple[str, int]], limits: ModalityLimits, *, model: str, max_num_batched_tokens: int
) -> None:
    """Raise HeadcountError where a step does not hold an image or video that it must compute as a whole.

    `items`: by modality, tokens of the largest. Source: vLLM 0.33, compute_mm_encoder_budget.
    """
    most = max(((size, name) for name, size in items if dict(limits.counts).get(name) != 0), default=(0, ""))
    if most[0] > max_num_batched_tokens:
        raise HeadcountError(
            f"{model} computes a whole {most[1]} in one step, of up to {most[0]:,} tokens, and vLLM does not start "
            f"with max_num_batched_tokens {max_num_batched_tokens:,}; raise it to {most[0]}, or give "
            "--language-model-only"
        )


@dataclass(frozen=True)
class LimitPerPrompt:
    """A JSON object of whole numbers, or of objects with a `count`."""

    name: str = "JSON"

    def read(self, given: object) -> ModalityLimits:
        """Raises HeadcountError for anything else."""
        if isinstance(given, ModalityLimits):
            return given
        limits = given if isinstance(given, dict) else _parsed(str(given))
        if not isinstance(limits, dict):
            raise HeadcountError(f"'{shortened(str(given))}' is no object; give such as '{{\"image\": 0}}'")
        return ModalityLimits(tuple(sorted((str(name), _count(str(name), limit)) for name, limit in limits.items())))


def _parsed(text: str) -> object:
    if _PAIRS.match(text):
        return {name.strip(): int(count) for name, _, count in (pair.partition("=") for pair in text.split(","))}
    return parse_json(text, "the text")


def _count(name: str, limit: object) -> int:
    count = limit.get("count", LARGEST) if isinstance(limit, dict) else limit
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= LARGEST:
        raise HeadcountError(f"{shortened(name)} is '{shortened(str(limit))}'; give a whole number of at least 0")
    return count
