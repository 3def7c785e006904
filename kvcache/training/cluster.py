"""Which cluster holds a training run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from kvcache.gpus.gpu import GPU
from kvcache.shape.architecture import Architecture
from kvcache.training.activations import RECOMPUTE
from kvcache.training.budget import TrainingBudget, allowance_bytes, rank_parts, training_budget
from kvcache.training.plan import ZERO_STAGES, TrainingPlan

GPUS_PER_NODE = 8
LARGEST_CLUSTER = 1024  # GPUs
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
SEARCHED = (*_SIZES, "expert_parallel_size", "zero_stage")


def remedies(architecture: Architecture, gpu: GPU, plan: TrainingPlan) -> tuple[TrainingPlan, ...]:
    """Plans on the same GPUs that fit, each one change away; of each kind of change the smallest.

    Where no single change is enough, the first of them together that are.
    """
    found: dict[str, TrainingPlan] = {}
    together = plan
    changes = list(_changes(plan))
    for name, value in changes:
        changed = replace(plan, **{name: value})
        if name not in found and _fits(architecture, gpu, changed):
            found[name] = changed
    for name, value in changes if not found else []:
        together = replace(together, **{name: value})
        if _fits(architecture, gpu, together):
            return (together,)
    return tuple(found.values())


def _changes(plan: TrainingPlan) -> Iterator[tuple[str, Any]]:
    """(field, value), what costs least time first."""
    if not plan.flash_attention:
        yield "flash_attention", True
    if plan.tensor_parallel_size > 1 and not plan.sequence_parallel:
        yield "sequence_parallel", True
    if plan.data_parallel_size > 1:
        yield from (("zero_stage", stage) for stage in _zero_stages(plan.pipeline_parallel_size, plan.zero_stage + 1))
    yield from (("recompute", name) for name in RECOMPUTE[RECOMPUTE.index(plan.recompute) + 1 :])
    yield from (("micro_batch_size", size) for size in _halves(plan.micro_batch_size))
    if plan.optimizer == "adamw":
        yield "optimizer", "adamw-8bit"


def smallest_cluster(
    architecture: Architecture,
    gpu: GPU,
    plan: TrainingPlan,
    *,
    max_gpus: int = LARGEST_CLUSTER,
    fixed: frozenset[str] = frozenset(),
) -> TrainingBudget | None:
    """The fewest GPUs that hold the plan, all else as in it, or None where `max_gpus` do not.

    Sizes are 1, 2, 4, then whole nodes of 8. Searched are the fields in `SEARCHED` but for those named in `fixed`:
    tensor parallelism within a node, pipelines of equal stages, data parallelism, expert parallelism, the ZeRO stage (2
    or 3 only without a pipeline, as DeepSpeed has it). Among layouts of one size the lowest ZeRO stage wins, then fewer
    pipeline stages, smaller tensor parallelism, smaller expert parallelism.
    """
    drawn = _splits(architecture, plan, max_gpus, fixed)
    splits = [split for split in drawn if _fits(architecture, gpu, split, gathered=False)]
    for num_gpus in _cluster_sizes(architecture, gpu, plan, max_gpus, fixed) if splits else ():
        for split in splits:
            candidate = _on(split, num_gpus, fixed)
            if candidate is not None and _fits(architecture, gpu, candidate):
                return training_budget(architecture, gpu, candidate)
    return None


def _fits(arch: Architecture, gpu: GPU, plan: TrainingPlan, *, gathered: bool = True) -> bool:
    """Whether every rank holds its parts; `gathered` weights alone may be fewer on fewer data-parallel ranks."""
    try:
        needed = max(sum(parts) - (0 if gathered else parts.gathered_bytes) for parts in rank_parts(arch, plan))
    except ValueError:  # the model cannot be split so
        return False
    return needed + allowance_bytes(gpu, plan) <= gpu.memory_bytes


def _cluster_sizes(
    arch: Architecture, gpu: GPU, plan: TrainingPlan, max_gpus: int, fixed: frozenset[str]
) -> Iterator[int]:
    """From the size that holds weights, gradients with optimizer states if they divide evenly."""
    unit = math.prod(getattr(plan, name) for name in _SIZES if name in fixed)
    single: dict[str, Any] = dict.fromkeys((*SEARCHED, "virtual_pipeline_stages"), 1)
    alone = replace(plan, **single)
    states = sum(rank_parts(arch, alone)[0][:3])
    fewest = math.ceil(states / (gpu.memory_bytes - allowance_bytes(gpu, plan)))
    if set(_SIZES) <= fixed:
        yield from [unit] * (unit <= max_gpus)
        return
    for size in range(unit, max_gpus + 1, unit):
        whole_nodes = size in (1, 2, 4) or size % GPUS_PER_NODE == 0
        if size >= fewest and (whole_nodes or size == unit):
            yield size


def _splits(arch: Architecture, plan: TrainingPlan, max_gpus: int, fixed: frozenset[str]) -> Iterator[TrainingPlan]:
    """Every split of the model, the plainest first, on as many data-parallel ranks as there may be."""
    layers, doubled = arch.num_hidden_layers, [2**power for power in range(11)]
    equal = [size for size in range(1, layers + 1) if layers % size == 0]
    choices: dict[str, Sequence[int]] = {
        "zero_stage": ZERO_STAGES,
        # A prime number of layers has no equal stages.
        "pipeline_parallel_size": equal if len(equal) > 2 else [size for size in doubled if size <= layers],
        "tensor_parallel_size": (1, 2, 4, GPUS_PER_NODE),
        "expert_parallel_size": [size for size in doubled if arch.experts.num_experts % size == 0]
        if arch.experts
        else [1],
    }
    choices |= {name: [getattr(plan, name)] for name in choices if name in fixed}
    for values in product(*choices.values()):
        sizes: dict[str, Any] = dict(zip(choices, values, strict=True))
        one = sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"]
        ways = sizes["expert_parallel_size"]
        copies = plan.data_parallel_size if "data_parallel_size" in fixed else max_gpus // one // ways * ways
        if "zero_stage" not in fixed and sizes["zero_stage"] not in _zero_stages(sizes["pipeline_parallel_size"]):
            continue
        if 0 < copies * one <= max_gpus:
            try:
                yield replace(plan, data_parallel_size=copies, **sizes)
            except ValueError:  # such as virtual stages without a pipeline
                continue


def _on(split: TrainingPlan, num_gpus: int, fixed: frozenset[str]) -> TrainingPlan | None:
    """The split on that many GPUs, or None where it does not go into them, or shards over one rank."""
    copies, rest = divmod(num_gpus, split.tensor_parallel_size * split.pipeline_parallel_size)
    if "data_parallel_size" in fixed and copies != split.data_parallel_size:
        return None
    idle = split.zero_stage > 0 and copies == 1 and "zero_stage" not in fixed
    if rest or not copies or copies % split.expert_parallel_size or idle:
        return None
    return replace(split, data_parallel_size=copies)


def _zero_stages(pipeline_parallel_size: int, first: int = 0) -> list[int]:
    """DeepSpeed refuses gradient or weight sharding in a pipeline (runtime/pipe/engine.py)."""
    return [stage for stage in ZERO_STAGES if stage >= first and (stage < 2 or pipeline_parallel_size == 1)]


def _halves(size: int) -> Iterator[int]:
    """Smaller micro-batches, the largest first."""
    while size > 1:
        size //= 2
        yield size
