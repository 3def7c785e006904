"""Which tensors a rank holds, from the shape of the model."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kvcache.parallelism import Parallelism, pad_vocabulary, split
from kvcache.shape.architecture import Architecture
from kvcache.shape.compressed_tensors import compressed_attention_tensors
from kvcache.shape.layer import Attention, Experts, Indexer, LatentAttention, Layer
from kvcache.shape.state_tensors import state_space_tensors
from kvcache.shape.tensors import ExtraTensor, Tensor

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

_FP8_BLOCK = 128  # rows and columns that share a scale


def layer_tensors(arch: Architecture, parallelism: Parallelism, layer: Layer) -> Iterator[Tensor]:
    """What one rank holds of one of the model's layers."""
    formats = dict(layer.formats)
    for tensor in _tensors_of(arch, parallelism, layer):
        listed = formats.get(f"{tensor.component}.{tensor.part}") if tensor.part else None
        yield tensor if listed is None else replace(tensor, format=listed)


def _tensors_of(arch: Architecture, parallelism: Parallelism, layer: Layer) -> Iterator[Tensor]:
    attention = layer.attention
    if attention is not None and attention.latent is not None:
        yield from _latent_attention(arch, attention, attention.latent, parallelism)
    elif attention is not None and attention.compressed is not None:
        yield from compressed_attention_tensors(arch, attention, attention.compressed, parallelism)
    elif attention is not None:
        yield from _attention(arch, attention, parallelism)
    if layer.state is not None:
        yield from state_space_tensors(layer.state, arch.hidden_size, parallelism)
    if layer.experts is not None:
        yield from _experts(arch, layer.experts, parallelism)
    if layer.intermediate_size:
        width = split(layer.intermediate_size, parallelism, "MLP width", ways=parallelism.dense_ways)
        yield from _mlp(arch, "mlp", width, biased=arch.mlp_bias)
    norm_width = 2 if arch.norm_bias else 1
    yield Tensor("norms", arch.hidden_size, count=arch.norms_per_layer * norm_width)
    yield from _extra(arch, parallelism, {"layer", "moe_layer"} if layer.experts else {"layer"})


def kinds_of_layers(arch: Architecture, parallelism: Parallelism, stage: int) -> Mapping[Layer, int]:
    """How many layers of each kind a pipeline stage holds."""
    return Counter(arch.layers[index] for index in parallelism.stage_layers(arch.num_hidden_layers, stage))


def stage_tensors(
    arch: Architecture, parallelism: Parallelism, stage: int, *, together: bool = False
) -> Iterator[Tensor]:
    """What one rank of a pipeline stage holds: layers, the embedding first, the head last.

    One after the other as they are allocated, or equal layers counted `together`.
    """
    first, last = stage == 0, stage == parallelism.pipeline_parallel_size - 1
    vocabulary = split(pad_vocabulary(arch.vocab_size, parallelism), parallelism, "vocabulary")
    of_head = pad_vocabulary(arch.vocab_size, parallelism, parallelism.head_ways) // parallelism.head_ways
    if first or (last and arch.tie_word_embeddings):
        yield Tensor("embedding", vocabulary, arch.hidden_size)
    if first and arch.learned_positions:
        yield Tensor("embedding", arch.learned_positions, arch.hidden_size)
    if first and arch.vision_parameters:
        whole = arch.vision_whole if arch.vision_split else arch.vision_parameters
        yield Tensor("vision", whole + split(arch.vision_parameters - whole, parallelism, "vision", exact=False))
    yield from _extra(arch, parallelism, {"every"} | ({"first"} if first else set()) | ({"last"} if last else set()))
    if together:
        for layer, count in kinds_of_layers(arch, parallelism, stage).items():
            for tensor in layer_tensors(arch, parallelism, layer):
                yield replace(tensor, count=count * tensor.count)
    else:
        for index in parallelism.stage_layers(arch.num_hidden_layers, stage):
            yield from layer_tensors(arch, parallelism, arch.layers[index])
    if last:
        yield Tensor("norms", arch.hidden_size, count=2 if arch.norm_bias else 1)
        if not arch.tie_word_embeddings:
            yield Tensor("lm_head", of_head, arch.hidden_size, format=arch.lm_head_format)
        if arch.lm_head_bias:
            yield Tensor("lm_head", of_head)


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
    experts = arch.experts
    routed = counts["experts"] * experts.num_experts_per_tok // experts.num_experts if experts else 0
    return sum(counts.values()) - counts["experts"] + routed - counts["vision"]


