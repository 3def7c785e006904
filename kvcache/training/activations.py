"""What the backward pass needs of the forward one.

The accounting of Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models"
(arXiv:2205.05198), term by term, so that grouped keys, gated MLPs, latent attention or experts change their own term
alone. For the paper's GPT the terms add up to its equations 1 to 6. What plain transformers keeps beyond that was
counted on its Llama (`fused_kernels` off).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kvcache.parallelism import Parallelism, pad_vocabulary, split
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention, Experts, Layer
from kvcache.training.states import Precision

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True, kw_only=True)
class ActivationSettings:
    """What decides about activations, beside the model and its split. One micro-batch: sequences × tokens.

    `fused_kernels`: norms keep their input only, SwiGLU three tensors, the softmax nothing in fp32 (Megatron,
    Transformer Engine, torch.compile). Off: as Hugging Face transformers runs Llama eagerly.
    """

    micro_batch_size: int
    sequence_length: int
    recompute: str
    sequence_parallel: bool
    flash_attention: bool
    dropout: bool
    fused_kernels: bool
    precision: Precision

    @property
    def norm_excess(self) -> float:
        """Bytes per element that an RMSNorm keeps beyond its input.

        Unfused (plain transformers): the input in fp32 and the normalised input, instead of the input.
        """
        return 0.0 if self.fused_kernels else 4.0


@dataclass(frozen=True, kw_only=True)
class LayerActivations:
    """Bytes of one layer per token on one rank."""

    layer_input: float  # all that full recomputation keeps
    attention_core: float  # what selective recomputation drops
    rest: float

    @property
    def total(self) -> float:
        """All that backward needs of the layer."""
        return self.layer_input + self.attention_core + self.rest


@dataclass(frozen=True, kw_only=True)
class StageActivations:
    """Bytes of one pipeline stage on one rank."""

    kept_bytes: float  # per micro-batch in flight
    output_bytes: float  # once: only the micro-batch whose backward comes next has logits
    recomputed_bytes: float  # once: what the layer in backward computes again


@lru_cache(maxsize=4096)
def stage_activations(
    arch: Architecture, parallelism: Parallelism, stage: int, settings: ActivationSettings
) -> StageActivations:
    """Korthikanti et al., table 2 per layer, section 4.3 for embedding with output layer.

    Backward holds one recomputed layer at a time, beside its input, which is kept anyway.
    """
    layers = [
        layer_activations(arch, parallelism, settings, arch.layers[index])
        for index in parallelism.stage_layers(arch.num_hidden_layers, stage)
    ]
    kept, recomputed = sum(layer.total for layer in layers), 0.0
    if settings.recompute == "selective":
        kept = sum(layer.total - layer.attention_core for layer in layers)
        recomputed = max(layer.attention_core for layer in layers)
    elif settings.recompute == "full":
        kept = sum(layer.layer_input for layer in layers)
        recomputed = max(layer.total - layer.layer_input for layer in layers)
    if stage == 0 and settings.dropout:  # the mask of the embedding's dropout
        kept += arch.hidden_size * _whole_share(parallelism, settings)
    output = 0.0
    if stage == parallelism.pipeline_parallel_size - 1:
        output = _output(arch, parallelism, settings)
    tokens = settings.micro_batch_size * settings.sequence_length
    return StageActivations(
        kept_bytes=kept * tokens, output_bytes=output * tokens, recomputed_bytes=recomputed * tokens
    )


def micro_batches_in_flight(
    stage: int, *, pipeline_parallel_size: int, virtual_pipeline_stages: int, num_micro_batches: int
) -> float:
    """Micro-batches whose activations a 0-based stage holds at once, at the peak of the 1F1B schedule.

    With v > 1 chunks of layers per stage (interleaved schedule) the unit is 1/v of a stage, and the first of p stages
    holds p (1 + (p − 1)/(p v)). Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2; Korthikanti et al.,
    section 4.2.3.
    """
    p, v = pipeline_parallel_size, virtual_pipeline_stages
    if p == 1:
        return 1.0
    if v == 1:
        return float(min(p - stage, num_micro_batches))
    chunks = 2 * (p - stage - 1) + (v - 1) * p + 1
    return min(chunks, num_micro_batches * v) / v


@lru_cache(maxsize=4096)
def layer_activations(
    arch: Architecture, parallelism: Parallelism, settings: ActivationSettings, layer: Layer
) -> LayerActivations:
    """One layer's terms, per token.

    What tensor parallelism leaves whole on every rank (layer norms, dropout, the inputs of the split linear layers)
    is split by sequence parallelism (equations 2, 4).
    """
    assert layer.attention is not None, "activations are asked of a layer without attention"
    element, whole = settings.precision.activation_bytes, _whole_share(parallelism, settings)
    residual = element * arch.hidden_size * whole
    excess = 0.0 if arch.norm_bias else settings.norm_excess * arch.hidden_size * whole
    mask = arch.hidden_size * whole if settings.dropout else 0.0
    parallel_blocks = arch.norms_per_layer == 1  # attention and MLP read one norm's output
    rest = (arch.norms_per_layer - 1) * residual + arch.norms_per_layer * excess + mask * 2
    rest += settings.precision.linear_input_bytes * arch.hidden_size * whole  # the input of q, k, v
    rest += sum(_attention(arch, layer.attention, parallelism, settings))
    if layer.experts is not None:
        rest += sum(_experts(arch, layer.experts, parallelism, settings, whole))
    else:
        if not parallel_blocks:
            rest += settings.precision.linear_input_bytes * arch.hidden_size * whole
        rest += _mlp(arch, split(layer.intermediate_size, parallelism, "MLP width"), settings)
    heads = split(layer.attention.num_heads, parallelism, "attention heads")
    return LayerActivations(layer_input=residual, attention_core=_attention_core(heads, settings), rest=rest)


def _whole_share(parallelism: Parallelism, settings: ActivationSettings) -> float:
    return 1 / parallelism.tensor_parallel_size if settings.sequence_parallel else 1.0


def _attention(
    arch: Architecture, attention: Attention, parallelism: Parallelism, settings: ActivationSettings
) -> Iterator[float]:
    """q, k, v, the output projection's input; of latent attention the latents around their norms too."""
    element, linear = settings.precision.activation_bytes, settings.precision.linear_input_bytes
    heads = split(attention.num_heads, parallelism, "attention heads")
    query, latent = heads * attention.head_dim, attention.latent
    if latent is not None:
        latents = (latent.q_lora_rank or 0) + latent.kv_lora_rank
        yield (element + linear + settings.norm_excess) * latents  # whole on every rank, as their projections are
        output = heads * latent.v_head_dim
        yield element * (2 * query + output)
    else:
        key = parallelism.kv_heads_per_rank(attention.num_kv_heads) * attention.head_dim
        output = query
        repeated = not settings.fused_kernels and not settings.flash_attention  # keys, values once per query head
        yield element * (query + 2 * (query if repeated else key))
        if arch.qk_norm or arch.qk_norm_whole_projection:
            yield (element + settings.norm_excess) * (query + key)  # as they were before their norms
    # Flash attention's backward reads its own output; the projection's input is that tensor, or an FP8 copy of it.
    if settings.flash_attention:
        yield element * output + (linear * output if linear != element else 0.0)
    else:
        yield linear * output


