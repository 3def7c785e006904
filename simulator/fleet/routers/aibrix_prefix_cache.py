"""Most of the prompt matched, among engines that are not much busier than the mean; if loads differ much, the idlest.

Source: aibrix e3e10f9, pkg/plugins/gateway/algorithms/prefix_cache.go and pkg/utils/prefixcacheindexer, with the
defaults of its AIBRIX_PREFIX_CACHE_* variables, whose names the parameters shorten. A block is 4 characters, which is
one token here; one table holds the blocks of all engines. Ties are random.
"""

import math
from collections.abc import Mapping

from simulator.core.jit import kernel
from simulator.core.routing.candidates import replaces_tied
from simulator.core.types import EngineViews, RequestView, RouterMemory, RouterParameters
from simulator.fleet.router import Draws, Parameter
from simulator.fleet.view import Upkeep, View

SEES = ("candidates", "outstanding", "prompt_tokens", "matched_tokens")
PARAMETERS = {
    "running_request_imbalance_abs_count": Parameter(
        default=8, is_whole=True, what="requests by which loads may differ"
    ),
    "standard_deviation_factor": Parameter(
        default=1, is_whole=True, what="standard deviations over the mean that an engine may be"
    ),
    "block_number": Parameter(
        default=200_000, is_whole=True, least=1, what="blocks that the table holds, of 4 characters"
    ),
}


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=1, most_chunks=values["block_number"], of_all_engines=True)


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, memory: RouterMemory) -> int:
    num, total, low, high = 0, 0, 0, 0
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1:
            load = engines[engine].outstanding
            low, high = load if num == 0 else min(low, load), max(high, load)
            num, total = num + 1, total + load
    limit = total / num + parameters.standard_deviation_factor * spread(engines, num, total / num)
    is_uneven = high - low > parameters.running_request_imbalance_abs_count
    best, best_percent, num_tied = -1, 0, 0
    for engine in range(engines.shape[0]):
        view = engines[engine]
        if view.routable == 0 or view.matched_tokens == 0 or (is_uneven and view.outstanding > low):
            continue
        percent = view.matched_tokens * 100 // request.prompt_tokens
        if view.outstanding > limit or percent < best_percent:
            continue
        if best < 0 or percent > best_percent or view.outstanding < engines[best].outstanding:
            best, best_percent, num_tied = engine, percent, 1
        elif view.outstanding == engines[best].outstanding:
            num_tied += 1
            if replaces_tied(memory, num_tied):
                best = engine
    return best if best >= 0 else any_idlest(engines, low, memory)


@kernel
def spread(engines: EngineViews, num: int, mean: float) -> float:
    """The sample standard deviation of the loads."""
    squares = 0.0
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1:
            squares += (engines[engine].outstanding - mean) ** 2
    return math.sqrt(squares / (num - 1)) if num > 1 else 0.0


@kernel
def any_idlest(engines: EngineViews, low: int, memory: RouterMemory) -> int:
    best, num_tied = -1, 0
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1 and engines[engine].outstanding == low:
            num_tied += 1
            if best < 0 or replaces_tied(memory, num_tied):
                best = engine
    return best


class Router:
    def __init__(self, seed: int, **parameters: float) -> None:
        self.draws, self.parameters = Draws(seed), parameters

    def choose(self, view: View) -> int:
        candidates, outstanding, matched = view.candidates, view.outstanding, view.matched_tokens
        loads = [outstanding[engine] for engine in candidates]
        mean = sum(loads) / len(loads)
        squares = sum((load - mean) ** 2 for load in loads)
        deviation = math.sqrt(squares / (len(loads) - 1)) if len(loads) > 1 else 0.0
        limit = mean + self.parameters["standard_deviation_factor"] * deviation
        matching = [engine for engine in candidates if matched[engine]]
        if max(loads) - min(loads) > self.parameters["running_request_imbalance_abs_count"]:
            matching = [engine for engine in matching if outstanding[engine] == min(loads)]
        percents = {
            engine: matched[engine] * 100 // view.prompt_tokens for engine in matching if outstanding[engine] <= limit
        }
        if percents:
            return self.draws.highest({engine: (percents[engine], -outstanding[engine]) for engine in percents})
        return self.draws.highest({engine: 0 for engine in candidates if outstanding[engine] == min(loads)})
