"""How evenly vLLM's expert-parallel load balancer (EPLB) spreads tokens over ranks."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from files import special
from kvcache.shape.layer import Experts
from simulator.latency.expert_routing import evenness
from simulator.latency.step_time import FloatArray

_LAYERS, _SEED = 32, 0  # drawn, of which the mean is taken


def balanced_rank(mixture: Experts, tokens: FloatArray, share: float, num_redundant: int) -> FloatArray:
    """Tokens of the rank that has the most, over the ranks' mean, each of which has that share.

    Experts are placed by how often they were chosen, and are chosen as often from then on; what differs from step to
    step is by chance.
    """
    ways = round(1 / share)
    placed = _fullest(mixture.num_experts, int(evenness(mixture)), num_redundant, ways)
    largest = float(special.ndtri((ways - 0.375) / (ways + 0.25)))
    on_rank = np.maximum(tokens, 1.0) * mixture.num_experts_per_tok * share
    return np.minimum(placed + largest / np.sqrt(on_rank), ways)


@cache
def _fullest(num_experts: int, shape: int, num_redundant: int, ways: int) -> float:
    """The fullest rank's load over the mean, of layers whose experts are chosen as a gamma distribution has them."""
    loads = np.random.default_rng(_SEED).gamma(shape, size=(_LAYERS, num_experts))
    return float(np.mean([_max_over_mean(load, num_redundant, ways) for load in loads]))


def _max_over_mean(load: FloatArray, num_redundant: int, ways: int) -> float:
    physical, replicas = replicate(load, num_redundant)
    each = load[physical] / replicas[physical]
    on_ranks = np.bincount(pack(each, ways), weights=each, minlength=ways)
    return float(on_ranks.max() / on_ranks.mean())


def replicate(load: FloatArray, num_redundant: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which expert each of the physical ones is, and how many there are of each.

    One after the other, the expert whose copies have the most tokens each gets another one (vLLM 0.33,
    distributed/eplb/policy/default.py, `replicate_experts`).
    """
    replicas = np.ones(len(load), np.int64)
    more = np.empty(num_redundant, np.int64)
    for place in range(num_redundant):
        more[place] = np.argmax(load / replicas)
        replicas[more[place]] += 1
    return np.concatenate([np.arange(len(load)), more]), replicas


def pack(load: FloatArray, ways: int) -> NDArray[np.int64]:
    """The rank of each expert: the busiest first, each to the rank with the least so far that is not full.

    As `balanced_packing` of the same file. Every rank gets as many.
    """
    held = len(load) // ways
    if held == 1:
        return np.arange(ways)
    ranks, count, total = np.empty(len(load), np.int64), np.zeros(ways, np.int64), np.zeros(ways)
    for expert in np.argsort(-load):
        rank = ranks[expert] = np.argmin(total)
        total[rank] += load[expert]
        count[rank] += 1
        if count[rank] == held:
            total[rank] = np.inf
    return ranks
