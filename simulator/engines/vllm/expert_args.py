"""vLLM's arguments of expert parallelism over data-parallel ranks: how tokens move, how experts are balanced."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from files.documents import parse_json
from files.errors import HeadcountError
from files.names import check_names
from files.schema import Count, Strict, typed
from kvcache.memory.all_to_all import HIGH_THROUGHPUT, LOW_LATENCY
from simulator.engines.argument import MEMORY, SCHEDULER, STEP_TIME, argument
from simulator.engines.values import Switch, Text, WholeNumber
from simulator.engines.vllm.adapter_args import AdapterArgs

if TYPE_CHECKING:
    from kvcache.shape.architecture import Architecture

GATHER: Final = "allgather_reducescatter"
DEEPEP_HIGH_THROUGHPUT, DEEPEP_LOW_LATENCY = "deepep_high_throughput", "deepep_low_latency"
DEEPEP_AUTO: Final = "deepep_auto"  # SGLang's: the second for decodes, the first for prompts
MEASURED: Final = (GATHER, DEEPEP_HIGH_THROUGHPUT, DEEPEP_LOW_LATENCY)
# vLLM's All2AllBackend, config/parallel.py, of 0.9 to 0.33. It takes GATHER for the first two since 0.20.
BACKENDS: Final = (
    "naive", "pplx", *MEASURED, "deepep_v2", "mori", "mori_high_throughput", "mori_low_latency", "moonep", "nixl_ep",
    "flashinfer_all2allv", "flashinfer_nvlink_two_sided", "flashinfer_nvlink_one_sided",
)  # fmt: skip
MOST_REDUNDANT: Final = 4096
BATCHED_TOKENS: Final = 256  # in a step by default, where every rank keeps room for all (vLLM 0.33 config/scheduler.py)


@dataclass(frozen=True)
class EPLB:
    """What of `--eplb-config` decides an answer: the other keys say when experts move."""

    num_redundant_experts: int = 0

    def __str__(self) -> str:
        """As vLLM takes it."""
        return json.dumps({"num_redundant_experts": self.num_redundant_experts})


class _Config(Strict, frozen=True, kw_only=True):
    """vLLM's EPLBConfig, config/parallel.py of 0.33."""

    num_redundant_experts: Count = 0
    window_size: int | None = None
    step_interval: int | None = None
    log_balancedness: bool = False
    log_balancedness_interval: int | None = None
    use_async: bool = True
    policy: str = "default"
    communicator: str | None = None
    enable_migration_batching: bool = False


@dataclass(frozen=True)
class EPLBConfig:
    """vLLM's JSON object."""

    name: str = "JSON"

    def read(self, given: object) -> EPLB:
        """Raises HeadcountError for anything else."""
        if isinstance(given, EPLB):
            return given
        settings = given if isinstance(given, dict) else parse_json(str(given), "the text")
        return EPLB(typed(settings, _Config, "").num_redundant_experts)


@dataclass(frozen=True, kw_only=True)
class ExpertArgs(AdapterArgs):
    """Without effect on a model without experts, but for the interval of prompts."""

    tensor_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool

    all2all_backend: str = argument(
        Text(),
        "How tokens reach the experts on other data-parallel ranks: allgather_reducescatter, deepep_high_throughput or "
        "deepep_low_latency.",
        decides=STEP_TIME,
        default=GATHER,
    )
    enable_eplb: bool = argument(
        Switch(),
        "Expert parallel load balancing (EPLB): experts are placed, and busy ones repeated, by how often they are "
        "chosen.",
        decides=MEMORY,
        default=False,
    )
    eplb_config: EPLB | None = argument(
        EPLBConfig(),
        "As in vLLM; it sets how many experts of each layer are repeated, over all ranks: "
        "'{\"num_redundant_experts\": 32}'. Needs --enable-eplb.",
        decides=MEMORY,
        default_text="none",
    )
    prefill_schedule_interval: int = argument(
        WholeNumber(1, most=4096),
        "Steps from one that computes prompts to the next while others decode: data-parallel ranks then compute "
        "prompts in the same steps.",
        decides=SCHEDULER,
        default=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names([self.all2all_backend], BACKENDS, "all2all_backend")
        if self.num_redundant_experts > MOST_REDUNDANT:
            raise HeadcountError(f"num_redundant_experts is {self.num_redundant_experts:,}, above {MOST_REDUNDANT:,}")
        if self.num_redundant_experts and not self.enable_eplb:
            raise HeadcountError("--eplb-config with redundant experts needs --enable-eplb; give both or neither")

    @property
    def num_redundant_experts(self) -> int:
        """Of each layer, over all ranks."""
        return self.eplb_config.num_redundant_experts if self.eplb_config else 0

    @property
    def dispatches_in_batches(self) -> bool:
        """Whether every rank keeps room for as many tokens as any may send to each expert."""
        of_ranks = self.enable_expert_parallel and self.data_parallel_size > 1
        return of_ranks and self.all2all_backend in (DEEPEP_LOW_LATENCY, "nixl_ep")

    @property
    def dispatch_rules_out_graphs(self) -> bool:
        """vLLM then runs without CUDA graphs (config/compilation.py, set_splitting_ops_for_v1)."""
        return self.all2all_backend == DEEPEP_HIGH_THROUGHPUT and self.data_parallel_size > 1

    @property
    def all_to_all_buffers(self) -> str:
        """Whose buffers each rank allocates: a name of `kvcache.memory.all_to_all`; "" without."""
        of_ranks = self.enable_expert_parallel and self.data_parallel_size > 1
        names = {DEEPEP_LOW_LATENCY: LOW_LATENCY, DEEPEP_HIGH_THROUGHPUT: HIGH_THROUGHPUT}
        return names.get(self.all2all_backend, "") if of_ranks else ""

    def check_balancing(self, model: "Architecture") -> None:
        """Raise HeadcountError where vLLM would not start with EPLB."""
        ways = (self.tensor_parallel_size or 1) * self.data_parallel_size
        if not self.enable_eplb:
            return
        if model.experts is None or not self.enable_expert_parallel or ways == 1:
            raise HeadcountError(
                "--enable-eplb needs a MoE model, --enable-expert-parallel and more than one GPU; leave it out"
            )
        left = (model.experts.num_experts + self.num_redundant_experts) % ways
        if left:
            fits = self.num_redundant_experts + ways - left
            raise HeadcountError(
                f"{ways} GPUs do not share {model.experts.num_experts} experts and {self.num_redundant_experts} "
                f"redundant ones evenly, as EPLB needs; give --eplb-config '{EPLB(fits)}'"
            )
