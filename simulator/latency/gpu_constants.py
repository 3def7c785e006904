"""What share of its peaks a GPU family reaches, from one TOML file each."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from files.documents import Json, ReadJson
from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.releases import SLOWER_EXPERTS
from kvcache.shape.layer import Attention
from simulator.latency.model import LogError

FOLDER = Path(__file__).parent / "constants"
FALLBACK, GENERAL = "generic", "general"
WIDE = 128  # head dim
MEASURED = "measured-"  # begins the kinds of deployments whose runs were fitted
DENSE = "dense"  # the kind whose errors stand in [log_error] itself
LATENCIES, OPEN_TTFT = ("tpot", "ttft"), "open_ttft"
OF_HOST = (
    "eager_layer_s", "eager_decode_layer_s", "piecewise_decode_layer_s", "host_base_s", "host_sequence_s",
    "step_gap_s", "step_gap_sequence_s", "ingress_request_s", "ingress_token_s", "ingress_s", "stream_token_s",
)  # fmt: skip
"""What one core of the server's CPU takes."""
NOT_CONSTANTS = (
    "name", "is_measured", "covariance", "tpot_log_error", "ttft_log_error", "log_errors_by_kind",
    "open_ttft_log_errors", "sources",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Constants:
    """One GPU's constants. Shares are of the peaks in `kvcache/gpus`; times are in seconds.

    Mappings go by what the multiply computes in (`gemm_*_share`), by the weight format (`expert_*`),
    by head dim (`prefill_attention_compute_share`) or by bits per cached element (`decode_attention_bandwidth_share`,
    with `-latent` of latent attention, with `-wide` of heads beyond 128, where these read otherwise).
    """

    name: str  # of the file
    is_measured: bool
    covariance: str  # of a file in simulator/latency/covariances; GENERAL: not that of a fit to this GPU's runs
    tpot_log_error: LogError
    ttft_log_error: LogError
    log_errors_by_kind: Mapping[str, tuple[LogError, LogError]]  # TPOT, TTFT of deployments that err otherwise
    open_ttft_log_errors: Mapping[str, LogError]  # of users' TTFT, by kind, where it was judged apart
    sources: Mapping[str, tuple[str, str]]  # constant: value with unit, source

    gemm_bandwidth_share: Mapping[str, float]
    gemm_compute_share: Mapping[str, float]
    gemm_start_s: float
    gemm_depth_s: float
    quantized_gemm_start_factor: float
    grouped_gemm_start_factor: float
    row_wise_tile_factor: Mapping[str, float]
    gemm_overlap_power: float
    glue_s: float
    activation_bytes_per_element: float
    decode_attention_bandwidth_share: Mapping[str, float]
    decode_attention_compute_share: float
    decode_attention_start_s: float
    decode_attention_sequence_s: float
    prefill_attention_compute_share: Mapping[str, float]
    prefill_attention_extra_positions: float
    state_bandwidth_share: float
    state_scan_compute_share: float
    state_start_s: float
    all_reduce_start_s: Mapping[str, float]
    all_reduce_start_growth: float
    all_reduce_one_stage_share: Mapping[str, float]
    all_reduce_second_stage_s: Mapping[str, float]
    all_reduce_link_share: Mapping[str, float]
    all_reduce_rank_exponent: Mapping[str, float]
    expert_bandwidth_share: Mapping[str, float]
    expert_read_s: Mapping[str, float]
    expert_overlap_power: Mapping[str, float]
    expert_tile_reads: Mapping[str, float]
    expert_compute_share: Mapping[str, float]
    expert_activation_bytes_per_element: Mapping[str, float]
    expert_start_s: Mapping[str, float]
    older_expert_start_factor: float
    distinct_expert_exponent: float
    sampling_start_s: float
    sampling_bytes_per_logit: float
    sorting_start_s: float
    sorting_bytes_per_logit: float
    eager_layer_s: float
    eager_decode_layer_s: float
    piecewise_eager_share: float
    piecewise_decode_layer_s: float
    host_base_s: float
    host_sequence_s: float
    step_gap_s: float
    step_gap_sequence_s: float
    ingress_request_s: float
    ingress_token_s: float
    ingress_s: float
    stream_token_s: float

    def log_errors(self, kind: str) -> tuple[LogError, LogError]:
        """Of TPOT, TTFT, for a kind of deployment; those of the file where it does not tell the kind apart."""
        return self.log_errors_by_kind.get(kind, (self.tpot_log_error, self.ttft_log_error))

    def open_ttft_log_error(self, kind: str) -> LogError:
        """Of users' TTFT; that of closed loops where no load at random was at hand."""
        return self.open_ttft_log_errors.get(kind.removeprefix(MEASURED), self.log_errors(kind)[1])

    def in_release(self, vllm_version: str) -> "Constants":
        """The constants of a release of vLLM: experts started slower in older ones."""
        if not SLOWER_EXPERTS.holds_in(vllm_version):
            return self
        starts = {key: start_s * self.older_expert_start_factor for key, start_s in self.expert_start_s.items()}
        return replace(self, expert_start_s=starts)

    def on_host(self, speed: float) -> "Constants":
        """The constants of a server whose CPU cores are so many times as fast as those that were measured."""
        if speed == 1:
            return self
        return replace(self, **{name: getattr(self, name) / speed for name in OF_HOST})

    def decode_attention_share_of(self, kv_cache_dtype: str, shape: Attention) -> float:
        """Of the peak bandwidth, at which decode reads a cache of this type."""
        bits = str(cached_bits(kv_cache_dtype))
        kind = "latent" if shape.latent is not None else "wide" if shape.head_dim > WIDE else ""
        known = self.decode_attention_bandwidth_share
        return known.get(f"{bits}-{kind}", known[bits])

    def prefill_attention_share_at(self, head_dim: int) -> float:
        """The share at this head dim, on straight lines between those given, flat beyond."""
        known = sorted((int(key), share) for key, share in self.prefill_attention_compute_share.items())
        below = max((point for point in known if point[0] <= head_dim), default=known[0])
        above = min((point for point in known if point[0] >= head_dim), default=known[-1])
        if above[0] == below[0]:
            return below[1]
        return below[1] + (above[1] - below[1]) * (head_dim - below[0]) / (above[0] - below[0])


def cached_bits(kv_cache_dtype: str) -> int:
    """Of an element of the KV cache."""
    return 8 if kv_cache_dtype.startswith(("fp8", "int8")) else 16


def constants_for(gpu: GPU) -> Constants:
    """The constants of this GPU's own file, else its family's, else the fallback."""
    for stem in (gpu.name, gpu.family, FALLBACK):
        if (FOLDER / f"{stem}.toml").is_file():
            return _read(stem, gpu.name)
    raise AssertionError("the fallback constants are part of the package")


RUNS, FEW_RUNS, KERNELS, SPECIFICATIONS = "runs measured", "few runs", "kernels measured", "specifications only"


def measured_text(gpu: GPU) -> str:
    """What the GPU's step times rest on."""
    constants = constants_for(gpu)
    if constants.is_measured:
        return FEW_RUNS if constants.covariance == GENERAL else RUNS
    return KERNELS if has_measured_times(gpu) else SPECIFICATIONS


def has_measured_times(gpu: GPU) -> bool:
    """Whether whole runs, or at least kernels, were measured on this very GPU."""
    for stem in (gpu.name, gpu.family):
        if (FOLDER / f"{stem}.toml").is_file():
            content = _content(stem)
            return gpu.name in (*content.get("measured_gpus", ()), *content.get("kernel_table_gpus", ()))
    return False


@cache
def _read(stem: str, gpu_name: str) -> Constants:
    """One file over those it extends. Raises ValueError on a constant that is unknown, missing or without a source."""
    own = _content(stem)
    entries = _entries(stem)
    names = {item.name for item in fields(Constants)} - set(NOT_CONSTANTS)
    for problem, found in (("unknown", set(entries) - names), ("missing", names - set(entries))):
        if found:
            raise HeadcountError(
                f"simulator/latency/constants/{stem}.toml: {problem} constants {', '.join(sorted(found))}"
            )
    for name, entry in entries.items():
        if not (str(entry.get("source", "")).strip() and str(entry.get("unit", "")).strip()):
            raise HeadcountError(
                f"simulator/latency/constants/{stem}.toml: {name} needs a unit with a source; add them"
            )
    errors = _inherited(stem, "log_error")
    is_measured = gpu_name in own.get("measured_gpus", ())
    judged = {} if "log_error" in own else {"groups": 0}  # no load at random was measured on another's GPU
    return Constants(
        name=stem,
        is_measured=is_measured,
        covariance=str(own.get("covariance", GENERAL)) if is_measured else GENERAL,
        tpot_log_error=LogError(**errors["tpot"]),
        ttft_log_error=LogError(**errors["ttft"]),
        log_errors_by_kind={
            kind: (LogError(**both["tpot"]), LogError(**both["ttft"]))
            for kind, both in errors.items()
            if kind not in (*LATENCIES, OPEN_TTFT)
        },
        open_ttft_log_errors={
            kind: LogError(**both[OPEN_TTFT] | judged)
            for kind, both in {DENSE: errors, **errors}.items()
            if kind not in (*LATENCIES, OPEN_TTFT) and OPEN_TTFT in both
        },
        sources={name: (_text(item["value"], item["unit"]), item["source"]) for name, item in entries.items()},
        **{name: entry["value"] for name, entry in entries.items()},
    )


@cache
def _content(stem: str) -> Json:
    return tomllib.loads((FOLDER / f"{stem}.toml").read_text(encoding="utf-8"))


def _entries(stem: str) -> Json:
    content = _content(stem)
    inherited = _entries(content["extends"]) if "extends" in content else {}
    own = {
        name: _spelled_out(entry, content.get("measurements", {}))
        for name, entry in content.get("constants", {}).items()
    }
    return {**inherited, **own}


def _spelled_out(entry: ReadJson, measurements: Mapping[str, str]) -> Json:
    """The entry with its source's words in capitals replaced by what they stand for."""
    source = str(entry.get("source", ""))
    for word, meaning in measurements.items():
        source = re.sub(rf"\b{word}\b", meaning, source)
    return {**entry, "source": source}


def _inherited(stem: str, table: str) -> Json:
    """The file's own table, else that of the file it extends; nothing where none has it."""
    content = _content(stem)
    if table in content:
        return dict(content[table])
    return _inherited(content["extends"], table) if "extends" in content else {}


def _text(value: float | Mapping[str, float], unit: str) -> str:
    """A constant as people read it: times in ms."""
    if unit.startswith("s "):
        factor, unit = 1e3, f"m{unit}"
    else:
        factor = 1.0
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {factor * number:g}" for key, number in value.items()) + f" {unit}"
    return f"{factor * value:g} {unit}"
