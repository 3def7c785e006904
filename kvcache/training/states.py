"""What weights, gradients or optimizer states cost in training."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvcache.parallelism import Parallelism, split
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Attention, Layer
from kvcache.shape.parameters import Tensor


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes that one way of training keeps per parameter, or per element of an activation.

    `moment_bytes` are those of the optimizer's first and second moment. `linear_input_bytes` is what a linear layer
    keeps of its input for the weights' gradient.
    """

    name: str
    weight_bytes: float
    gradient_bytes: float
    master_bytes: float = 0.0  # the optimizer's own copy of the weights
    copy_bytes: float = 0.0  # a further copy that the multiply reads
    copies_linear_only: bool = False
    moment_bytes: tuple[float, float] = (4.0, 4.0)
    activation_bytes: float = 2.0
    linear_input_bytes: float = 2.0
    source: str


_ZERO = "ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054), section 3.1: 2 + 2 + K bytes, K = 12 with Adam"
PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision(name="bf16-mixed", weight_bytes=2, gradient_bytes=2, master_bytes=4, source=_ZERO),
        Precision(name="fp16-mixed", weight_bytes=2, gradient_bytes=2, master_bytes=4, source=_ZERO),
        Precision(
            name="bf16-autocast",
            weight_bytes=4,
            copy_bytes=2,
            gradient_bytes=4,
            source="Hugging Face transformers, model memory anatomy: 6 + 4 bytes per parameter, 8 with AdamW",
        ),
        Precision(
            name="bf16-pure",
            weight_bytes=2,
            gradient_bytes=2,
            moment_bytes=(2, 2),
            source="moments in the weights' own format, as torch.optim keeps them; transformers pull request 21312: 8 "
            "bytes per parameter with Adam",
        ),
        Precision(
            name="fp32",
            weight_bytes=4,
            gradient_bytes=4,
            activation_bytes=4,
            linear_input_bytes=4,
            source="Megatron Core, distributed optimizer: fp32 parameters with fp32 gradients, 16 bytes with Adam",
        ),
        Precision(
            name="fp8-mixed",
            weight_bytes=2,
            copy_bytes=2,
            copies_linear_only=True,
            gradient_bytes=2,
            master_bytes=4,
            linear_input_bytes=1,
            source="Transformer Engine, performance considerations: 16-bit weights, beside them an FP8 copy of each "
            "linear layer and its transpose; Micikevicius et al. 2022 (arXiv:2209.05433)",
        ),
        Precision(
            name="fp8-deepseek",
            weight_bytes=1,
            gradient_bytes=4,
            master_bytes=4,
            moment_bytes=(2, 2),
            linear_input_bytes=1,
            source="DeepSeek-V3 (arXiv:2412.19437), section 3.3.3: FP8 weights or cached linear inputs, fp32 master "
            "weights or gradients, bf16 moments",
        ),
        Precision(
            name="fp8-lm",
            weight_bytes=1,
            gradient_bytes=1,
            master_bytes=2,
            moment_bytes=(1, 2),
            linear_input_bytes=1,
            source="FP8-LM (Peng et al. 2023, arXiv:2310.18313), section 2.2: 2 + 1 + 1 + 2 bytes of master weights, "
            "gradients, moments",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What one optimizer keeps per parameter beside the precision's master weights.

    `moment_bytes` None: as the precision says. `factored`: one number per row or column of a matrix, in fp32.
    """

    name: str
    num_moments: int
    moment_bytes: float | None = None
    factored: bool = False
    source: str


_ABSMAX_BYTES = 4 / 256  # one fp32 maximum per block of 256; bitsandbytes before 0.44 and the paper: 2,048
OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer(name="adamw", num_moments=2, source="Loshchilov and Hutter 2019 (arXiv:1711.05101): two moments"),
        Optimizer(
            name="adamw-8bit",
            num_moments=2,
            moment_bytes=1 + _ABSMAX_BYTES,
            source="Dettmers et al. 2022 (arXiv:2110.02861): both moments in blocks of 8-bit numbers",
        ),
        Optimizer(
            name="adafactor",
            num_moments=0,
            factored=True,
            source="Shazeer and Stern 2018 (arXiv:1804.04235), section 3: row with column sums, no first moment",
        ),
        Optimizer(name="lion", num_moments=1, source="Chen et al. 2023 (arXiv:2302.06675), algorithm 2: one momentum"),
        Optimizer(name="sgd-momentum", num_moments=1, source="Sutskever et al. 2013: one momentum"),
        Optimizer(name="sgd", num_moments=0, source="no state"),
    )
}


@dataclass(frozen=True)
class ModelStates:
    """Bytes on one rank."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int

    @property
    def total_bytes(self) -> int:
        """All three."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    def __add__(self, other: "ModelStates") -> "ModelStates":
        return ModelStates(
            self.weights_bytes + other.weights_bytes,
            self.gradients_bytes + other.gradients_bytes,
            self.optimizer_bytes + other.optimizer_bytes,
        )


def model_states(
    tensors: Iterable[Tensor],
    precision: Precision,
    optimizer: Optimizer,
    *,
    zero_stage: int = 0,
    data_parallel_size: int = 1,
) -> ModelStates:
    """What one rank keeps of the tensors it trains.

    Stage 1 shards the optimizer's states over the data-parallel ranks, 2 the gradients too, 3 the weights too (FSDP's
    full sharding). Source: ZeRO, section 5 with table 1.
    """
    held = tuple(tensors)
    shards = [data_parallel_size if zero_stage >= stage else 1 for stage in (3, 2, 1)]
    elements = sum(tensor.elements for tensor in held)
    wholes = (
        sum(_weight_bytes(tensor, precision) for tensor in held),
        elements * precision.gradient_bytes,
        elements * precision.master_bytes + sum(_moment_bytes(tensor, precision, optimizer) for tensor in held),
    )
    return ModelStates(*(math.ceil(whole / ways) for whole, ways in zip(wholes, shards, strict=True)))


def frozen_states(
    tensors: Iterable[Tensor], precision: Precision, *, zero_stage: int, data_parallel_size: int, nf4: bool
) -> ModelStates:
    """What one rank keeps of the tensors that are not trained; `nf4`: linear layers packed as QLoRA does."""
    whole = sum(
        tensor.elements * (NF4_BITS / 8 if nf4 and tensor.quantizable else precision.weight_bytes) for tensor in tensors
    )
    return ModelStates(math.ceil(whole / (data_parallel_size if zero_stage == 3 else 1)), 0, 0)


# QLoRA (Dettmers et al. 2023, arXiv:2305.14314), section 3: 4 bits, an 8-bit scale per 64 weights, an fp32 scale per
# 256 of those: 4.127 bits.
NF4_BITS = 4 + 8 / 64 + 32 / (64 * 256)


def _weight_bytes(tensor: Tensor, precision: Precision) -> float:
    copied = tensor.quantizable or not precision.copies_linear_only
    return tensor.elements * (precision.weight_bytes + precision.copy_bytes * copied)


def _moment_bytes(tensor: Tensor, precision: Precision, optimizer: Optimizer) -> float:
    if optimizer.factored:
        # A vector's second moment is kept whole.
        return 4.0 * tensor.count * (tensor.rows if tensor.cols == 1 else tensor.rows + tensor.cols)
    if optimizer.moment_bytes is not None:
        return tensor.elements * optimizer.num_moments * optimizer.moment_bytes
    return tensor.elements * sum(precision.moment_bytes[: optimizer.num_moments])


LORA_TARGETS = {
    "qv": ("q", "v"),
    "attention": ("q", "k", "v", "q_a", "q_b", "kv_a", "kv_b", "o"),
    "all-linear": ("q", "k", "v", "q_a", "q_b", "kv_a", "kv_b", "o", "gate", "up", "down"),
}


def lora_tensors(
    arch: Architecture, parallelism: Parallelism, layer: Layer, *, rank: int, targets: str
) -> Iterator[Tensor]:
    """The adapters of one layer on one rank: `rank` × in with out × `rank` per linear layer.

    Source: LoRA (Hu et al. 2021, arXiv:2106.09685), section 4.1. Under tensor parallelism the side of an adapter that
    meets the split width is split with it, the other is whole on every rank.
    """
    for component, name, width_in, width_out, count in _linear_layers(arch, parallelism, layer):
        if name in LORA_TARGETS[targets]:
            yield Tensor(component, rank, width_in, count)
            yield Tensor(component, width_out, rank, count)


def _linear_layers(
    arch: Architecture, parallelism: Parallelism, layer: Layer
) -> Iterator[tuple[str, str, int, int, int]]:
    """(component, name, inputs, outputs, count) of each on one rank."""
    hidden, experts = arch.hidden_size, layer.experts
    if layer.attention is not None:
        for name, width_in, width_out in _projections(layer.attention, hidden, parallelism):
            yield "attention", name, width_in, width_out, 1
    widths: list[tuple[str, int, int]] = []
    if layer.intermediate_size:
        widths.append(("mlp", split(layer.intermediate_size, parallelism, "MLP width"), 1))
    if experts is not None:
        widths.append(
            ("experts", split(experts.moe_intermediate_size, parallelism, "expert width"), experts.num_experts)
        )
        if experts.shared_expert_intermediate_size:
            shared = split(experts.shared_expert_intermediate_size, parallelism, "shared expert width")
            widths.append(("shared_experts", shared, 1))
    for component, width, count in widths:
        yield component, "up", hidden, width, count
        yield component, "down", width, hidden, count
        if arch.gated_mlp:
            yield component, "gate", hidden, width, count


def _projections(attention: Attention, hidden: int, parallelism: Parallelism) -> Iterator[tuple[str, int, int]]:
    """(name, inputs, outputs) on one rank."""
    heads, latent = split(attention.num_heads, parallelism, "attention heads"), attention.latent
    q_width = heads * attention.head_dim
    if latent is None:
        kv_width = parallelism.kv_heads_per_rank(attention.num_kv_heads) * attention.head_dim
        yield from (("q", hidden, q_width), ("k", hidden, kv_width), ("v", hidden, kv_width), ("o", q_width, hidden))
        return
    if latent.q_lora_rank:
        yield from (("q_a", hidden, latent.q_lora_rank), ("q_b", latent.q_lora_rank, q_width))
    else:
        yield "q", hidden, q_width
    yield "kv_a", hidden, latent.cached_width
    yield "kv_b", latent.kv_lora_rank, heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    yield "o", heads * latent.v_head_dim, hidden
