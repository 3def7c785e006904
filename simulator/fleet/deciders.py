"""Who computes a request's prompt where disaggregated: a prefill engine, or its decode engine itself.

Compiled, it is `simulator.core.vllm.disaggregation.deciding`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from files.errors import HeadcountError
from files.names import check_names
from simulator.core.vllm.disaggregation.layout import ISL_BOUNDING, ISL_OR_LOAD, PREFILL_LOAD, PREFIX_BASED
from simulator.fleet.router import Parameter, parameter_values


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known when a request comes: of its prompt, and of the engines that the router would choose."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt, in whole blocks, at the decode engine
    prefill_tokens: int  # that the prefill engine has not computed yet
    max_num_batched_tokens: int  # of the prefill engine


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How a decider chooses; `computes_here` says whether the decode engine computes the prompt."""

    number: int  # in the compiled core
    computes_here: Callable[[Mapping[str, float], Seen], bool]
    parameters: Mapping[str, Parameter]
    required: str = ""
    keeps_engine: bool = False  # the decode engine that was looked at serves the request after its prefill elsewhere
    sees_load: bool = False


def prefix_based(values: Mapping[str, float], seen: Seen) -> bool:
    """llm-d: a prefill engine computes at least `nonCachedTokens` of prompts of at least `promptTokens`; 0: none."""
    least = values["nonCachedTokens"]
    if least == 0 or seen.prompt_tokens < values["promptTokens"]:
        return True
    return seen.prompt_tokens - seen.cached_tokens < least


def isl_bounding(values: Mapping[str, float], seen: Seen) -> bool:
    """Dynamo: what is to compute is short, and a small part of the prompt."""
    new = max(seen.prompt_tokens - seen.cached_tokens, 0)
    is_small = new / max(seen.prompt_tokens, 1) < values["eff_isl_ratio_threshold"]
    return new < values["eff_isl_threshold"] and is_small


def prefill_load(values: Mapping[str, float], seen: Seen) -> bool:
    """Dynamo: the prefill engine has more to compute than so many full steps."""
    return seen.prefill_tokens > values["prefill_busy_threshold"] * seen.max_num_batched_tokens


def isl_or_load(values: Mapping[str, float], seen: Seen) -> bool:
    """Dynamo: either of the two."""
    return isl_bounding(values, seen) or prefill_load(values, seen)


_LLM_D: Final = {
    "nonCachedTokens": Parameter(
        default=0, is_whole=True, what="prompt tokens to compute from which a prefill engine does it; 0: never"
    ),
    "promptTokens": Parameter(default=0, is_whole=True, what="shorter prompts are computed at the decode engine"),
}
_ISL: Final = {
    "eff_isl_threshold": Parameter(
        default=2048, is_whole=True, what="tokens to compute below which the decode engine does it"
    ),
    "eff_isl_ratio_threshold": Parameter(default=0.7, most=1.0, what="their share of the prompt must be below it, too"),
}
_LOAD: Final = {
    "prefill_busy_threshold": Parameter(
        default=0, what="of the prefill engine's max_num_batched_tokens, above which it is busy"
    ),
}

RULES: Final[Mapping[str, Rule]] = {
    "prefix-based-pd-decider": Rule(
        number=PREFIX_BASED, computes_here=prefix_based, parameters=_LLM_D, keeps_engine=True
    ),
    "isl_bounding": Rule(number=ISL_BOUNDING, computes_here=isl_bounding, parameters=_ISL),
    "prefill_load": Rule(
        number=PREFILL_LOAD,
        computes_here=prefill_load,
        parameters=_LOAD,
        required="prefill_busy_threshold",
        sees_load=True,
    ),
    "isl_or_load": Rule(
        number=ISL_OR_LOAD,
        computes_here=isl_or_load,
        parameters=_ISL | _LOAD,
        required="prefill_busy_threshold",
        sees_load=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Decider:
    """A rule by name, with its parameters."""

    name: str
    values: Mapping[str, float]

    @property
    def rule(self) -> Rule:
        return RULES[self.name]

    def __str__(self) -> str:
        return f"{self.name}:" + ",".join(f"{key}={value:g}" for key, value in self.values.items())


def read_decider(given: str) -> Decider:
    """`NAME:key=value,key=value`. Raises HeadcountError for what is no decider, or lacks a parameter."""
    name, _, text = given.strip().partition(":")
    check_names([name], RULES, "decider")
    rule = RULES[name]
    values = parameter_values(f"decider '{name}'", text, rule.parameters)
    if rule.required and f"{rule.required}=" not in text:
        raise HeadcountError(f"decider '{name}' needs {rule.required}; give {name}:{rule.required}=2")
    return Decider(name=name, values=values)
