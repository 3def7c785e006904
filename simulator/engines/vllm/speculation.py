"""Speculative decoding: what is drafted, and which drafts are accepted, so that every twin agrees."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from boundary.documents import parse_json
from boundary.schema import Share, Strict, typed

SPECULATIVE_METHODS = ("eagle", "draft_model", "ngram")
METHOD_NAMES = {"eagle": "eagle", "eagle3": "eagle", "mtp": "eagle", "draft_model": "draft_model", "ngram": "ngram"}
"""vLLM's `speculative_config` methods, with the one here that decides alike; MTP is taken to have one module."""

MAX_SPECULATIVE_TOKENS = 64
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """Speculative decoding: `num_speculative_tokens` drafts per step, each accepted while those before it were.

    "eagle" stands for EAGLE, EAGLE-3 and MTP with one module. Raises ValueError for a value out of range.
    """

    method: str
    num_speculative_tokens: int
    acceptance_rate: float  # of a draft token, given that those before it were accepted

    def __post_init__(self) -> None:
        if self.method not in SPECULATIVE_METHODS:
            known = ", ".join(SPECULATIVE_METHODS)
            raise ValueError(f"no speculative method '{self.method}' can be simulated; there are {known}")
        if not 1 <= self.num_speculative_tokens <= MAX_SPECULATIVE_TOKENS:
            raise ValueError(
                f"num_speculative_tokens is {self.num_speculative_tokens}; "
                f"it must lie between 1 and {MAX_SPECULATIVE_TOKENS}"
            )
        if not 0 <= self.acceptance_rate <= 1:
            raise ValueError(f"acceptance_rate is {self.acceptance_rate}; it is a share, from 0 to 1")

    def __str__(self) -> str:
        return json.dumps({"method": self.method, "num_speculative_tokens": self.num_speculative_tokens})

    @property
    def num_lookahead_tokens(self) -> int:
        """Slots past a step's own tokens that the drafter writes to (vLLM `num_lookahead_tokens`)."""
        return 0 if self.method == "ngram" else self.num_speculative_tokens

    @property
    def draft_slots(self) -> int:
        """What each sequence takes of the token budget beside its tokens (`max_num_new_slots_for_drafting`)."""
        return 1 if self.method == "draft_model" else 0


class _Config(Strict, frozen=True, kw_only=True):
    method: Literal[tuple(METHOD_NAMES)]  # type: ignore[valid-type]
    num_speculative_tokens: int
    acceptance_rate: Share
    # What drafts are made of decides nothing but times and how many are accepted.
    model: Any = None
    prompt_lookup_max: Any = None
    prompt_lookup_min: Any = None


@dataclass(frozen=True)
class SpeculativeConfig:
    """vLLM's JSON object, with the share of drafts that are accepted."""

    name: str = "JSON"

    def read(self, given: Any) -> Speculation:
        if isinstance(given, Speculation):
            return given
        settings = given if isinstance(given, dict) else parse_json(str(given), "the text")
        if isinstance(settings, dict) and settings.get("acceptance_rate") is None:
            raise ValueError(
                "acceptance_rate is missing: the share of drafted tokens that your server accepts, which its log and "
                '/metrics tell; add it to the JSON, such as "acceptance_rate": 0.7'
            )
        config = typed(settings, _Config, "")
        return Speculation(
            method=METHOD_NAMES[config.method],
            num_speculative_tokens=config.num_speculative_tokens,
            acceptance_rate=config.acceptance_rate,
        )


def accepted_drafts(request: int, num_output_tokens: int, num_drafts: int, acceptance_rate: float) -> int:
    """How many of a step's drafts are accepted, the first of which guesses output token `num_output_tokens`.

    Each is accepted with `acceptance_rate`, independently, up to the first that is not.
    """
    limit = acceptance_limit(acceptance_rate)
    for draft in range(num_drafts):
        if draft_hash(request, num_output_tokens + draft) >= limit:
            return draft
    return num_drafts


def acceptance_limit(acceptance_rate: float) -> int:
    """A draft is accepted if its hash lies below this."""
    return round(acceptance_rate * 2**32)


def draft_hash(request: int, position: int) -> int:
    """An even spread over [0, 2**32); every product stays below 2**63, so that compiled code computes the same."""
    mixed = (request * 0x1E3779B1 + position * 0x25EBCA6B + 0x3C6EF372) & _MASK
    mixed ^= mixed >> 16
    mixed = (mixed * 0x7FEB352D) & _MASK
    mixed ^= mixed >> 15
    mixed = (mixed * 0x2C1B3C6D) & _MASK
    return mixed ^ (mixed >> 16)