def _extra(arch: Architecture, parallelism: Parallelism, places: set[str]) -> Iterator[Tensor]:
    for extra in arch.extra_tensors:
        if extra.place in places:
            rows, cols = extra_shape(extra, parallelism)
            yield Tensor(
                extra.component,
                rows,
                cols,
                count=extra.count,
                quantizable=extra.quantizable,
                part="extra",
                element_bytes=extra.element_bytes,
            )


def extra_shape(extra: ExtraTensor, parallelism: Parallelism) -> tuple[int, int]:
    """Rows and columns on one rank."""
    what = f"width of its {extra.component} projections"
    if extra.vocabulary:
        return split(pad_vocabulary(extra.rows, parallelism), parallelism, "vocabulary"), extra.cols
    rows = split(extra.rows, parallelism, what) if extra.split == "rows" else extra.rows
    return rows, split(extra.cols, parallelism, what) if extra.split == "cols" else extra.cols


def _attention(arch: Architecture, attention: Attention, parallelism: Parallelism) -> Iterator[Tensor]:
    heads = split(attention.num_heads, parallelism, "attention heads")
    borrows = attention.kv_owner is not None  # and so projects no keys or values
    q_width = heads * attention.head_dim
    kv_heads = 0 if borrows else parallelism.kv_heads_per_rank(attention.num_kv_heads)
    kv_width = kv_heads * attention.head_dim
    gate_width = q_width if arch.attention_output_gate else 0
    repeated = kv_width if attention.keys_as_values else 0
    rows = q_width + gate_width + kv_width + kv_heads * attention.value_dim
    if attention.indexer is not None:  # its queries, and its key, which is whole (vLLM models/minimax_m3)
        rows += (parallelism.kv_heads_per_rank(attention.indexer.num_heads) + 1) * attention.indexer.head_dim
        yield Tensor("norms", attention.indexer.head_dim, count=2)
    yield Tensor("attention", rows, arch.hidden_size, quantizable=True, part="in", repeated_rows=repeated)
    yield Tensor("attention", arch.hidden_size, heads * attention.value_dim, quantizable=True, part="out")
    if arch.attention_head_gate:
        yield Tensor("attention", heads, arch.hidden_size)
    if arch.attention_element_gate:
        yield Tensor("attention", q_width, arch.hidden_size, quantizable=True, part="gate")
    if arch.attention_bias:
        yield Tensor("attention", rows, repeated_rows=repeated)
    if arch.attention_output_bias:
        yield Tensor("attention", arch.hidden_size)
    if arch.attention_sinks and (attention.window is not None or not arch.sinks_in_windows_only):
        yield Tensor("attention", heads)
    if arch.qk_norm and arch.qk_norm_whole_projection:
        yield Tensor("norms", q_width + kv_width)
    elif arch.qk_norm:
        yield Tensor("norms", attention.head_dim, count=1 if borrows else 2)


def _latent_attention(
    arch: Architecture, attention: Attention, latent: LatentAttention, parallelism: Parallelism
) -> Iterator[Tensor]:
    norms = {"q_a": latent.q_lora_rank or 0, "kv_a": latent.kv_lora_rank}
    for name, inputs, outputs in projections(attention, arch.hidden_size, parallelism):
        yield Tensor("attention", outputs, inputs, quantizable=True, part=name)
        if name in norms:
            yield Tensor("norms", norms[name])
    if arch.attention_output_gate:
        gated = split(attention.num_heads, parallelism, "attention heads") * latent.v_head_dim
        yield Tensor("attention", gated, arch.hidden_size, quantizable=True, part="gate")
    if arch.attention_head_gate:
        yield Tensor("attention", split(attention.num_heads, parallelism, "attention heads"), arch.hidden_size)
    if attention.indexer is not None:
        yield from _indexer(arch, attention.indexer, latent.q_lora_rank or 0)


