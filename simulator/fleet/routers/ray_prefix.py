"""Of the engines that were sent most of the prompt, or else of those that know least, the one with the shortest queue.

Source: `PrefixCacheAffinityRouter` of Ray Serve 2.60, python/ray/llm/_internal/serve/routing_policies/prefix_aware. A
token is 4 characters of its tree. Queues are those that the proxy has sent and not seen end. Where queues differ more
than the threshold, the shorter one of two random engines.
"""

from collections.abc import Mapping

from simulator.core.draws import draw
from simulator.core.jit import kernel
from simulator.core.routing.candidates import candidate, num_candidates
from simulator.core.types import EngineViews, RequestView, RouterMemory, RouterParameters
from simulator.fleet.router import Draws, Parameter
from simulator.fleet.view import Upkeep, View

SEES = ("candidates", "outstanding", "prompt_tokens", "matched_tokens", "known_tokens")
PARAMETERS = {
    "imbalanced_threshold": Parameter(default=1e9, what="requests by which queues may differ"),
    "match_rate_threshold": Parameter(default=0.1, most=1, what="share of the prompt that must match"),
}


def upkeep(_values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=1)


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, memory: RouterMemory) -> int:
    low, high, longest, least_known = -1, 0, 0, -1
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if view.routable == 1:
            low = view.outstanding if low < 0 else min(low, view.outstanding)
            high, longest = max(high, view.outstanding), max(longest, view.matched_tokens)
            least_known = view.known_tokens if least_known < 0 else min(least_known, view.known_tokens)
    is_even = high - low <= parameters.imbalanced_threshold
    matches = longest > 0 and longest >= parameters.match_rate_threshold * request.prompt_tokens
    if not is_even:
        return shorter_of_two(engines, memory)
    best = -1
    for engine in range(engines.shape[0]):
        view = engines[engine]
        fits = view.matched_tokens == longest if matches else view.known_tokens == least_known
        if view.routable == 1 and fits and (best < 0 or view.outstanding < engines[best].outstanding):
            best = engine
    return best


@kernel
def shorter_of_two(engines: EngineViews, memory: RouterMemory) -> int:
    """As the router `power-of-two`; here again, so that a kept compiled form holds no code of another file."""
    count = num_candidates(engines)
    place, other = draw(memory, count), draw(memory, count - 1)
    first, second = candidate(engines, place), candidate(engines, other + 1 if other >= place else other)
    return second if engines[second].outstanding < engines[first].outstanding else first


class Router:
    def __init__(self, seed: int, **parameters: float) -> None:
        self.draws, self.parameters = Draws(seed), parameters

    def choose(self, view: View) -> int:
        candidates, outstanding = view.candidates, view.outstanding
        loads = [outstanding[engine] for engine in candidates]
        if max(loads) - min(loads) > self.parameters["imbalanced_threshold"]:
            return self.draws.power_of_two(candidates, outstanding)
        return min(self.preferred(view, candidates), key=lambda engine: outstanding[engine])

    def preferred(self, view: View, candidates: list[int]) -> list[int]:
        matched, known = view.matched_tokens, view.known_tokens
        longest = max(matched[engine] for engine in candidates)
        if longest and longest >= self.parameters["match_rate_threshold"] * view.prompt_tokens:
            return [engine for engine in candidates if matched[engine] == longest]
        least = min(known[engine] for engine in candidates)
        return [engine for engine in candidates if known[engine] == least]
