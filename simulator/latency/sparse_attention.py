"""What sparse attention costs: an indexer scores a key of every token, attention reads the latents that it chooses.

Fitted on times of whole attention modules of DeepSeek-V3.2 and GLM-5 with vLLM 0.24 on H200 and B200, 8 to 128 heads,
1 to 1,024 sequences, contexts up to 131,072 tokens, prompts up to 32,768 (aiconfigurator-core 0.12.0, NVIDIA,
Apache-2.0). `validation.constants.sparse_attention` compares them with those and with an H100's: half of 15,156 are met
within 5 %. No run of a server was at hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvcache.layout.attention_backend import PACKED
from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.memory.sparse_attention import PADDED_HEADS
from kvcache.shape.layer import Attention, Indexer
from simulator.latency.attention_cost import AttentionCost
from simulator.latency.gpu_constants import cached_bits
from simulator.latency.terms import Rank

_FEW_HEADS = 32  # with fewer, prompts read packed latents as decodes do (vLLM MIN_HEADS_FOR_BF16_PREFILL)
# Of MiniMax-M3's blocks, from its modules with 8 heads on a rank, without their matrix multiplies, on H200 and B200:
# 57 and 35 ps per token of context; 30 µs a layer in all; 0.17 and 0.045 µs per token of a prompt that reads 2,048.
_BLOCKS_KEY_READ_SHARE, _BLOCKS_START_S, _BLOCKS_SEQUENCE_S, _BLOCKS_PAIR_S = 0.92, 20e-6, 0.06e-6, 0.8e-12
_BLOCKS_PREFILL_READ_SHARE = {  # of 16-bit keys with values, by family and bits of the cache
    ("hopper", 16): 1.3, ("hopper", 8): 0.82, ("blackwell", 16): 3.0, ("blackwell", 8): 3.0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SparseKernels:
    """Shares of peaks; bits are those of a cached element."""

    start_s: float  # per layer of a decode step, beside its matrix multiplies; half where a choice is taken over
    token_s: float  # per decode: the choice, queries and outputs of up to 64 heads, of more as many times
    prefill_token_s: float  # the same, per token of a prompt
    key_read_share: float  # of bandwidth: an indexer's keys, in decode
    score_share: float  # of FP8 flops: scores of prompts, with finding the largest
    read_share: float  # of bandwidth: chosen latents, in decode
    prefill_read_share: Mapping[int, float]  # the same by bits, of prompts, whose tokens choose alike: from the L2, too
    compute_share: float  # of bf16 flops, in decode
    prefill_compute_share: float
    packed_share: float  # the same, where packed latents are unpacked on the way
    pads_heads: bool  # the kernels compute at least PADDED_HEADS


_HOPPER = SparseKernels(
    start_s=110e-6,
    token_s=0.17e-6,
    prefill_token_s=0.23e-6,
    key_read_share=0.70,
    score_share=0.315,
    read_share=0.842,
    prefill_read_share={16: 1.3, 8: 1.3},
    compute_share=0.644,
    prefill_compute_share=0.731,
    packed_share=0.37,
    pads_heads=True,
)
_BLACKWELL = SparseKernels(
    start_s=128e-6,
    token_s=0.24e-6,
    prefill_token_s=0.24e-6,
    key_read_share=0.66,
    score_share=0.175,
    read_share=0.637,
    prefill_read_share={16: 1.04, 8: 0.93},
    compute_share=0.54,
    prefill_compute_share=0.85,
    packed_share=0.37,
    pads_heads=False,
)


def kernels_of(rank: Rank) -> SparseKernels:
    """Those of the GPU's family; of others as of Hopper, without measurement."""
    return _BLACKWELL if rank.gpu.family == "blackwell" else _HOPPER


def scoring_cost(rank: Rank, indexer: Indexer) -> AttentionCost:
    """One layer's indexer, with all its heads on every rank; ranks share a prompt's tokens out among themselves."""
    kernels = kernels_of(rank)
    if indexer.chooses_blocks:
        return AttentionCost(
            start_s=_BLOCKS_START_S,
            sequence_s=_BLOCKS_SEQUENCE_S,
            context_s=indexer.cached_bytes / (_BLOCKS_KEY_READ_SHARE * rank.bandwidth),
            prefill_s=_BLOCKS_PAIR_S,
            prefill_token_s=0.0,
            is_compute_bound=False,
        )
    fp8_flops = rank.gpu.flops_per_s.get("fp8", rank.bf16_flops)
    pair_s = 2 * indexer.num_heads * indexer.head_dim / (kernels.score_share * fp8_flops)
    return AttentionCost(
        start_s=kernels.start_s / 2,
        sequence_s=0.0,
        context_s=indexer.cached_bytes / (kernels.key_read_share * rank.bandwidth),
        prefill_s=pair_s / rank.parallelism.tensor_parallel_size,
        prefill_token_s=0.0,
        is_compute_bound=False,
    )


def blocks_cost(rank: Rank, shape: Attention, plain: AttentionCost) -> AttentionCost:
    """One layer's attention over the blocks that were chosen: decodes as over a window, prompts by what they read."""
    kv_bytes = kv_bytes_per_token_per_layer(rank.arch, rank.parallelism.tensor_parallel_size, "auto", shape)
    family = "blackwell" if rank.gpu.family == "blackwell" else "hopper"
    share = _BLOCKS_PREFILL_READ_SHARE[family, cached_bits(rank.kv_cache_dtype)]
    read_s = kv_bytes / (share * rank.bandwidth)
    return replace(plain, prefill_s=max(plain.prefill_s, read_s), prefill_token_s=0.0)


def chosen_cost(rank: Rank, shape: Attention) -> AttentionCost:
    """One layer's attention over what was chosen: as over a window of `topk` tokens, in the latent space.

    Decodes over packed latents take as long as of a whole choice, however short the context is.
    """
    kernels, latent, tp = kernels_of(rank), shape.latent, rank.parallelism.tensor_parallel_size
    assert latent is not None and shape.topk is not None, "sparse attention is over latents"
    heads = shape.num_heads / tp
    is_packed = rank.kv_cache_dtype.endswith(PACKED)
    padded = max(heads, PADDED_HEADS) if kernels.pads_heads or is_packed else heads
    flops = 2 * padded * (latent.cached_width + latent.kv_lora_rank) / rank.bf16_flops
    kv_bytes = kv_bytes_per_token_per_layer(rank.arch, tp, rank.kv_cache_dtype, shape) / rank.bandwidth
    read_s, packed_s = kv_bytes / kernels.read_share, flops / kernels.packed_share
    decode_s = packed_s if is_packed else max(read_s, flops / kernels.compute_share)
    bits = cached_bits(rank.kv_cache_dtype)
    prefill_read_s = kv_bytes / kernels.prefill_read_share[bits]
    prefill_compute_s = flops / kernels.prefill_compute_share / (1 if is_packed else 16 // bits)
    heads_s = max(1.0, heads / PADDED_HEADS) if kernels.pads_heads else 1.0
    walks_all = shape.topk * packed_s
    unpacks_prompts = is_packed and heads < _FEW_HEADS
    return AttentionCost(
        start_s=kernels.start_s / 2,
        sequence_s=rank.args.decode_width * (heads_s * kernels.token_s + (walks_all if is_packed else 0.0)),
        context_s=0.0 if is_packed else rank.args.decode_width * decode_s,
        prefill_s=0.0 if unpacks_prompts else max(prefill_read_s, prefill_compute_s),
        prefill_token_s=heads_s * kernels.prefill_token_s + (walks_all if unpacks_prompts else 0.0),
        is_compute_bound=decode_s > read_s,
    )
