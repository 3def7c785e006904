"""What attention over the cache costs in a model's layers."""

from collections.abc import Sequence

import numpy as np

from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.releases import SLOWER_8_BIT_DECODE
from kvcache.shape.layer import Attention
from simulator.latency.attention_cost import NO_ATTENTION, AttentionCost, add_attention, times_attention
from simulator.latency.compressed_attention import compressed_over
from simulator.latency.context_parallel import over_context_ranks
from simulator.latency.gpu_constants import cached_bits
from simulator.latency.sparse_attention import blocks_cost, chosen_cost, scoring_cost
from simulator.latency.terms import Rank


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
    own = AttentionCost(
        start_s=constants.decode_attention_start_s,
        sequence_s=sequence_s,
        context_s=max(read_s, compute_s),
        prefill_s=prefill_s,
        prefill_token_s=constants.prefill_attention_extra_positions * prefill_s,
        is_compute_bound=compute_s > read_s,
    )
    if rank.args.decode_context_parallel_size == 1:
        return own
    return over_context_ranks(rank, shape, own, read_s=read_s, compute_s=compute_s)


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
    """The sum over layers whose attention reads a part of the context, or over those that read all of it.

    A part: a window, or what an indexer chooses. An indexer itself reads a key of every token.
    """
    if rank.arch.is_compressed:
        return compressed_over(rank, windowed=windowed)
    found = [held.attention for held in rank.arch.layers if held.attention is not None]
    shapes = [shape for shape in found if ((shape.window or shape.topk) is not None) is windowed]
    scored = NO_ATTENTION if windowed else _scored(rank, found)
    if not shapes:
        return scored
    cost = times_attention(rank.layer_weight * len(shapes), _one(rank, shapes[0]))  # a kind has the same heads
    return cost if scored is NO_ATTENTION else add_attention(cost, scored)


def _one(rank: Rank, shape: Attention) -> AttentionCost:
    if shape.topk is None:
        return attention(rank, shape)
    return chosen_cost(rank, shape) if shape.latent else blocks_cost(rank, shape, attention(rank, shape))


def _scored(rank: Rank, shapes: Sequence[Attention]) -> AttentionCost:
    indexers = [shape.indexer for shape in shapes if shape.indexer is not None]
    if not indexers:
        return NO_ATTENTION
    return times_attention(rank.layer_weight * len(indexers), scoring_cost(rank, indexers[0]))
