"""Which tensors a rank holds, from the shape of the model."""

from collections.abc import Iterator

from kvcache.models.architecture import Architecture
from kvcache.models.state_space_tensors import state_space_tensors
from kvcache.models.tensors import ExtraTensor, Tensor
from kvcache.parallelism import Parallelism, pad_vocabulary, split

__all__ = [
    "COMPONENTS",
    "Tensor",
    "active_parameters",
    "layer_tensors",
    "parameter_counts",
    "stage_tensors",
    "total_parameters",
]

COMPONENTS = (
    "embedding",
    "attention",
    "state_space",
    "mlp",
    "experts",
    "shared_experts",
    "router",
    "norms",
    "residual",
    "lm_head",
    "vision",
)


def layer_tensors(arch: Architecture, parallelism: Parallelism, layer: int) -> Iterator[Tensor]:
    """What one rank holds of one 0-based layer."""
    if arch.has_attention(layer):
        yield from _mla_attention(arch, parallelism) if arch.is_mla else _attention(arch, parallelism, layer)
    if arch.has_state(layer) and arch.state_space is not None:
        yield from state_space_tensors(arch.state_space, arch.hidden_size, parallelism)
    is_moe = arch.is_moe_layer(layer)
    if is_moe:
        yield from _experts(arch, parallelism)
    if arch.has_mlp(layer) and (arch.dense_beside_experts or not is_moe):
        yield from _dense_mlp(arch, parallelism, layer)
    norm_width = 2 if arch.norm_bias else 1
    yield Tensor("norms", arch.hidden_size, count=arch.norms_per_layer * norm_width)
    yield from _extra(arch, parallelism, {"layer", "moe_layer"} if is_moe else {"layer"})


def stage_tensors(arch: Architecture, parallelism: Parallelism, stage: int) -> Iterator[Tensor]:
    """What one rank of a pipeline stage holds: layers, the embedding first, the head last."""
    first, last = stage == 0, stage == parallelism.pipeline_parallel_size - 1
    vocabulary = split(pad_vocabulary(arch.vocab_size, parallelism), parallelism, "vocabulary")
    if first or (last and arch.tie_word_embeddings):
        yield Tensor("embedding", vocabulary, arch.hidden_size)
    if first and arch.learned_positions:
        yield Tensor("embedding", arch.learned_positions, arch.hidden_size)
    if first and arch.vision_parameters:
        whole = arch.vision_parameters
        yield Tensor("vision", split(whole, parallelism, "vision", exact=False) if arch.vision_split else whole)
    yield from _extra(arch, parallelism, {"every"} | ({"first"} if first else set()) | ({"last"} if last else set()))
    for layer in parallelism.stage_layers(arch.num_hidden_layers, stage):
        yield from layer_tensors(arch, parallelism, layer)
    if last:
        yield Tensor("norms", arch.hidden_size, count=2 if arch.norm_bias else 1)
        if not arch.tie_word_embeddings:
            yield Tensor("lm_head", vocabulary, arch.hidden_size)
        if arch.lm_head_bias:
            yield Tensor("lm_head", vocabulary)


def parameter_counts(arch: Architecture) -> dict[str, int]:
    """Parameters by component of the whole model, as its checkpoint holds them: nothing padded or replicated."""
    counts = dict.fromkeys(COMPONENTS, 0)
    for tensor in stage_tensors(arch, Parallelism(pad_vocabulary_to=1), 0):
        counts[tensor.component] += tensor.parameters
    return counts


def total_parameters(arch: Architecture) -> int:
    """Parameters of the whole model."""
    return sum(parameter_counts(arch).values())


def active_parameters(arch: Architecture) -> int:
    """Parameters that one token passes through: its routed experts only, without the vision encoder."""
    counts = parameter_counts(arch)
    routed = counts["experts"] * arch.num_experts_per_tok // arch.num_experts if arch.is_moe else 0
    return sum(counts.values()) - counts["experts"] + routed - counts["vision"]


def _extra(arch: Architecture, parallelism: Parallelism, places: set[str]) -> Iterator[Tensor]:
    for extra in arch.extra_tensors:
        if extra.place in places:
            rows, cols = _extra_shape(extra, parallelism)
            yield Tensor(
                extra.component,
                rows,
                cols,
                count=extra.count,
                quantizable=extra.quantizable,
                element_bytes=extra.element_bytes,
            )


def _extra_shape(extra: ExtraTensor, parallelism: Parallelism) -> tuple[int, int]:
    what = f"width of its {extra.component} projections"
    if extra.vocabulary:
        return split(pad_vocabulary(extra.rows, parallelism), parallelism, "vocabulary"), extra.cols
    rows = split(extra.rows, parallelism, what) if extra.split == "rows" else extra.rows
    return rows, split(extra.cols, parallelism, what) if extra.split == "cols" else extra.cols


