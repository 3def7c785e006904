"""Speculative decoding: what is drafted, and which drafts are accepted, so that every implementation agrees."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any, Literal

from files.documents import Json, parse_json
from files.errors import HeadcountError
from files.schema import AtLeastOne, Share, Strict, typed
from kvcache.releases import ASYNC_SCHEDULING_WITH_NGRAM
from simulator.engines.vllm.acceptance import MAX_SPECULATIVE_TOKENS, with_acceptance_rate

SPECULATIVE_METHODS = ("eagle", "draft_model", "ngram")
METHOD_NAMES = {"eagle": "eagle", "eagle3": "eagle", "mtp": "eagle", "draft_model": "draft_model", "ngram": "ngram"}
"""vLLM's `speculative_config` methods, with the one here that decides alike; MTP is taken to have one module."""

MAX_TOPK = 64
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """Speculative decoding: `num_speculative_tokens` drafts per step, each accepted while those before it were.

    "eagle" stands for EAGLE, EAGLE-3 and MTP with one module; `name` tells them apart. SGLang drafts trees too: `topk`
    candidates for each place, of which `num_draft_tokens` with the token before them are verified; a place is accepted
    where one of its candidates is right. Raises ValueError for a value out of range.
    """

    method: str  # by which it is decided
    num_speculative_tokens: int
    acceptance_rate: float | tuple[float, ...]  # of a draft token where those before it were accepted, or by position
    name: str = ""  # vLLM's name of the method; "": as `method`
    model: str | None = None  # what drafts: a catalog name, a path to a config.json, or a name that nothing is known of
    parallel_drafting: bool = False  # all drafts in one pass
    draft_tensor_parallel_size: int | None = None  # None: the model's
    assumed_acceptance: str = ""  # what its rate is taken from, where nobody gave one
    topk: int = 1  # of a tree of drafts
    num_draft_tokens: int | None = None  # verified in a step, with the token before the drafts; None: of a chain

    def __post_init__(self) -> None:
        if self.method not in SPECULATIVE_METHODS:
            known = ", ".join(SPECULATIVE_METHODS)
            raise HeadcountError(f"no speculative method '{self.method}' can be simulated; there are {known}")
        if not 1 <= self.num_speculative_tokens <= MAX_SPECULATIVE_TOKENS:
            raise HeadcountError(
                f"num_speculative_tokens is {self.num_speculative_tokens}; "
                f"it must lie between 1 and {MAX_SPECULATIVE_TOKENS}"
            )
        rates = self.acceptance_rate if isinstance(self.acceptance_rate, tuple) else (self.acceptance_rate,)
        if not all(0 <= rate <= 1 for rate in rates):
            raise HeadcountError(f"acceptance_rate is {self.acceptance_rate}; it is a share, from 0 to 1")
        if isinstance(self.acceptance_rate, tuple) and len(rates) < self.num_speculative_tokens:
            raise HeadcountError(
                f"acceptance_rate has {len(rates)} positions for {self.num_speculative_tokens} draft tokens; give a "
                "rate for each, or one for all"
            )
        if not 1 <= self.topk <= MAX_TOPK:
            raise HeadcountError(f"topk is {self.topk}; it must lie between 1 and {MAX_TOPK}")
        if self.topk == 1 and self.num_draft_tokens not in (None, 1 + self.num_speculative_tokens):
            raise HeadcountError("num_draft_tokens belongs to a tree; give topk too, or leave it out")
        candidates = self.topk + (self.num_speculative_tokens - 1) * self.topk**2
        if self.topk > 1 and not 2 <= (self.num_draft_tokens or 0) <= candidates + 1:
            found = "missing" if self.num_draft_tokens is None else f"{self.num_draft_tokens}"
            raise HeadcountError(
                f"num_draft_tokens is {found}; a tree of {self.num_speculative_tokens} steps with topk {self.topk} "
                f"verifies from 2 to {candidates + 1}"
            )
        if self.parallel_drafting and self.drafter in ("mtp", None):
            raise HeadcountError(
                f"parallel_drafting: {self.name or self.method} does not draft in parallel; eagle, eagle3 or "
                "draft_model can"
            )

    def __str__(self) -> str:
        known: dict[str, Any] = {
            "method": self.name or self.method,
            "model": self.model,
            "num_speculative_tokens": self.num_speculative_tokens,
            "parallel_drafting": self.parallel_drafting,
            "draft_tensor_parallel_size": self.draft_tensor_parallel_size,
            "topk": self.topk if self.topk > 1 else None,
            "num_draft_tokens": self.num_draft_tokens if self.topk > 1 else None,
        }
        return json.dumps({name: value for name, value in known.items() if value})

    @property
    def label(self) -> str:
        """Such as `eagle3 with 3 drafts`."""
        count = self.num_speculative_tokens
        if self.topk > 1:
            return f"{self.name or self.method} with trees of {count} steps, topk {self.topk}"
        how = " at once" if self.parallel_drafting else ""
        return f"{self.name or self.method} with {count} draft{'s' * (count > 1)}{how}"

    @property
    def rates(self) -> tuple[float, ...]:
        """Of each position, given that the drafts before it were accepted."""
        given, count = self.acceptance_rate, min(self.num_speculative_tokens, self.width - 1)
        return given[:count] if isinstance(given, tuple) else (given,) * count

    @property
    def width(self) -> int:
        """Tokens that a step computes of a decoding sequence: those that are verified."""
        if self.topk > 1 and self.num_draft_tokens is not None:
            return self.num_draft_tokens
        return 1 + self.num_speculative_tokens

    @property
    def tokens_per_step(self) -> float:
        """Expected of a decoding sequence: its own, and the drafts that are accepted."""
        accepted: Iterable[float] = accumulate(self.rates, mul)
        return 1.0 + sum(accepted)

    @property
    def drafter(self) -> str | None:
        """What drafts: "eagle", "eagle3", "mtp" or "draft_model"; None where nothing is computed for it."""
        return None if self.method == "ngram" else self.name or self.method

    @property
    def num_passes(self) -> int:
        """Of the drafter in a step."""
        if self.drafter is None:
            return 0
        return 1 if self.parallel_drafting else self.num_speculative_tokens

    @property
    def num_lookahead_tokens(self) -> int:
        """Slots past a step's own tokens that the drafter writes to (vLLM `num_lookahead_tokens`)."""
        return 0 if self.method == "ngram" else self.num_speculative_tokens

    @property
    def draft_slots(self) -> int:
        """What each sequence takes of the token budget beside its tokens (`max_num_new_slots_for_drafting`)."""
        if self.method == "ngram":
            return 0
        extra = self.num_speculative_tokens if self.parallel_drafting else 1
        return extra - 1 if self.method == "eagle" else extra


