"""What attention over the cache costs, by the sums of a batch that it grows with."""

from dataclasses import dataclass

from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.shape.layer import Attention
from simulator.latency.terms import Rank


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """Seconds of a layer or of several: of a decode step, per token of context, per position that prefill sees.

    `prefill_token_s` is what a token of a step with prefill costs besides: reading queries, keys, writing the cache.
    """

    start_s: float
    context_s: float
    prefill_s: float
    prefill_token_s: float
    is_compute_bound: bool  # in decode


NO_ATTENTION = AttentionCost(start_s=0.0, context_s=0.0, prefill_s=0.0, prefill_token_s=0.0, is_compute_bound=False)


def add_attention(one: AttentionCost, other: AttentionCost) -> AttentionCost:
    """Of both in one step; the first says what bounds it, unless it takes no time."""
    return AttentionCost(
        start_s=one.start_s + other.start_s,
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
    bits = "8" if kv_cache_dtype.startswith(("fp8", "int8")) else "16"
    query_width, latent = shape.head_dim, shape.latent
    if latent is not None:
        # Decode attends in the latent space, prefill with the heads' own widths.
        decode_flops = 2 * heads * (latent.cached_width + latent.kv_lora_rank)
        prefill_flops = 2 * heads * (query_width + latent.v_head_dim)
    else:
        decode_flops = prefill_flops = 4 * heads * query_width
    decode_flops *= rank.args.decode_width  # drafts attend beside the token before them, over one read
    read_s = kv_bytes / (constants.decode_attention_bandwidth_share[bits] * rank.bandwidth)
    compute_s = decode_flops / (constants.decode_attention_compute_share * peak)
    prefill_s = prefill_flops / (constants.prefill_attention_share_at(query_width) * peak)
    return AttentionCost(
        start_s=constants.decode_attention_start_s,
        context_s=max(read_s, compute_s),
        prefill_s=prefill_s,
        prefill_token_s=constants.prefill_attention_extra_positions * prefill_s,
        is_compute_bound=compute_s > read_s,
    )


def attention_over(rank: Rank, *, windowed: bool) -> AttentionCost:
    """The sum over layers whose attention has a window, or over those without; 0 where there are none."""
    found = [held.attention for held in rank.arch.layers if held.attention is not None]
    shapes = [shape for shape in found if (shape.window is not None) is windowed]
    if not shapes:
        return NO_ATTENTION
    one, count = attention(rank, shapes[0]), rank.layer_weight * len(shapes)  # those of a kind have the same heads
    return AttentionCost(
        start_s=count * one.start_s,
        context_s=count * one.context_s,
        prefill_s=count * one.prefill_s,
        prefill_token_s=count * one.prefill_token_s,
        is_compute_bound=one.is_compute_bound,
    )
