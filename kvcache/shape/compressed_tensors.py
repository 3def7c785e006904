"""The matrices of DeepSeek-V4's attention, which keeps compressed entries of its context.

Source: vLLM 0.33, models/deepseek_v4 (attention.py, compressor.py).
"""

from collections.abc import Iterator

from kvcache.parallelism import Parallelism, split
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention, CompressedAttention
from kvcache.shape.tensors import Tensor


def compressed_attention_tensors(
    arch: Architecture, attention: Attention, compressed: CompressedAttention, parallelism: Parallelism
) -> Iterator[Tensor]:
    """One layer's on one rank: what goes down to low ranks is whole, as are compressors and the indexer."""
    hidden, width, rank = arch.hidden_size, attention.head_dim, compressed.q_lora_rank
    heads = split(attention.num_heads, parallelism, "attention heads")
    groups = split(compressed.o_groups, parallelism, "groups of heads (o_groups)")
    low = compressed.o_lora_rank
    yield Tensor("attention", rank + width, hidden, quantizable=True, part="in")
    yield Tensor("attention", heads * width, rank, quantizable=True, part="q_b")
    yield Tensor("attention", groups * low, heads // groups * width, quantizable=True, part="o_a")
    yield Tensor("attention", hidden, groups * low, quantizable=True, part="out")
    yield Tensor("attention", heads, element_bytes=4)  # sinks
    yield Tensor("norms", rank)
    yield Tensor("norms", width)
    if compressed.ratio is not None:
        yield from _compressor(hidden, compressed, width)
    if attention.indexer is not None:
        indexer = attention.indexer
        yield Tensor("attention", indexer.num_heads * indexer.head_dim, rank, quantizable=True, part="index_q")
        yield Tensor("attention", indexer.num_heads, hidden)
        yield from _compressor(hidden, compressed, indexer.head_dim)


def _compressor(hidden: int, compressed: CompressedAttention, width: int) -> Iterator[Tensor]:
    """Values with their weights in the sum, of each entry that a token is in; positions in it; a norm."""
    assert compressed.ratio is not None, "asked of a layer without a compressed cache"
    summed = compressed.overlap * width
    yield Tensor("attention", 2 * summed, hidden)
    yield Tensor("attention", compressed.ratio, summed, element_bytes=4)
    yield Tensor("norms", width)
