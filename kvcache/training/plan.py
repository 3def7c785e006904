"""How a model is to be trained."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import get_type_hints

from files.arguments import check_argument
from files.errors import HeadcountError
from kvcache.training.activations import RECOMPUTE
from kvcache.training.states import LORA_TARGETS, Precision, find_optimizer, find_precision

ZERO_STAGES = (0, 1, 2, 3)
_COUNTS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "expert_parallel_size",
    "data_parallel_size",
    "virtual_pipeline_stages",
    "micro_batch_size",
    "sequence_length",
    "gradient_accumulation",
)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a model is trained.

    GPUs are tensor × pipeline × data parallel; expert parallelism reuses data-parallel ranks, so that its size divides
    theirs. `gradient_accumulation` counts the micro-batches of one optimizer step per data-parallel rank; they are what
    a pipeline is filled with. `lora_rank` 0 trains every weight. `allowance` is the share of a GPU's memory left for
    what is not modelled. `ValueError` where a value is unknown or out of range.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    expert_parallel_size: int = 1
    data_parallel_size: int = 1
    virtual_pipeline_stages: int = 1
    zero_stage: int = 0
    precision: str = "bf16-mixed"
    fp32_gradients: bool = False
    optimizer: str = "adamw"
    micro_batch_size: int = 1
    sequence_length: int = 4096
    gradient_accumulation: int = 1
    recompute: str = "none"
    sequence_parallel: bool = False
    flash_attention: bool = True
    dropout: bool = False
    fused_kernels: bool = True
    lora_rank: int = 0
    lora_targets: str = "all-linear"
    qlora: bool = False
    allowance: float = 0.1

    def __post_init__(self) -> None:
        for name, kind in _types().items():
            check_argument(name, getattr(self, name), kind)
        for name in _COUNTS:
            if not 1 <= getattr(self, name) < 2**31:
                raise HeadcountError(f"{name} is {getattr(self, name):,}, must be at least 1, below 2^31")
        find_precision(self.precision)
        find_optimizer(self.optimizer)
        for name, known in (("recompute", RECOMPUTE), ("lora_targets", LORA_TARGETS), ("zero_stage", ZERO_STAGES)):
            if getattr(self, name) not in known:
                raise HeadcountError(f"no {name} {str(getattr(self, name))[:60]!r}; take {', '.join(map(str, known))}")
        for problem in _problems(self):
            raise HeadcountError(problem)

    @property
    def num_gpus(self) -> int:
        """Ranks of the whole cluster."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def global_batch_size(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch_size * self.gradient_accumulation * self.data_parallel_size

    @property
    def bytes_of(self) -> Precision:
        """The precision's bytes, with the gradients' format as asked for."""
        found = find_precision(self.precision)
        return replace(found, gradient_bytes=4) if self.fp32_gradients else found

    @property
    def layout(self) -> str:
        """`TP 8, PP 2, DP 4, ZeRO 1`."""
        experts = f", EP {self.expert_parallel_size}" if self.expert_parallel_size > 1 else ""
        return (
            f"TP {self.tensor_parallel_size}, PP {self.pipeline_parallel_size}, DP {self.data_parallel_size}{experts}, "
            f"ZeRO {self.zero_stage}"
        )


def _problems(plan: TrainingPlan) -> Iterator[str]:
    if not 0 <= plan.allowance < 1:
        yield f"allowance is {plan.allowance}, must be at least 0, below 1"
    if plan.lora_rank < 0:
        yield f"lora_rank is {plan.lora_rank}, must be at least 0"
    if plan.qlora and not plan.lora_rank:
        yield "qlora trains adapters on packed weights; give a lora_rank too, such as 16"
    if plan.data_parallel_size % plan.expert_parallel_size:
        yield (
            f"expert_parallel_size {plan.expert_parallel_size} does not divide data_parallel_size "
            f"{plan.data_parallel_size}, whose ranks it shares the experts out to"
        )
    if plan.virtual_pipeline_stages > 1 and plan.pipeline_parallel_size == 1:
        yield f"virtual_pipeline_stages {plan.virtual_pipeline_stages} needs a pipeline; raise pipeline_parallel_size"
    if plan.virtual_pipeline_stages > 1 and plan.gradient_accumulation % plan.pipeline_parallel_size:
        yield (
            f"virtual_pipeline_stages needs gradient_accumulation {plan.gradient_accumulation} to be a multiple of "
            f"pipeline_parallel_size {plan.pipeline_parallel_size}"
        )


@cache
def _types() -> dict[str, object]:
    return get_type_hints(TrainingPlan)
