"""What compressed attention costs (DeepSeek-V4): a window, entries of what lies before it, the best of them or all.

Fitted on times of whole attention modules of DeepSeek-V4-Flash and Pro with vLLM 0.24 on H200 and B200, 8 to 128 heads,
1 to 1,024 sequences, contexts up to 65,536 tokens, and on those of their hyper-connections (aiconfigurator-core 0.12.0,
NVIDIA, Apache-2.0). `validation.constants.compressed_attention` compares them with those and with an H100's: half of
24,647 are met within 7.8 %. No run of a server was at hand.
"""

from collections import Counter
from dataclasses import dataclass
from functools import reduce

import numpy as np

from kvcache.layout.compressed_caches import entry_bytes_per_token
from kvcache.memory.sparse_attention import PADDED_HEADS
from kvcache.shape.layer import CHOSEN_RATIO, Attention
from simulator.latency.attention_cost import NO_ATTENTION, AttentionCost, add_attention, times_attention
from simulator.latency.model import ACTIVATIONS, FIXED_OVERHEAD
from simulator.latency.sparse_attention import kernels_of
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Causes, Rank


@dataclass(frozen=True, kw_only=True)
class CompressionKernels:
    """Seconds of one layer, beside its matrix multiplies."""

    start_s: float  # of a decode step
    token_s: float  # per decode, of up to 64 heads; of more as many times
    chosen_s: float  # per token of context that the choice stands for, in decode, of up to 64 heads
    prefill_token_s: float  # per token of a prompt, of up to 64 heads
    prefill_chosen_s: float  # per token of a prompt and of context that its choice stands for


# Of one layer's hyper-connections: to start, bytes at peak bandwidth per element of the residual's streams. In the
# tables 24 to 32 µs in all for one token; 8,192 tokens are met within 9 %.
_STREAMS_START_S, _STREAM_BYTES = 26e-6, 21.5
_HOPPER = CompressionKernels(
    start_s=4.0e-6,
    token_s=0.143e-6,
    chosen_s=0.112e-9,
    prefill_token_s=0.136e-6,
    prefill_chosen_s=0.110e-9,
)
_BLACKWELL = CompressionKernels(
    start_s=10.3e-6,
    token_s=0.073e-6,
    chosen_s=0.0435e-9,
    prefill_token_s=0.0686e-6,
    prefill_chosen_s=0.0621e-9,
)


def compression_kernels(rank: Rank) -> CompressionKernels:
    """Those of the GPU's family; of others as of Hopper, without measurement."""
    return _BLACKWELL if rank.gpu.family == "blackwell" else _HOPPER


def compressed_over(rank: Rank, *, windowed: bool) -> AttentionCost:
    """The sum over layers: of what reads as far as an indexer chooses, or of all else, which grows with the context."""
    shapes = Counter(held.attention for held in rank.arch.layers if held.attention is not None)
    cost_of = _chosen if windowed else _beside_chosen
    costs = (times_attention(rank.layer_weight * count, cost_of(rank, shape)) for shape, count in shapes.items())
    return reduce(add_attention, costs, NO_ATTENTION)


def hyper_connections(rank: Rank, tokens: FloatArray) -> Causes:
    """What mixes the streams of the residual before and after both parts of every layer, whole on every rank.

    Nothing where there is one stream.
    """
    arch = rank.arch
    if arch.residual_streams == 1:
        return {}
    layers = rank.layer_weight * arch.num_hidden_layers
    moved = tokens * arch.residual_streams * arch.hidden_size * _STREAM_BYTES
    started = np.where(tokens > 0, layers * _STREAMS_START_S, 0.0)
    return {FIXED_OVERHEAD: started, ACTIVATIONS: layers * moved / rank.bandwidth}


def _padded(rank: Rank, shape: Attention) -> float:
    """How many times 64 heads a rank's kernels compute."""
    return max(1.0, shape.num_heads / rank.parallelism.tensor_parallel_size / PADDED_HEADS)


def _chosen(rank: Rank, shape: Attention) -> AttentionCost:
    if shape.topk is None:
        return NO_ATTENTION
    kernels = compression_kernels(rank)
    return AttentionCost(
        start_s=0.0,
        sequence_s=0.0,
        context_s=rank.args.decode_width * _padded(rank, shape) * kernels.chosen_s,
        prefill_s=kernels.prefill_chosen_s,
        prefill_token_s=0.0,
        is_compute_bound=False,
    )


def _beside_chosen(rank: Rank, shape: Attention) -> AttentionCost:
    kernels, heads, width = compression_kernels(rank), _padded(rank, shape), rank.args.decode_width
    read_s = float(entry_bytes_per_token(shape)) / (kernels_of(rank).key_read_share * rank.bandwidth)
    prefill_s = read_s
    if shape.indexer is not None:
        read_s = shape.indexer.cached_bytes / CHOSEN_RATIO / (kernels_of(rank).key_read_share * rank.bandwidth)
        scored = 2 * shape.indexer.num_heads * shape.indexer.head_dim / CHOSEN_RATIO
        prefill_s = scored / (kernels_of(rank).score_share * rank.gpu.flops_per_s.get("fp8", rank.bf16_flops))
    return AttentionCost(
        start_s=kernels.start_s,
        sequence_s=width * heads * kernels.token_s,
        context_s=read_s,
        prefill_s=prefill_s,
        prefill_token_s=heads * kernels.prefill_token_s,
        is_compute_bound=False,
    )
