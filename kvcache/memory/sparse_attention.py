"""What sparse attention takes on one rank beside weights and caches.

Source: vLLM 0.32 and 0.33: the buffer of chosen tokens (models/deepseek_v32/nvidia/model.py), what the profiling run
reserves (model_executor/layers/sparse_attn_indexer.py, v1/attention/backends/mla/indexer.py, flashmla_sparse.py), how
many contexts prompts may gather (config/vllm.py, sparse_mla_prefill_workspace_factor). Not measured.
"""

from dataclasses import dataclass

from kvcache.layout.attention_backend import PACKED
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import CHOSEN_RATIO, Attention

_LONG_CONTEXT, _CONTEXTS, _LONG_CONTEXTS = 256 * 1024, 5, 2  # that prompts gather; of contexts beyond that length
_KEYS_PER_LATENT = 8  # so many keys of an indexer are gathered in the place of one 16-bit latent
_GATHERED_PROMPTS = 4  # at a time (DeepSeek-V4, PREFILL_CHUNK_SIZE)
_INDEX_BYTES = 4
_LOGITS_BYTES = 512 * 2**20  # VLLM_SPARSE_INDEXER_MAX_LOGITS_MB
_TOPK_WORKSPACE_BYTES = 2**20  # RADIX_TOPK_WORKSPACE_SIZE
PADDED_HEADS = 64  # of a rank's queries, in FlashMLA's kernels (vLLM flashmla_sparse.py, prefill_padding)


@dataclass(frozen=True, kw_only=True)
class SparseAttentionMemory:
    """Bytes: the buffer of chosen tokens; a workspace shared with the experts; what a layer takes while it chooses."""

    kept: int = 0
    workspace: int = 0
    transient: int = 0


NONE = SparseAttentionMemory()


def sparse_attention_memory(
    arch: Architecture,
    parallelism: Parallelism,
    *,
    max_num_batched_tokens: int,
    max_model_len: int,
    kv_cache_dtype: str,
) -> SparseAttentionMemory:
    """All zero for a model whose queries attend to everything."""
    if arch.is_compressed:
        return _compressed(arch, max_num_batched_tokens, max_model_len)
    attention, indexer = arch.attention, arch.indexer
    if attention is None or attention.topk is None or indexer is None:  # blocks are chosen in little memory
        return NONE
    indices = max_num_batched_tokens * attention.topk * _INDEX_BYTES
    gathered = max_model_len * (_CONTEXTS if max_model_len <= _LONG_CONTEXT else _LONG_CONTEXTS)
    workspace = gathered * _KEYS_PER_LATENT * indexer.cached_bytes + _TOPK_WORKSPACE_BYTES
    if kv_cache_dtype.endswith(PACKED):
        workspace = max(workspace, _unpacked(attention, parallelism, max_num_batched_tokens, gathered))
    is_split = parallelism.tensor_parallel_size > 1  # ranks choose for a part of a prompt each, then exchange
    return SparseAttentionMemory(kept=indices, workspace=workspace, transient=_LOGITS_BYTES + 2 * indices * is_split)


def _compressed(arch: Architecture, tokens: int, max_model_len: int) -> SparseAttentionMemory:
    """The same of DeepSeek-V4: prompts gather entries of a few contexts at a time, with the window, in 16 bits.

    Source: vLLM 0.33, models/deepseek_v4/nvidia/flashmla.py (`forward_mqa`), model.py, attention.py (indexer).
    """
    shapes = [layer.attention for layer in arch.layers if layer.attention is not None]
    gathers = max(_prompts_gather(shape, tokens, max_model_len) for shape in shapes)
    chosen = next((shape for shape in shapes if shape.topk is not None), None)
    if chosen is None or chosen.indexer is None or chosen.topk is None:
        return SparseAttentionMemory(workspace=gathers)
    contexts = max_model_len * (_CONTEXTS if max_model_len <= _LONG_CONTEXT else _LONG_CONTEXTS)
    keys = contexts // CHOSEN_RATIO * _KEYS_PER_LATENT * chosen.indexer.cached_bytes + _TOPK_WORKSPACE_BYTES
    indices = tokens * (chosen.topk // CHOSEN_RATIO) * _INDEX_BYTES
    return SparseAttentionMemory(kept=indices, workspace=max(gathers, keys), transient=_LOGITS_BYTES)


def _prompts_gather(shape: Attention, tokens: int, max_model_len: int) -> int:
    compressed, window = shape.compressed, shape.window or 0
    assert compressed is not None, "all layers are alike in this"
    entries = -(-max_model_len // compressed.ratio) if compressed.ratio else 0
    read = -(-((shape.topk or 0) // CHOSEN_RATIO + window) // 128) * 128
    rows = _GATHERED_PROMPTS * (entries + window + tokens)
    return rows * shape.head_dim * 2 + tokens * (read + 1) * _INDEX_BYTES


def _unpacked(attention: Attention, parallelism: Parallelism, tokens: int, gathered: int) -> int:
    """FlashMLA's workspace: latents of the gathered contexts in 16 bits; queries, outputs, both of padded heads too."""
    latent = attention.latent
    assert latent is not None, "sparse attention is over latents"
    heads = attention.num_heads // parallelism.tensor_parallel_size
    padded = -(-heads // PADDED_HEADS) * PADDED_HEADS
    elements = gathered * latent.cached_width + tokens * (heads + padded) * (latent.cached_width + latent.kv_lora_rank)
    return 2 * elements
