"""The engine that was sent most of the prompt, unless loads differ much or little matches: then the least loaded.

Source: SGLang gateway (sgl-model-gateway, sglang-router 0.3.2) and vllm-project/router 0.1.17, src/policies/
cache_aware.rs, with the defaults of their command lines. Of several engines with the longest match it takes the one
that was last sent it. The trees are of text; here a token is 4 characters, and sizes are in characters. A tree over
its size is cut at once, not at the next interval.
"""

from collections.abc import Mapping
from typing import Any

from simulator.core.routing.candidates import least_outstanding
from simulator.fleet.router import Parameter
from simulator.fleet.view import Upkeep, View

SEES = ("candidates", "outstanding", "prompt_tokens", "matched_tokens", "matched_at")
PARAMETERS = {
    "cache_threshold": Parameter(default=0.3, most=1, what="share of the prompt that must match"),
    "balance_abs_threshold": Parameter(default=64, what="requests by which loads may differ"),
    "balance_rel_threshold": Parameter(default=1.5, what="times the least load that loads may be"),
    "max_tree_size": Parameter(default=2**26, least=1, what="characters that the tree holds for an engine"),
}
CHARACTERS = 4  # of a token


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=1, most_chunks=values["max_tree_size"] / CHARACTERS)


def choose(engines: Any, request: Any, parameters: Any, _memory: Any) -> int:
    least = least_outstanding(engines)
    low, high, best = engines[least].outstanding, 0, -1
    for engine in range(engines.shape[0]):
        view, found = engines[engine], engines[best]
        if view.routable == 0:
            continue
        high = max(high, view.outstanding)
        is_longer = view.matched_tokens > found.matched_tokens
        is_newer = view.matched_tokens == found.matched_tokens and view.matched_at > found.matched_at
        if best < 0 or is_longer or is_newer:
            best = engine
    if high - low > parameters.balance_abs_threshold and high > parameters.balance_rel_threshold * low:
        return least
    return best if engines[best].matched_tokens > parameters.cache_threshold * request.prompt_tokens else least


class Router:
    def __init__(self, _seed: int, **parameters: float) -> None:
        self.parameters = parameters

    def choose(self, view: View) -> int:
        candidates, load = view.candidates, view.outstanding
        least = min(candidates, key=lambda engine: load[engine])
        high = max(load[engine] for engine in candidates)
        if (
            high - load[least] > self.parameters["balance_abs_threshold"]
            and high > self.parameters["balance_rel_threshold"] * load[least]
        ):
            return least
        matched, matched_at = view.matched_tokens, view.matched_at
        best = max(candidates, key=lambda engine: (matched[engine], matched_at[engine]))
        return best if matched[best] > self.parameters["cache_threshold"] * view.prompt_tokens else least
