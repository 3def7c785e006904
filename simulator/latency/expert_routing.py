"""How tokens fall on a mixture's experts, and on the tiles in which kernels compute them."""

from dataclasses import dataclass

import numpy as np

from files import special
from kvcache.gpus.gpu import GPU
from kvcache.shape.layer import Experts
from simulator.latency.step_time import FloatArray

FEWEST_ROWS, MOST_ROWS = 8, 64  # of a tile
EVEN_EXPERTS, MOST_EVEN = 48, 6


@dataclass(frozen=True, eq=False)
class ExpertLoad:
    """Of one layer."""

    distinct: FloatArray  # experts that any token chose
    tiles: FloatArray  # of tokens, each of one expert's
    rows: FloatArray  # of a tile


def assign_tokens(
    mixture: Experts, tokens: FloatArray, least: float, exponent: float, *, evenly: bool = False
) -> list[ExpertLoad]:
    """Of the tokens, then of those from which on tiles are as large as theirs: more tokens never take less time.

    `least`: tiles in which an expert's mean tokens fit. Tokens choose at random; tokens^exponent are independent.
    `evenly`: each token by itself, every expert as often as any other, as routers of random weights do.
    """
    rows = tile_rows(mixture, tokens, least)
    smaller = rows / 2 * least * mixture.num_experts / mixture.num_experts_per_tok
    fewer = np.where(rows > FEWEST_ROWS, np.minimum(smaller, tokens), tokens)
    return [_dealt(mixture, count, least, exponent, evenly) for count in (tokens, fewer)]


def _dealt(mixture: Experts, tokens: FloatArray, least: float, exponent: float, evenly: bool) -> ExpertLoad:
    """How often an expert is chosen differs between experts as a beta distribution, about as unevenly as routers deal.

    So some experts are missed even by many tokens; of many experts each one's tokens are distributed geometrically:
    its last tile is partly empty, and busy experts have more.
    """
    chosen = mixture.num_experts_per_tok / mixture.num_experts
    unused = (1 - chosen) ** tokens if evenly else _unused(evenness(mixture), chosen, tokens**exponent)
    distinct = mixture.num_experts * (1 - unused)
    each = np.maximum(tokens * mixture.num_experts_per_tok / distinct, 1.0)
    rows = tile_rows(mixture, tokens, least)
    return ExpertLoad(distinct, distinct / (1 - (1 - 1 / each) ** rows), rows)


def fullest_rank(
    mixture: Experts, tokens: FloatArray, distinct: FloatArray, share: float, *, evenly: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Distinct experts of the rank that has the most, then its tokens; each over the ranks' mean.

    A rank holds a share of the experts, popular ones among them by chance; every layer waits for the fullest rank.
    The largest of so many sums is that of normal ones (Blom 1958).
    """
    held, chosen = share * mixture.num_experts, mixture.num_experts_per_tok / mixture.num_experts
    largest = float(special.ndtri((1 / share - 0.375) / (1 / share + 0.25)))
    reached = distinct / mixture.num_experts
    popularity = 0.0 if evenly else (1 - chosen) / (evenness(mixture) + chosen)
    experts = 1 + largest * np.sqrt((1 - reached) / (reached * held))
    each = 1 + largest * np.sqrt(popularity / held + 1 / (np.maximum(tokens, 1.0) * chosen * held))
    return np.minimum(experts, 1 / reached), np.minimum(each, 1 / share)


def _unused(shape: FloatArray, chosen: float, tokens: FloatArray) -> FloatArray:
    """Share of the experts that no token chose, where one token chooses a share of `chosen`."""
    places = np.arange(MOST_EVEN)
    below = np.expand_dims(shape * (1 / chosen - 1), -1) + places
    missed = below / (below + np.expand_dims(tokens, -1))
    return np.asarray(np.prod(missed, axis=-1, where=places < np.expand_dims(shape, -1)))


def evenness(mixture: Experts) -> FloatArray:
    """First parameter of the beta distribution, a whole number: 1 of many experts, more of few.

    Kernel tables, which deal tokens by a power law, ask for 1. Of Mixtral's 8 experts each gets 10 to 15 % of the
    tokens (arXiv 2401.04088, figure 7). Between, the rule was chosen on request logs of models with 8 and 16.
    """
    return np.clip(np.round(EVEN_EXPERTS / np.asarray(mixture.num_experts, dtype=np.float64)), 1, MOST_EVEN)


def tile_rows(mixture: Experts, tokens: FloatArray, least: float) -> FloatArray:
    """Of a tile: the power of two in so many of which an expert's mean tokens fit."""
    each = np.maximum(tokens * mixture.num_experts_per_tok / mixture.num_experts / least, 1.0)
    return np.clip(2.0 ** np.ceil(np.log2(each) - 1e-9), FEWEST_ROWS, MOST_ROWS)


def tiles_at_least(gpu: GPU, weight_format: str) -> int:
    """FlashInfer's kernels on Blackwell take two tiles where Triton's and Marlin's take one.

    Source: kernel times of vLLM 0.24 with tokens dealt evenly, which step where such tiles do.
    """
    return 2 if gpu.family == "blackwell" and weight_format != "int4" else 1
