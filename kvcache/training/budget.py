"""Whether a model can be trained on given GPUs, per rank."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import NamedTuple

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Layer
from kvcache.shape.parameters import kinds_of_layers, layer_tensors, stage_tensors, total_parameters
from kvcache.shape.tensors import Tensor
from kvcache.training.activations import (
    ActivationSettings,
    StageActivations,
    micro_batches_in_flight,
    stage_activations,
)
from kvcache.training.plan import TrainingPlan
from kvcache.training.states import (
    ModelStates,
    Optimizer,
    Precision,
    find_optimizer,
    frozen_states,
    lora_tensors,
    model_states,
)


@dataclass(frozen=True, kw_only=True)
class TrainingBudget:
    """Where the memory of one rank goes; `*_bytes` are those of the pipeline stage that needs most.

    `recomputed_bytes` and `gathered_bytes` come and go within a step: the layer that backward computes again; the
    unsharded layers of ZeRO 3, or the matrix that QLoRA unpacks.
    """

    model: str
    gpu: str
    plan: TrainingPlan
    num_parameters: int
    num_trainable_parameters: int
    stage: int
    in_flight_micro_batches: float
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    recomputed_bytes: int
    gathered_bytes: int
    allowance_bytes: int
    gpu_memory_bytes: int
    assumptions: tuple[tuple[str, str, str], ...]  # (name, value, source)

    @property
    def total_bytes(self) -> int:
        """The parts together, the allowance among them."""
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        passing = self.recomputed_bytes + self.gathered_bytes
        return states + self.activations_bytes + passing + self.allowance_bytes

    @property
    def fits(self) -> bool:
        """Whether every rank's GPU holds its part."""
        return self.missing_bytes == 0

    @property
    def missing_bytes(self) -> int:
        """What each GPU lacks; 0 where it fits."""
        return max(0, self.total_bytes - self.gpu_memory_bytes)


@dataclass(frozen=True)
class _Held:
    """The tensors of one rank: `frozen` under LoRA."""

    trained: tuple[Tensor, ...]
    trained_experts: tuple[Tensor, ...]
    frozen: tuple[Tensor, ...]
    frozen_experts: tuple[Tensor, ...]
    units: tuple[tuple[Tensor, ...], ...]  # what ZeRO 3 gathers at a time: a layer, the embedding, the head


