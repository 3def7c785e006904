"""Any of the engines that were sent the longest matching prefix, whatever their load.

Source: `PrefixAwareRouter` in production-stack, src/vllm_router/routers/routing_logic.py, and `HashTrie` in
prefix/hashtrie.py, commit a6c01db: chunks of 128 characters, never forgotten. Here a chunk is in tokens, of 4
characters each; the last, incomplete chunk of a prompt is left out. Below `prefix_min_match_length` the original takes
the lowest request rate, here the fewest requests outstanding.
"""

from collections.abc import Mapping

from simulator.core.draws import draw
from simulator.core.routing.candidates import least_outstanding
from simulator.core.types import EngineViews, RouterMemory, RouterParameters
from simulator.fleet.router import Draws, Parameter
from simulator.fleet.view import Upkeep, View

SEES = ("candidates", "matched_tokens", "outstanding")
PARAMETERS = {
    "chunk_size": Parameter(
        default=128, is_whole=True, least=4, most=1_000_000, what="characters of a chunk, 4 to a token"
    ),
    "prefix_min_match_length": Parameter(default=0, is_whole=True, what="characters that must match"),
}
CHARACTERS = 4  # of a token


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=int(values["chunk_size"] // CHARACTERS))


def choose(engines: EngineViews, _request: object, parameters: RouterParameters, memory: RouterMemory) -> int:
    longest, count = 0, 0
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if view.routable == 1:
            if view.matched_tokens > longest:
                longest, count = view.matched_tokens, 0
            count += int(view.matched_tokens == longest)
    if longest * CHARACTERS < parameters.prefix_min_match_length:
        return least_outstanding(engines)
    place = draw(memory, count)
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if view.routable == 1 and view.matched_tokens == longest:
            if place == 0:
                return engine
            place -= 1
    return -1


class Router:
    def __init__(self, seed: int, chunk_size: float, prefix_min_match_length: float) -> None:
        self.draws, self.least = Draws(seed), prefix_min_match_length / CHARACTERS

    def choose(self, view: View) -> int:
        candidates, matched, outstanding = view.candidates, view.matched_tokens, view.outstanding
        longest = max(matched[engine] for engine in candidates)
        if longest < self.least:
            return min(candidates, key=lambda engine: outstanding[engine])
        return self.draws.of([engine for engine in candidates if matched[engine] == longest])