def _attention_core(heads: int, settings: ActivationSettings) -> float:
    """The softmax's output, with dropout its mask and output: 5as bytes of equation 1, 2as without dropout.

    Flash attention keeps one fp32 log-sum per head instead (Dao et al. 2022, arXiv:2205.14135, section 3.1).
    """
    element = settings.precision.activation_bytes
    if settings.flash_attention:
        return 4.0 * heads
    scores = 2 * element + 1 if settings.dropout else element
    if not settings.fused_kernels:
        scores += 4  # the softmax's own output, in fp32
    return heads * settings.sequence_length * scores


def _mlp(arch: Architecture, width: int, settings: ActivationSettings) -> float:
    """The activation function's inputs, the last product's input.

    GELU: 16sbh of equation 1 at a width of 4h. SwiGLU: gate, up and their product, as a fused kernel keeps them;
    unfused also the activated gate.
    """
    inputs = (2 if settings.fused_kernels else 3) if arch.gated_mlp else 1
    return (inputs * settings.precision.activation_bytes + settings.precision.linear_input_bytes) * width


def _experts(
    arch: Architecture, experts: Experts, parallelism: Parallelism, settings: ActivationSettings, whole: float
) -> Iterator[float]:
    """Tokens routed evenly: each is computed by `num_experts_per_tok` experts, wherever they are.

    Our own accounting: the router's input and probabilities, the dispatched copies of the input, the experts' MLP,
    their outputs before they are weighted. Copies are taken as whole on every tensor-parallel rank.
    """
    precision, hidden = settings.precision, arch.hidden_size
    element, linear = precision.activation_bytes, precision.linear_input_bytes
    yield element * hidden * whole
    yield 4.0 * experts.num_experts * whole
    width = split(experts.moe_intermediate_size, parallelism, "expert width")
    yield experts.num_experts_per_tok * ((linear + element) * hidden + _mlp(arch, width, settings))
    if experts.shared_expert_intermediate_size:
        shared = split(experts.shared_expert_intermediate_size, parallelism, "shared expert width")
        yield _mlp(arch, shared, settings)


def _output(arch: Architecture, parallelism: Parallelism, settings: ActivationSettings) -> float:
    """The last norm's input, the head's input, the logits in fp32: 4sbh (1 + v/h) of section 4.3."""
    vocabulary = split(pad_vocabulary(arch.vocab_size, parallelism), parallelism, "vocabulary")
    excess = 0.0 if arch.norm_bias else settings.norm_excess
    hidden = (2 * settings.precision.activation_bytes + excess) * arch.hidden_size
    return hidden * _whole_share(parallelism, settings) + 4.0 * vocabulary
