"""The engine that was sent most of the prompt, unless loads differ much or little matches: then the least loaded.

Source: SGLang gateway (sgl-model-gateway, sglang-router 0.3.2), src/policies/cache_aware.rs, with the defaults of its
command line. Of several engines with the longest match it takes the one
that was first sent it. The trees are of text; here a token is 4 characters, and sizes are in characters. A tree over
its size is cut at once, not at the next interval.
"""

from collections.abc import Mapping

from numpy import float32

from simulator.core.jit import kernel
from simulator.core.routing.candidates import least_outstanding
from simulator.core.types import EngineViews, RequestView, RouterParameters
from simulator.fleet.router import Parameter
from simulator.fleet.view import Upkeep, View

SEES = ("candidates", "outstanding", "prompt_tokens", "matched_tokens", "matched_at")
PARAMETERS = {
    "cache_threshold": Parameter(default=0.3, most=1, what="share of the prompt that must match"),
    "balance_abs_threshold": Parameter(default=64, is_whole=True, what="requests by which loads may differ"),
    "balance_rel_threshold": Parameter(default=1.5, what="times the least load that loads may be"),
    "max_tree_size": Parameter(
        default=2**26, is_whole=True, least=1, what="characters that the tree holds for an engine"
    ),
}
CHARACTERS = 4  # of a token


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=1, most_chunks=values["max_tree_size"] / CHARACTERS)


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, _memory: object) -> int:
    least = least_outstanding(engines)
    if is_imbalanced(engines, least, parameters.balance_abs_threshold, parameters.balance_rel_threshold):
        return least
    best = -1
    for engine in range(engines.shape[0]):
        view, found = engines[engine], engines[best]
        is_older = view.matched_tokens == found.matched_tokens and view.matched_at < found.matched_at
        if view.routable == 1 and (best < 0 or view.matched_tokens > found.matched_tokens or is_older):
            best = engine
    rate = float32(engines[best].matched_tokens) / float32(request.prompt_tokens)
    return best if rate > float32(parameters.cache_threshold) else least


@kernel
def is_imbalanced(engines: EngineViews, least: int, most_apart: float, most_times: float) -> bool:
    """Whether loads differ by more than both thresholds, in the original's single precision."""
    low, high = engines[least].outstanding, 0
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1:
            high = max(high, engines[engine].outstanding)
    return bool(high - low > most_apart and float32(high) > float32(most_times) * float32(low))


class Router:
    def __init__(self, _seed: int, **parameters: float) -> None:
        self.parameters = parameters

    def choose(self, view: View) -> int:
        candidates, load = view.candidates, view.outstanding
        least = min(candidates, key=lambda engine: load[engine])
        if loads_differ([load[engine] for engine in candidates], self.parameters):
            return least
        matched, matched_at = view.matched_tokens, view.matched_at
        best = max(candidates, key=lambda engine: (matched[engine], -matched_at[engine]))
        rate = float32(matched[best]) / float32(view.prompt_tokens)
        return best if rate > float32(self.parameters["cache_threshold"]) else least


def loads_differ(loads: list[int], parameters: Mapping[str, float]) -> bool:
    """The reference implementation of `is_imbalanced`."""
    low, high, most_times = min(loads), max(loads), float32(parameters["balance_rel_threshold"])
    return bool(high - low > parameters["balance_abs_threshold"] and float32(high) > most_times * float32(low))
