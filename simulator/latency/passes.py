"""One way of tokens through a model's layers, by the cause of its time."""

from collections.abc import Collection, Iterator
from functools import cache, partial

import numpy as np

from kvcache.shape.layer import Layer
from kvcache.shape.parameters import extra_shape
from kvcache.shape.tensors import Tensor
from simulator.engines.vllm.compilation import NONE
from simulator.latency.compressed_attention import hyper_connections
from simulator.latency.model import COMMUNICATION, ServedModel
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Causes, Rank, add, gemm, handover_s, layer, layer_kind, times

ONCE_PER_PASS = ("first", "last", "every")  # places of matrices beside the layers


def padded_batch(tokens: FloatArray, served: ServedModel) -> FloatArray:
    """The CUDA-graph size that a batch of so many tokens runs in, itself beyond the largest.

    vLLM captures 1, 2, 4, then steps of 8 to 256, then of 16 to min(2 · max_num_seqs · width, 512; 1024 on Blackwell),
    each rounded up to a multiple of the width, the tokens of a decode with its drafts (config/compilation.py,
    `adjust_cudagraph_sizes_for_spec_decode`).
    """
    width = served.args.decode_width
    most = served.args.max_cudagraph_capture_size or (1024 if served.gpu.family == "blackwell" else 512)
    largest = min(2 * served.args.max_num_seqs * width, most)
    steps = np.concatenate([[1, 2, 4], np.arange(8, 256, 8), np.arange(256, largest + 1, 16)])
    steps = -(-steps // width) * width
    sizes = np.unique(steps[steps <= largest])
    place = np.searchsorted(sizes, tokens)
    padded = np.where(place < len(sizes), sizes[np.minimum(place, len(sizes) - 1)], tokens)
    return np.where(tokens > 0, padded, 0.0)


def pass_over(rank: Rank, tokens: FloatArray, *, places: Collection[str] = ONCE_PER_PASS) -> dict[str, FloatArray]:
    """All layers without what they read of the cache, with the matrices at these places beside them."""
    if rank.args.cudagraph_mode != NONE:
        tokens = padded_batch(tokens, rank.served)
    kinds: dict[tuple[object, ...], list[Layer]] = {}
    kind_of = cache(partial(layer_kind, rank))  # most layers are equal
    for held in rank.arch.layers:
        kinds.setdefault(kind_of(held), []).append(held)
    alike = [times(rank.layer_weight * len(layers), layer(rank, tokens, layers[0])) for layers in kinds.values()]
    handed_on: Causes = {COMMUNICATION: handover_s(rank, tokens)} if rank.stages > 1 else {}
    return add(*alike, hyper_connections(rank, tokens), *_beside_layers(rank, tokens, places), handed_on)


def _beside_layers(rank: Rank, tokens: FloatArray, places: Collection[str]) -> Iterator[Causes]:
    """Matrix multiplies beside the layers: Gemma's inputs per layer, its copies of the hidden state."""
    for extra in rank.arch.extra_tensors:
        if extra.place in places and extra.cols > 1 and not extra.vocabulary:
            shape = extra_shape(extra, rank.parallelism)
            yield times(extra.count, gemm(rank, tokens, Tensor(extra.component, *shape)))