def _attention(arch: Architecture, parallelism: Parallelism, layer: int) -> Iterator[Tensor]:
    heads = split(arch.num_attention_heads, parallelism, "attention heads")
    all_kv_heads, head_dim = arch.heads_of(layer)
    kv_heads = 0 if arch.shares_kv(layer) else parallelism.kv_heads_per_rank(all_kv_heads)
    q_width, kv_width = heads * head_dim, kv_heads * head_dim
    gate_width = q_width if arch.attention_output_gate else 0
    repeated = kv_width if arch.keys_as_values and arch.layer_windows[layer] is None else 0
    rows = q_width + gate_width + 2 * kv_width
    yield Tensor("attention", rows, arch.hidden_size, quantizable=True, repeated_rows=repeated)
    yield Tensor("attention", arch.hidden_size, q_width, quantizable=True)
    if arch.attention_bias:
        yield Tensor("attention", rows, repeated_rows=repeated)
    if arch.attention_output_bias:
        yield Tensor("attention", arch.hidden_size)
    if arch.attention_sinks:
        yield Tensor("attention", heads)
    if arch.qk_norm and arch.qk_norm_whole_projection:
        yield Tensor("norms", q_width + kv_width)
    elif arch.qk_norm:
        yield Tensor("norms", head_dim, count=1 if arch.shares_kv(layer) else 2)


def _mla_attention(arch: Architecture, parallelism: Parallelism) -> Iterator[Tensor]:
    # The latent's down-projection is whole on every rank; only per-head matrices are split.
    heads = split(arch.num_attention_heads, parallelism, "attention heads")
    latent, rope = arch.kv_lora_rank or 0, arch.qk_rope_head_dim or 0
    nope, value = arch.qk_nope_head_dim or 0, arch.v_head_dim or 0
    if arch.q_lora_rank:
        yield Tensor("attention", arch.q_lora_rank, arch.hidden_size, quantizable=True)
        yield Tensor("norms", arch.q_lora_rank)
        yield Tensor("attention", heads * arch.head_dim, arch.q_lora_rank, quantizable=True)
    else:
        yield Tensor("attention", heads * arch.head_dim, arch.hidden_size, quantizable=True)
    yield Tensor("attention", latent + rope, arch.hidden_size, quantizable=True)
    yield Tensor("norms", latent)
    yield Tensor("attention", heads * (nope + value), latent, quantizable=True)
    yield Tensor("attention", arch.hidden_size, heads * value, quantizable=True)


def _dense_mlp(arch: Architecture, parallelism: Parallelism, layer: int) -> Iterator[Tensor]:
    whole = arch.mlp_widths[layer] if arch.mlp_widths else arch.intermediate_size
    width = split(whole, parallelism, "MLP width")
    yield from _mlp_matrices("mlp", arch, width)
    if arch.mlp_bias:
        yield Tensor("mlp", width * (2 if arch.gated_mlp else 1) + arch.hidden_size)


def _mlp_matrices(
    component: str, arch: Architecture, width: int, count: int = 1, padding: Parallelism | None = None
) -> Iterator[Tensor]:
    hidden = (arch.moe_hidden_size if component == "experts" else 0) or arch.hidden_size
    if padding is not None:
        width = -(-width // padding.pad_expert_width_to) * padding.pad_expert_width_to
        hidden = -(-hidden // padding.pad_expert_hidden_to) * padding.pad_expert_hidden_to
    rows = width * (2 if arch.gated_mlp else 1)
    yield Tensor(component, rows, hidden, count=count, quantizable=True, stacked=True)
    yield Tensor(component, hidden, width, count=count, quantizable=True, stacked=True, cols_split=True)


def _experts(arch: Architecture, parallelism: Parallelism) -> Iterator[Tensor]:
    if parallelism.enable_expert_parallel:
        count, width = parallelism.experts_per_rank(arch.num_experts), arch.moe_intermediate_size
    else:
        count = arch.num_experts
        width = split(arch.moe_intermediate_size, parallelism, "expert width", ways=parallelism.expert_ways)
    yield from _mlp_matrices("experts", arch, width, count, parallelism)
    if arch.expert_bias:
        yield Tensor("experts", width * (2 if arch.gated_mlp else 1) + arch.hidden_size, count=count)
    if arch.shared_expert_intermediate_size:
        whole = parallelism.sequence_parallel_moe and not arch.shared_experts_always_split
        shared = split(
            arch.shared_expert_intermediate_size, parallelism, "shared expert width", ways=1 if whole else None
        )
        yield from _mlp_matrices("shared_experts", arch, shared)
        if arch.mlp_bias:
            yield Tensor("shared_experts", shared * (2 if arch.gated_mlp else 1) + arch.hidden_size)
    if arch.shared_expert_gate:
        yield Tensor("shared_experts", 1, arch.hidden_size)
    yield Tensor("router", arch.num_experts, arch.hidden_size, element_bytes=4 if arch.router_fp32 else 0)
    if arch.router_bias:
        # A bias that balances experts is fp32 in vLLM; gpt-oss's, which goes with biases of its experts, is not.
        yield Tensor("router", arch.num_experts, element_bytes=0 if arch.expert_bias else 4)