class RankParts(NamedTuple):
    """Bytes by part on one rank of a pipeline stage."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    recomputed_bytes: int
    gathered_bytes: int


def training_budget(architecture: Architecture, gpu: GPU, plan: TrainingPlan) -> TrainingBudget:
    """The memory of the rank that needs most.

    Parameters are counted tensor by tensor, as the model's checkpoint has them. Returns a budget even where it does not
    fit (see `fits`); raises `HeadcountError` where the model cannot be split so.
    """
    parts = rank_parts(architecture, plan)
    stage = max(range(len(parts)), key=lambda number: (sum(parts[number]), -number))
    return TrainingBudget(
        model=architecture.name,
        gpu=gpu.name,
        plan=plan,
        num_parameters=total_parameters(architecture),
        num_trainable_parameters=_num_trainable(architecture, plan),
        stage=stage,
        in_flight_micro_batches=_in_flight(plan, stage),
        **parts[stage]._asdict(),
        allowance_bytes=allowance_bytes(gpu, plan),
        gpu_memory_bytes=gpu.memory_bytes,
        assumptions=_assumptions(architecture, gpu, plan),
    )


def allowance_bytes(gpu: GPU, plan: TrainingPlan) -> int:
    """What the plan leaves of a GPU for what is not modelled."""
    return math.ceil(plan.allowance * gpu.memory_bytes)


def rank_parts(arch: Architecture, plan: TrainingPlan) -> tuple[RankParts, ...]:
    """By pipeline stage. Raises `ValueError` where the model cannot be split so."""
    _check_split(arch, plan)
    return tuple(_stage(arch, plan, stage) for stage in range(plan.pipeline_parallel_size))


def _stage(arch: Architecture, plan: TrainingPlan, stage: int) -> RankParts:
    held = _held(arch, _parallelism(plan), stage, lora_rank=plan.lora_rank, targets=plan.lora_targets)
    states, activations = _states(held, plan), _activations(arch, plan, stage)
    return RankParts(
        weights_bytes=states.weights_bytes,
        gradients_bytes=states.gradients_bytes,
        optimizer_bytes=states.optimizer_bytes,
        activations_bytes=math.ceil(_in_flight(plan, stage) * activations.kept_bytes + activations.output_bytes),
        recomputed_bytes=math.ceil(activations.recomputed_bytes),
        gathered_bytes=_gathered(held, plan),
    )


def _in_flight(plan: TrainingPlan, stage: int) -> float:
    return micro_batches_in_flight(
        stage,
        pipeline_parallel_size=plan.pipeline_parallel_size,
        virtual_pipeline_stages=plan.virtual_pipeline_stages,
        num_micro_batches=plan.gradient_accumulation,
    )


def _states(held: _Held, plan: TrainingPlan) -> ModelStates:
    """Experts have fewer copies to shard over: data-parallel ranks hold different ones under expert parallelism."""
    found = ModelStates(0, 0, 0)
    precision, optimizer, zero = plan.bytes_of, find_optimizer(plan.optimizer), plan.zero_stage
    dp, copies = plan.data_parallel_size, plan.data_parallel_size // plan.expert_parallel_size
    for tensors, ways in ((held.trained, dp), (_own(held.trained_experts, plan), copies)):
        found += model_states(tensors, precision, optimizer, zero_stage=zero, data_parallel_size=ways)
    for tensors, ways in ((held.frozen, dp), (_own(held.frozen_experts, plan), copies)):
        found += frozen_states(tensors, precision, zero_stage=zero, data_parallel_size=ways, nf4=plan.qlora)
    return found


def _own(tensors: tuple[Tensor, ...], plan: TrainingPlan) -> tuple[Tensor, ...]:
    """One rank's part of the experts under expert parallelism; other tensors as they are."""
    ways = plan.expert_parallel_size
    if ways == 1:
        return tensors
    return tuple(
        replace(tensor, count=tensor.count // ways) if tensor.component == "experts" else tensor for tensor in tensors
    )


def _gathered(held: _Held, plan: TrainingPlan) -> int:
    """Whole weights that pass through a rank.

    ZeRO 3: the largest unit in use with the next one already fetched, and the unit's whole gradient before it is
    sharded. Source: Zhao et al. 2023, "PyTorch FSDP" (arXiv:2304.11277), sections 3.2.1, 3.4. QLoRA: the largest
    matrix unpacked to 16 bits (QLoRA, equation 5).
    """
    unpacked = 0
    if plan.qlora:
        packed = (tensor for unit in held.units for tensor in unit if tensor.quantizable)
        unpacked = max((2 * tensor.rows * tensor.cols for tensor in packed), default=0)
    if plan.zero_stage < 3 or plan.data_parallel_size == 1:
        return unpacked
    precision, sgd, units = plan.bytes_of, find_optimizer("sgd"), tuple(_own(unit, plan) for unit in held.units)
    if plan.data_parallel_size == plan.expert_parallel_size:  # every rank has its own experts, whole
        units = tuple(_by_kind(unit)[0] for unit in units)
    if plan.lora_rank:  # adapters are small beside the frozen unit
        whole = (frozen_states(unit, precision, zero_stage=0, data_parallel_size=1, nf4=plan.qlora) for unit in units)
    else:
        whole = (model_states(unit, precision, sgd) for unit in units)
    return unpacked + max(2 * unit.weights_bytes + unit.gradients_bytes for unit in whole)


def _activations(arch: Architecture, plan: TrainingPlan, stage: int) -> StageActivations:
    names = {item.name for item in fields(ActivationSettings)} - {"precision"}
    settings = ActivationSettings(**{name: getattr(plan, name) for name in names}, precision=plan.bytes_of)
    return stage_activations(arch, _parallelism(plan), stage, settings)


def _parallelism(plan: TrainingPlan) -> Parallelism:
    return Parallelism(
        tensor_parallel_size=plan.tensor_parallel_size,
        pipeline_parallel_size=plan.pipeline_parallel_size,
        pad_vocabulary_to=1,
    )


@lru_cache(maxsize=4096)
def _held(arch: Architecture, parallelism: Parallelism, stage: int, *, lora_rank: int, targets: str) -> _Held:
    layers = kinds_of_layers(arch, parallelism, stage)
    base = _merged(stage_tensors(arch, parallelism, stage, together=True))
    units = [_merged(layer_tensors(arch, parallelism, layer)) for layer in layers]
    units += [(tensor,) for tensor in base if tensor.component in ("embedding", "lm_head", "vision")]
    adapters = _merged(
        replace(tensor, count=count * tensor.count)
        for layer, count in layers.items()
        for tensor in lora_tensors(arch, parallelism, layer, rank=lora_rank, targets=targets)
        if lora_rank
    )
    trained, still = (adapters, base) if lora_rank else (base, ())
    return _Held(*_by_kind(trained), *_by_kind(still), units=tuple(dict.fromkeys(units)))


def _merged(tensors: Iterator[Tensor]) -> tuple[Tensor, ...]:
    """Equal tensors counted together."""
    counts: Counter[Tensor] = Counter()
    for tensor in tensors:
        counts[replace(tensor, count=1)] += tensor.count
    return tuple(replace(tensor, count=count) for tensor, count in counts.items())


def _by_kind(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    experts = tuple(tensor for tensor in tensors if tensor.component == "experts")
    return tuple(tensor for tensor in tensors if tensor.component != "experts"), experts


def _num_trainable(arch: Architecture, plan: TrainingPlan) -> int:
    if not plan.lora_rank:
        return total_parameters(arch)
    whole = _held(arch, Parallelism(pad_vocabulary_to=1), 0, lora_rank=plan.lora_rank, targets=plan.lora_targets)
    return sum(tensor.elements for tensor in (*whole.trained, *whole.trained_experts))


def _refuse_unequal_layers(arch: Architecture) -> None:
    """Activations are known for layers of attention with an MLP."""
    if arch.extra_tensors or not all(_is_modelled(arch, layer) for layer in arch.layers):
        raise HeadcountError(
            f"model {arch.name!r}: training memory is modelled for layers of attention with an MLP, not for SSM "
            "state, shared caches or heads that differ between layers; take another model"
        )


def _is_modelled(arch: Architecture, layer: Layer) -> bool:
    attention = layer.attention
    if layer.state or attention is None or attention.kv_owner is not None:
        return False
    return (attention.num_kv_heads, attention.head_dim) == (arch.num_key_value_heads, arch.head_dim)


def _check_split(arch: Architecture, plan: TrainingPlan) -> None:
    _refuse_unequal_layers(arch)
    experts, chunks = plan.expert_parallel_size, plan.pipeline_parallel_size * plan.virtual_pipeline_stages
    if experts > 1 and not arch.is_moe:
        raise HeadcountError(f"expert_parallel_size is {experts}, but {arch.name} has no experts; leave it at 1")
    if experts > 1 and arch.experts and arch.experts.num_experts % experts:
        raise HeadcountError(f"expert_parallel_size {experts} does not divide the {arch.experts.num_experts} experts")
    if plan.virtual_pipeline_stages > 1 and arch.num_hidden_layers % chunks:
        raise HeadcountError(
            f"the model's {arch.num_hidden_layers} layers do not divide into {chunks} virtual pipeline stages"
        )


def _assumptions(arch: Architecture, gpu: GPU, plan: TrainingPlan) -> tuple[tuple[str, str, str], ...]:
    precision, optimizer = plan.bytes_of, find_optimizer(plan.optimizer)
    kept = "Korthikanti et al. 2022 (arXiv:2205.05198), per term; "
    kept += "fused norms, SwiGLU, loss" if plan.fused_kernels else "kernels as in plain transformers, measured on Llama"
    rows = [
        ("bytes per trained parameter", _bytes_per_parameter(precision, optimizer), precision.source),
        ("optimizer", optimizer.name, optimizer.source),
        ("activations", f"recompute {plan.recompute}, dropout {'on' if plan.dropout else 'off'}", kept),
        (
            "allowance",
            f"{plan.allowance:.0%} of {gpu.name}",
            "ours: CUDA context, NCCL, temporary buffers, fragmentation",
        ),
    ]
    if plan.lora_rank:
        rows.append(("LoRA activations", "as in full fine-tuning", "an upper bound: frozen layers keep fewer inputs"))
    if plan.qlora:
        rows.append(("frozen linear layers", "4.127 bits per weight", "QLoRA (arXiv:2305.14314), section 3"))
    if arch.is_moe:
        rows.append(("routing", "even over experts", "ours; a skewed router needs more activations on some ranks"))
    if arch.vision_parameters:
        rows.append(("vision encoder", "trained, without activations", "sequences are taken as text"))
    if plan.zero_stage >= 2 and plan.pipeline_parallel_size > 1:
        rows.append(("ZeRO 2–3 in a pipeline", "allowed", "DeepSpeed refuses it; PyTorch FSDP does not"))
    if arch.num_hidden_layers % plan.pipeline_parallel_size:
        rows.append(("uneven stages", "left-over layers before the last", "vLLM's rule; Megatron refuses uneven ones"))
    if arch.native_quantization and not plan.qlora:
        rows.append(
            ("checkpoint's quantization", "undone", f"{arch.native_quantization} weights are not trained as such")
        )
    return (*rows, *arch.assumptions)


def _bytes_per_parameter(precision: Precision, optimizer: Optimizer) -> str:
    # A long vector stands for any parameter; a factored optimizer keeps next to nothing of a matrix.
    shape = Tensor("mlp", 10**6, 10**6 if optimizer.factored else 1, quantizable=True)
    states = model_states([shape], precision, optimizer)
    weights, gradients, moments = (
        part / shape.elements for part in (states.weights_bytes, states.gradients_bytes, states.optimizer_bytes)
    )
    return f"{weights:g} weights + {gradients:g} gradients + {moments:.3g} optimizer"