def check_async_drafting(speculation: Speculation, vllm_version: str) -> None:
    """Raise HeadcountError for drafts that a release refuses together with asynchronous scheduling."""
    if speculation.method == "ngram" and not ASYNC_SCHEDULING_WITH_NGRAM.holds_in(vllm_version):
        raise HeadcountError(
            f"async_scheduling: vLLM refuses it with n-gram drafting before {ASYNC_SCHEDULING_WITH_NGRAM.first}; "
            "leave --async-scheduling out, or use eagle or a draft model"
        )


_BY_NAME = {  # parts of a drafter's name; of Gemma 4's assistants vLLM takes the method from the config
    "[ngram]": "ngram", "eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark",
    "-assistant": "mtp",
}  # fmt: skip


class _Config(Strict, frozen=True, kw_only=True):
    method: Literal[tuple(METHOD_NAMES)]  # type: ignore[valid-type]
    num_speculative_tokens: int
    acceptance_rate: Share
    model: str | None = None
    parallel_drafting: bool = False
    draft_tensor_parallel_size: AtLeastOne | None = None
    assumed_acceptance: str = ""
    topk: AtLeastOne = 1
    num_draft_tokens: AtLeastOne | None = None
    # What decides nothing but how many are accepted.
    prompt_lookup_max: object = None
    prompt_lookup_min: object = None
    draft_sample_method: object = None
    attention_backend: object = None
    moe_backend: object = None
    enforce_eager: object = None
    max_model_len: object = None  # EAGLE and MTP share the model's positions
    rejection_sample_method: object = None


class _ByPosition(_Config, frozen=True, kw_only=True):
    acceptance_rate: list[Share]  # type: ignore[assignment]


@dataclass(frozen=True)
class SpeculativeConfig:
    """vLLM's JSON object, with the share of drafts that are accepted."""

    name: str = "JSON"

    def read(self, given: object) -> Speculation:
        if isinstance(given, Speculation):
            return given
        settings = given if isinstance(given, dict) else parse_json(str(given), "the text")
        if isinstance(settings, dict):
            settings = _with_method(settings)
            method = settings.get("method")
            if isinstance(method, str) and method in METHOD_NAMES:
                settings = with_acceptance_rate(settings)
        by_position = isinstance(settings, dict) and isinstance(settings.get("acceptance_rate"), list)
        config = typed(settings, _ByPosition if by_position else _Config, "")
        if config.method == "draft_model" and config.max_model_len is not None:
            raise HeadcountError("max_model_len of a draft model is not modelled; leave it out")
        rate = config.acceptance_rate
        return Speculation(
            method=METHOD_NAMES[config.method],
            num_speculative_tokens=config.num_speculative_tokens,
            acceptance_rate=tuple(rate) if isinstance(rate, list) else rate,
            name=config.method,
            model=config.model,
            parallel_drafting=config.parallel_drafting,
            draft_tensor_parallel_size=config.draft_tensor_parallel_size,
            assumed_acceptance=config.assumed_acceptance,
            topk=config.topk,
            num_draft_tokens=config.num_draft_tokens,
        )


def _with_method(settings: Json) -> Json:
    """With the method that vLLM takes where none is given: by the drafter's name (config/speculative.py of 0.33)."""
    given, model = settings.get("method"), str(settings.get("model", "")).lower()
    if str(given).endswith("_mtp"):  # deepseek_mtp, …: old names of it, by model
        return settings | {"method": "mtp"}
    if given is not None or not model:
        return settings
    named = next((method for part, method in _BY_NAME.items() if part in model), "draft_model")
    return settings | {"method": named}


def accepted_drafts(request: int, num_output_tokens: int, rates: Sequence[float]) -> int:
    """How many of a step's drafts are accepted, the first of which guesses output token `num_output_tokens`.

    Each is accepted with its rate, independently, up to the first that is not.
    """
    for draft, rate in enumerate(rates):
        if draft_hash(request, num_output_tokens + draft) >= acceptance_limit(rate):
            return draft
    return len(rates)


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
