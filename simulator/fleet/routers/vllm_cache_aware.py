"""Of the engines that were sent most of the prompt the least loaded, unless loads differ much or little matches.

Source: `cache_aware` of vllm-project/router 0.1.17, with the defaults of its command line. It asks an engine for a
prompt's tokens, and knows prefixes by them; a tree over its size is cut at once here, not at the next interval.
"""

from collections.abc import Mapping
from dataclasses import replace

from numpy import float32

from simulator.core.routing.candidates import least_outstanding
from simulator.core.types import EngineViews, RequestView, RouterParameters
from simulator.fleet.routers import cache_aware
from simulator.fleet.routers.cache_aware import is_imbalanced, loads_differ
from simulator.fleet.view import Upkeep, View

SEES = ("candidates", "outstanding", "prompt_tokens", "matched_tokens")
PARAMETERS = {
    **cache_aware.PARAMETERS,
    "max_tree_size": replace(
        cache_aware.PARAMETERS["max_tree_size"], what="characters that the tree holds for an engine, 8 to a token"
    ),
}
CHARACTERS = 8  # of a token in its tree


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=1, most_chunks=values["max_tree_size"] / CHARACTERS)


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, _memory: object) -> int:
    least = least_outstanding(engines)
    if is_imbalanced(engines, least, parameters.balance_abs_threshold, parameters.balance_rel_threshold):
        return least
    best = least
    for engine in range(engines.shape[0]):
        view, found = engines[engine], engines[best]
        is_idler = view.matched_tokens == found.matched_tokens and view.outstanding < found.outstanding
        if view.routable == 1 and (view.matched_tokens > found.matched_tokens or is_idler):
            best = engine
    rate = engines[best].matched_tokens / request.prompt_tokens
    return best if rate > float(float32(parameters.cache_threshold)) else least


class Router:
    def __init__(self, _seed: int, **parameters: float) -> None:
        self.parameters = parameters

    def choose(self, view: View) -> int:
        candidates, load = view.candidates, view.outstanding
        least = min(candidates, key=lambda engine: load[engine])
        if loads_differ([load[engine] for engine in candidates], self.parameters):
            return least
        matched = view.matched_tokens
        best = max(candidates, key=lambda engine: (matched[engine], -load[engine]))
        rate = matched[best] / view.prompt_tokens
        return best if rate > float(float32(self.parameters["cache_threshold"])) else least
