"""Dynamo's KV router: the lowest cost in blocks of prefill still to do and of active requests; ties at random.

Source: ai-dynamo 1.6.1, lib/kv-router/src/scheduling/selector. Overlap is what KV events tell, which take no time here.
Of active requests full blocks count, and those that they share once; of the new request also the last, incomplete one.
If disaggregated, the prefill router counts no active blocks; the decode router counts no prefill,
gives no credit for cached blocks, and takes none to be shared, as KV that comes from another engine is not.
"""

import math
from collections.abc import Mapping

from simulator.core.draws import draw
from simulator.core.jit import kernel
from simulator.core.layout import DECODE, PREFILL
from simulator.core.routing.candidates import replaces_tied
from simulator.core.types import EngineView, EngineViews, RequestView, RouterMemory, RouterParameters
from simulator.fleet.router import Draws, Parameter
from simulator.fleet.view import Upkeep, View

SEES = (
    "candidates",
    "role",
    "outstanding",
    "active_tokens",
    "held_tokens",
    "shared_tokens",
    "prefill_tokens",
    "prompt_tokens",
    "cached_tokens",
)
PARAMETERS = {
    "overlap_score_credit": Parameter(default=1, what="credit for a cached block"),
    "prefill_load_scale": Parameter(default=1, what="cost of a block of prefill"),
    "active_request_weight": Parameter(default=0, what="blocks that an active request costs in addition to its own"),
    "router_temperature": Parameter(default=0, what="above 0: softmax over the costs, divided by their range and this"),
    "kv_cache_block_size": Parameter(
        default=16, is_whole=True, least=1, most=65_536, what="tokens of a block; default: the engines'"
    ),
}
DRAWN_OF = 1 << 30  # a share is drawn as so many parts of 1


def upkeep(values: Mapping[str, float]) -> Upkeep:
    return Upkeep(chunk_tokens=int(values["kv_cache_block_size"]))


def choose(engines: EngineViews, request: RequestView, parameters: RouterParameters, memory: RouterMemory) -> int:
    best, lowest, highest, num_tied = -1, math.inf, -math.inf, 0
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 0:
            continue
        blocks = cost(engines[engine], request, parameters)
        highest = max(highest, blocks)
        if blocks < lowest:
            best, lowest, num_tied = engine, blocks, 1
        elif blocks == lowest and parameters.router_temperature == 0.0:
            num_tied += 1
            if replaces_tied(memory, num_tied):
                best = engine
    if parameters.router_temperature == 0.0:
        return best
    return sampled(engines, request, parameters, (lowest, highest), draw(memory, DRAWN_OF) / DRAWN_OF)


@kernel
def cost(view: EngineView, request: RequestView, parameters: RouterParameters) -> float:
    block, prefill, held = parameters.kv_cache_block_size, 0.0, view.held_tokens
    if request.pool_role != DECODE:
        prefill = (view.prefill_tokens + request.prompt_tokens) / block
        prefill = max(0.0, prefill - parameters.overlap_score_credit * math.floor(view.cached_tokens / block))
        held = view.active_tokens - view.shared_tokens
    active = math.ceil((held + request.prompt_tokens) / block) if request.pool_role != PREFILL else 0
    return float(parameters.prefill_load_scale * prefill + active + parameters.active_request_weight * view.outstanding)


@kernel
def weight(blocks: float, lowest: float, highest: float, temperature: float) -> float:
    return math.exp((lowest - blocks) / ((highest - lowest) * temperature)) if highest > lowest else 1.0


@kernel
def sampled(
    engines: EngineViews, request: RequestView, parameters: RouterParameters, limits: tuple[float, float], share: float
) -> int:
    """The engine at that share of all weights."""
    total, last, temperature = 0.0, -1, parameters.router_temperature
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1:
            blocks = cost(engines[engine], request, parameters)
            total += weight(blocks, limits[0], limits[1], temperature)
    left = share * total
    for engine in range(engines.shape[0]):
        if engines[engine].routable == 1 and left >= 0.0:
            blocks = cost(engines[engine], request, parameters)
            left -= weight(blocks, limits[0], limits[1], temperature)
            last = engine
    return last


class Router:
    def __init__(self, seed: int, **parameters: float) -> None:
        self.draws, self.parameters = Draws(seed), parameters

    def choose(self, view: View) -> int:
        costs = dict(zip(view.candidates, self.costs(view), strict=True))
        lowest, highest = min(costs.values()), max(costs.values())
        temperature = self.parameters["router_temperature"]
        if temperature == 0:
            return self.draws.highest({engine: -blocks for engine, blocks in costs.items()})
        share = self.draws.below(DRAWN_OF) / DRAWN_OF
        spread = (highest - lowest) * temperature
        weights = {engine: math.exp((lowest - blocks) / spread) if spread else 1.0 for engine, blocks in costs.items()}
        left = share * sum(weights.values())
        for engine, each in weights.items():
            left -= each
            if left < 0:
                return engine
        return engine

    def costs(self, view: View) -> list[float]:
        p, block, prompt = self.parameters, self.parameters["kv_cache_block_size"], view.prompt_tokens
        found = []
        for engine in view.candidates:
            prefill, held = 0.0, view.held_tokens[engine]
            if view.role != "decode":
                cached = view.cached_tokens[engine] // block
                prefill = max(0.0, (view.prefill_tokens[engine] + prompt) / block - p["overlap_score_credit"] * cached)
                held = view.active_tokens[engine] - view.shared_tokens[engine]
            active = math.ceil((held + prompt) / block) if view.role != "prefill" else 0
            requests = p["active_request_weight"] * view.outstanding[engine]
            found.append(p["prefill_load_scale"] * prefill + active + requests)
        return found