def _indexer(arch: Architecture, indexer: Indexer, q_lora_rank: int) -> Iterator[Tensor]:
    """Whole on every rank; keys with the heads' weights in one projection that no format packs, norms in fp32.

    Source: vLLM 0.33, models/deepseek_v32/attention.py (`DeepseekV32Indexer`).
    """
    width = indexer.num_heads * indexer.head_dim
    yield Tensor("attention", width, q_lora_rank, quantizable=True, part="index_q")
    yield Tensor("attention", indexer.head_dim + indexer.num_heads, arch.hidden_size)
    yield Tensor("norms", indexer.head_dim, count=2, element_bytes=4)


def projections(attention: Attention, hidden: int, parallelism: Parallelism) -> Iterator[tuple[str, int, int]]:
    """(name, inputs, outputs) of each of a layer's projections on one rank, before any are fused.

    Only per-head matrices are split: those down to latents are whole on every rank.
    """
    heads, latent = split(attention.num_heads, parallelism, "attention heads"), attention.latent
    q_width = heads * attention.head_dim
    if latent is None:
        kv_heads = parallelism.kv_heads_per_rank(attention.num_kv_heads)
        yield from (("q", hidden, q_width), ("k", hidden, kv_heads * attention.head_dim))
        yield from (("v", hidden, kv_heads * attention.value_dim), ("o", heads * attention.value_dim, hidden))
        return
    if latent.q_lora_rank:
        yield from (("q_a", hidden, latent.q_lora_rank), ("q_b", latent.q_lora_rank, q_width))
    else:
        yield "q", hidden, q_width
    yield "kv_a", hidden, latent.cached_width
    yield "kv_b", latent.kv_lora_rank, heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    yield "o", heads * latent.v_head_dim, hidden


def _mlp(arch: Architecture, component: str, width: int, *, biased: bool) -> Iterator[Tensor]:
    yield from _matrices(component, arch, width, arch.hidden_size)
    if biased:
        yield Tensor(component, width * (2 if arch.gated_mlp else 1) + arch.hidden_size)


def _matrices(component: str, arch: Architecture, width: int, hidden: int, count: int = 1) -> Iterator[Tensor]:
    rows = width * (2 if arch.gated_mlp else 1)
    yield Tensor(component, rows, hidden, count=count, quantizable=True, stacked=True, part="in")
    yield Tensor(component, hidden, width, count=count, quantizable=True, stacked=True, cols_split=True, part="out")


def _experts(arch: Architecture, experts: Experts, parallelism: Parallelism) -> Iterator[Tensor]:
    if parallelism.enable_expert_parallel:
        count, width = parallelism.experts_per_rank(experts.num_experts), experts.moe_intermediate_size
    else:
        count = experts.num_experts
        width = split(experts.moe_intermediate_size, parallelism, "expert width", ways=parallelism.expert_ways)
    padded = _up_to(width, parallelism.pad_expert_width_to)
    hidden = _up_to(experts.hidden_size or arch.hidden_size, parallelism.pad_expert_hidden_to)
    yield from _matrices("experts", arch, padded, hidden, count)
    if arch.expert_bias:
        yield Tensor("experts", width * (2 if arch.gated_mlp else 1) + arch.hidden_size, count=count)
    if experts.shared_expert_intermediate_size:
        whole = parallelism.sequence_parallel_moe and not arch.shared_experts_always_split
        ways = 1 if whole else parallelism.shared_ways
        width = experts.shared_expert_intermediate_size
        if arch.pads_shared_experts and arch.native_quantization == "fp8-block":
            width = _up_to(width, _FP8_BLOCK * ways)
        shared = split(width, parallelism, "shared expert width", ways=ways)
        yield from _mlp(arch, "shared_experts", shared, biased=arch.mlp_bias)
    if arch.shared_expert_gate:
        yield Tensor("shared_experts", 1, arch.hidden_size)
    yield Tensor("router", experts.num_experts, arch.hidden_size, element_bytes=4 if arch.router_fp32 else 0)
    if arch.router_bias and not experts.by_word:
        # A bias that balances experts is fp32 in vLLM; gpt-oss's, which goes with biases of its experts, is not.
        yield Tensor("router", experts.num_experts, element_bytes=0 if arch.expert_bias else 4)


def _up_to(width: int, unit: int) -> int:
    """The width rounded up to a multiple of the unit."""
    return -(-width // unit) * unit
