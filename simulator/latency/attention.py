"""What attention over the cache costs, by the sums of a batch that it grows with."""

from dataclasses import dataclass

import numpy as np

from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.releases import SLOWER_8_BIT_DECODE
from kvcache.shape.layer import Attention
from simulator.latency.gpu_constants import cached_bits
from simulator.latency.terms import Rank


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """Seconds of a layer or of several.

    Of a decode step, per sequence that decodes, per token of context that it reads, per position that prefill sees.
    `prefill_token_s` is what a token of a step with prefill costs besides: reading queries, keys, writing the cache.
    """

    start_s: float
    sequence_s: float
    context_s: float
    prefill_s: float
    prefill_token_s: float
    is_compute_bound: bool  # in decode


NO_ATTENTION = AttentionCost(
    start_s=0.0, sequence_s=0.0, context_s=0.0, prefill_s=0.0, prefill_token_s=0.0, is_compute_bound=False
)


def add_attention(one: AttentionCost, other: AttentionCost) -> AttentionCost:
    """Of both in one step; the first says what bounds it, unless it takes no time."""
    return AttentionCost(
        start_s=one.start_s + other.start_s,
        sequence_s=one.sequence_s + other.sequence_s,
        context_s=one.context_s + other.context_s,
        prefill_s=one.prefill_s + other.prefill_s,
        prefill_token_s=one.prefill_token_s + other.prefill_token_s,
        is_compute_bound=(one if one.context_s else other).is_compute_bound,
    )


def attention(rank: Rank, shape: Attention) -> AttentionCost:
    """What one layer's attention over the cache costs, its own or another's; MLA's latent is whole on every rank."""
    constants, peak, tp = rank.constants, rank.bf16_flops, rank.parallelism.tensor_parallel_size
    heads, kv_cache_dtype = shape.num_heads / tp, rank.kv_cache_dtype
    kv_bytes = kv_bytes_per_token_per_layer(rank.arch, tp, kv_cache_dtype, shape)
    query_width, latent = shape.head_dim, shape.latent
    sequence_s = 0.0  # what every sequence takes beside its bytes; of latent attention it was not told apart
    if latent is not None:
        # Decode attends in the latent space, prefill with the heads' own widths.
        decode_flops = 2 * heads * (latent.cached_width + latent.kv_lora_rank)
        prefill_flops = 2 * heads * (query_width + latent.v_head_dim)
    else:
        decode_flops = prefill_flops = 2 * heads * (query_width + shape.value_dim)
        sequence_s = max(shape.num_kv_heads / tp, 1) * constants.decode_attention_sequence_s
    decode_flops *= rank.args.decode_width  # drafts attend beside the token before them, over one read
    read_s = kv_bytes / (_read_share(rank, shape) * rank.bandwidth)
    compute_s = decode_flops / (constants.decode_attention_compute_share * peak)
    prefill_s = prefill_flops / (constants.prefill_attention_share_at(query_width) * peak)
    return AttentionCost(
        start_s=constants.decode_attention_start_s,
        sequence_s=sequence_s,
        context_s=max(read_s, compute_s),
        prefill_s=prefill_s,
        prefill_token_s=constants.prefill_attention_extra_positions * prefill_s,
        is_compute_bound=compute_s > read_s,
    )


def _read_share(rank: Rank, shape: Attention) -> float:
    """Of the peak bandwidth, at which decode reads the cache.

    Before decode on Hopper had tiles of its own, 8 bits took as long as 16 with 8 query heads per KV head
    (flash-attention pull request 96), with 4 of them 63 % of that (vLLM's post on FP8 KV caches, 2026-04-22).
    """
    constants, kv_cache_dtype = rank.constants, rank.kv_cache_dtype
    share = constants.decode_attention_share_of(kv_cache_dtype, shape)
    is_slower = SLOWER_8_BIT_DECODE.holds_in(rank.args.vllm_version) and rank.gpu.family == "hopper"
    if not is_slower or cached_bits(kv_cache_dtype) != 8 or shape.latent is not None or shape.head_dim != 128:
        return share
    of_16_bits = float(np.interp(shape.num_heads / shape.num_kv_heads, (4, 8), (0.63, 1.0)))
    return min(share, constants.decode_attention_bandwidth_share["16"] / (2 * of_16_bits))


def attention_over(rank: Rank, *, windowed: bool) -> AttentionCost:
    """The sum over layers whose attention has a window, or over those without; 0 where there are none."""
    found = [held.attention for held in rank.arch.layers if held.attention is not None]
    shapes = [shape for shape in found if (shape.window is not None) is windowed]
    if not shapes:
        return NO_ATTENTION
    one, count = attention(rank, shapes[0]), rank.layer_weight * len(shapes)  # those of a kind have the same heads
    return AttentionCost(
        start_s=count * one.start_s,
        sequence_s=count * one.sequence_s,
        context_s=count * one.context_s,
        prefill_s=count * one.prefill_s,
        prefill_token_s=count * one.prefill_token_s,
        is_compute_bound=one.is_compute_bound,
    )
