"""How far a predicted pool of KV blocks may be off."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from files.documents import ReadJson
from files.errors import HeadcountError
from kvcache.formats.quantization import QuantizationScheme
from kvcache.gpus.gpu import GPU
from kvcache.memory.settings import MemorySettings
from kvcache.memory.terms import is_blackwell_12
from kvcache.parallelism import Parallelism
from kvcache.releases import (
    GRAPH_ESTIMATE_TAKES_IN_A_PASS,
    NEWER_THAN_LOGS,
    OLDER_THAN_LOGS,
    SAMPLER_WITHOUT_SORT,
)
from kvcache.shape.architecture import Architecture

RESIDUALS = Path(__file__).parent / "memory_residuals.toml"
LEVEL = 0.9
GRAPH_PASS = 0.15  # relative standard deviation of `graph_pass_bytes`, from three pools on RTX PRO 6000
_BATCHES, _SEQUENCES = (2048, 8192), (128, 1024)
_FORMATS = ("none", "bf16", "fp16", "int8", "fp8", "w4a16", "gptq")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviations of the memory terms: relative ones of the term, the other in bytes per GPU."""

    weights: float = 0.0
    activation: float = 0.0
    non_torch_gib: float = 0.0
    cuda_graph: float = 0.0
    source: str = ""

    def bytes_of(self, terms: "Terms") -> float:
        """Standard deviation of their sum; the terms err apart from each other."""
        return math.hypot(
            self.weights * terms.weights_bytes,
            self.activation * terms.activation_peak_bytes,
            self.non_torch_gib * 2**30,
            self.cuda_graph * (terms.cuda_graph_bytes - terms.graph_pass_bytes),
        )


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one GPU holds beside KV blocks."""

    weights_bytes: int
    activation_peak_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    graph_pass_bytes: int = 0  # of the CUDA graphs': what their estimate has too much
    adapter_bytes: int = 0  # slots for LoRA adapters


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """What `validation/constants/memory.py` found: the spread where it was measured, how it grows elsewhere."""

    measured: Spread
    beyond: Mapping[str, Spread]
    half_width_sds: float  # half a 90 % interval, in standard deviations

    def sd_bytes(self, terms: Terms, conditions: Sequence[str]) -> float:
        return math.hypot(
            GRAPH_PASS * terms.graph_pass_bytes,
            self.measured.bytes_of(terms),
            *(self.beyond[condition].bytes_of(terms) for condition in conditions),
        )

    def half_width_bytes(self, terms: Terms, conditions: Sequence[str]) -> float:
        """Half of the 90 % interval of what is left for KV blocks on one GPU."""
        return self.half_width_sds * self.sd_bytes(terms, conditions)


@cache
def shipped_residuals() -> Residuals:
    """Raises `ValueError` where the file's conditions are not those of `unmeasured_conditions`."""
    return read_residuals(tomllib.loads(RESIDUALS.read_text(encoding="utf-8")))


def read_residuals(found: ReadJson) -> Residuals:
    """From the content of `memory_residuals.toml`."""
    beyond = {name: Spread(**spread) for name, spread in found["beyond"].items()}
    if set(beyond) != set(CONDITIONS):
        raise HeadcountError(f"{RESIDUALS.name}: conditions {sorted(beyond)}, must be {sorted(CONDITIONS)}; correct it")
    return Residuals(
        measured=Spread(**found["measured"]), beyond=beyond, half_width_sds=found["interval"]["half_width_sds"]
    )


CONDITIONS = {
    "gpu": "a GPU other than the H100 80GB",
    "older_release": "a release before 0.11",
    "newer_release": "a release after 0.20 (no start-up log shows its graph estimate or model runner)",
    "ranks": "more than four ranks, or several pipeline stages",
    "replicas": "data or expert parallelism (their graphs and buffers vary without bound)",
    "packed_experts": "experts in a packed format",
    "packed_experts_on_ada": "experts in a packed format on an Ada GPU (pools on L4 were 27 to 55 % smaller)",
    "older_sampler": "a sampler before 0.17 that may sort or not (logs of H100 alone tell)",
    "format": "a weight format without start-up logs",
    "batch": "max_num_batched_tokens outside 2,048–8,192 or max_num_seqs outside 128–1,024",
    "compressed": "compressed attention (the one server that said so left half as much for KV blocks as counted)",
    "latent": "latent attention (logs of two small models show weights 0.1–1.1 % above the count)",
    "state_layers": "SSM / linear-attention layers",
    "graphs_of_state_layers": "graphs of such layers since 0.26 (their estimate may take in a part of the pass)",
}


def unmeasured_conditions(
    architecture: Architecture,
    gpu: GPU,
    parallelism: Parallelism,
    scheme: QuantizationScheme,
    settings: MemorySettings,
) -> tuple[str, ...]:
    """Which keys of `CONDITIONS` hold: each widens the interval."""
    packed = scheme.weight_bits < 16
    ranks = parallelism.tensor_parallel_size
    packed_experts = architecture.is_moe and packed
    holds = {
        "gpu": gpu.name != "h100-sxm",
        "older_release": OLDER_THAN_LOGS.holds_in(settings.vllm_version),
        "newer_release": NEWER_THAN_LOGS.holds_in(settings.vllm_version),
        "ranks": ranks > 4 or parallelism.pipeline_parallel_size > 1,
        "replicas": parallelism.data_parallel_size > 1 or parallelism.enable_expert_parallel,
        "packed_experts": packed_experts,
        "packed_experts_on_ada": packed_experts and gpu.family == "ada",
        "older_sampler": (
            not SAMPLER_WITHOUT_SORT.holds_in(settings.vllm_version) and (gpu.name != "h100-sxm" or packed_experts)
        ),
        "format": not architecture.is_moe and scheme.name not in _FORMATS,
        "batch": not (
            _BATCHES[0] <= settings.max_num_batched_tokens <= _BATCHES[1]
            and _SEQUENCES[0] <= settings.max_num_seqs <= _SEQUENCES[1]
        ),
        "compressed": architecture.is_compressed,
        "latent": architecture.is_mla,
        "state_layers": architecture.state_space is not None,
        "graphs_of_state_layers": (
            architecture.state_space is not None
            and GRAPH_ESTIMATE_TAKES_IN_A_PASS.holds_in(settings.vllm_version)
            and not is_blackwell_12(gpu)
        ),
    }
    return tuple(condition for condition, held in holds.items() if held)
