"""What weights, gradients or optimizer states cost in training."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from files.documents import read_toml
from files.registry import Registry, remembered
from files.schema import Count, NotNegative, table
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Layer
from kvcache.shape.parameters import layer_tensors, projections
from kvcache.shape.tensors import Tensor

_FOLDER = Path(__file__).parent
_PRECISIONS = Registry(what="precision", section="precisions", folder=_FOLDER / "precisions", suffix=".toml")
_OPTIMIZERS = Registry(what="optimizer", section="optimizers", folder=_FOLDER / "optimizers", suffix=".toml")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes that one way of training keeps per parameter, or per element of an activation.

    `moment_bytes` are those of the optimizer's first and second moment. `linear_input_bytes` is what a linear layer
    keeps of its input for the weights' gradient.
    """

    name: str
    weight_bytes: NotNegative
    gradient_bytes: NotNegative
    master_bytes: NotNegative = 0.0  # the optimizer's own copy of the weights
    copy_bytes: NotNegative = 0.0  # a further copy that the multiply reads
    copies_linear_only: bool = False
    moment_bytes: tuple[NotNegative, NotNegative] = (4.0, 4.0)
    activation_bytes: NotNegative = 2.0
    linear_input_bytes: NotNegative = 2.0
    source: str


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What one optimizer keeps per parameter beside the precision's master weights.

    `moment_bytes` None: as the precision says. `factored`: one number per row or column of a matrix, in fp32.
    """

    name: str
    num_moments: Count
    moment_bytes: NotNegative | None = None
    factored: bool = False
    source: str


def precision_names() -> tuple[str, ...]:
    """Every known way to mix precisions."""
    return _PRECISIONS.names()


def optimizer_names() -> tuple[str, ...]:
    """Every known optimizer."""
    return _OPTIMIZERS.names()


@remembered
def find_precision(name: str) -> Precision:
    """The precision of that name. Raises `UnknownNameError` with the nearest names."""
    path = _PRECISIONS.path(name)
    return table(read_toml(path), Precision, path, name=name)


@remembered
def find_optimizer(name: str) -> Optimizer:
    """The optimizer of that name. Raises `UnknownNameError` with the nearest names."""
    path = _OPTIMIZERS.path(name)
    return table(read_toml(path), Optimizer, path, name=name)


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
    if layer.attention is not None:
        for name, width_in, width_out in projections(layer.attention, arch.hidden_size, parallelism):
            yield "attention", name, width_in, width_out, 1
    for tensor in layer_tensors(arch, parallelism, layer):
        if tensor.stacked and tensor.cols_split:
            yield tensor.component, "down", tensor.cols, tensor.rows, tensor.count
        elif tensor.stacked:
            names = ("gate", "up") if arch.gated_mlp else ("up",)
            for name in names:
                yield tensor.component, name, tensor.cols, tensor.rows // len(names), tensor.count
