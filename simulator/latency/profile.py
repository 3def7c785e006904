"""What was learned of one deployment's or one GPU's step times."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from files.documents import ReadJson
from files.errors import HeadcountError
from kvcache.formats.kv_cache_dtype import one_spelling
from simulator.engines.engines import TITLES, VLLM, engine_of
from simulator.latency.gpu_constants import NOT_CONSTANTS, Constants
from simulator.latency.model import LogError, ServedModel
from simulator.latency.step_time import FloatArray

STEP_SCALE = "step_scale"  # natural logarithm of what every time of a step on the GPU is multiplied by
OFFSETS = {"ingress_offset_s": "ingress_s", "step_gap_offset_s": "step_gap_s"}  # term: constant it adds seconds to
# What a time that grows with the rest divides, or multiplies, when all of a step's GPU time is scaled.
_SCALED_DOWN = (
    "gemm_bandwidth_share", "gemm_compute_share", "decode_attention_bandwidth_share",
    "decode_attention_compute_share", "prefill_attention_compute_share", "all_reduce_link_share",
    "all_reduce_one_stage_share", "expert_bandwidth_share", "expert_compute_share", "state_bandwidth_share",
    "state_scan_compute_share",
)  # fmt: skip
_SCALED_UP = (
    "gemm_start_s", "gemm_depth_s", "glue_s", "decode_attention_start_s", "decode_attention_sequence_s",
    "state_start_s", "all_reduce_start_s", "all_reduce_second_stage_s", "expert_start_s", "expert_read_s",
    "expert_activation_bytes_per_element", "sampling_start_s", "sampling_bytes_per_logit", "sorting_start_s",
    "eager_layer_s",
    "eager_decode_layer_s", "piecewise_decode_layer_s", "host_base_s", "host_sequence_s", "step_gap_s",
    "step_gap_sequence_s",
)  # fmt: skip

_SETTINGS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "quantization",
    "kv_cache_dtype", "enforce_eager", "async_scheduling", "decode_context_parallel_size",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Term:
    """One fitted number: the logarithm of a constant's multiplier, or seconds that are added (`OFFSETS`)."""

    name: str  # of a field of Constants, or STEP_SCALE, or of OFFSETS
    prior_mean: float
    prior_sd: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class Range:
    """What the data covered, both ends included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise HeadcountError(f"a range begins at {self.low:g} and ends at {self.high:g}; exchange them")

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True, eq=False)
class LatencyProfile:
    """The posterior over terms, how far it was off on data that it did not see, what it was learned from.

    `ranges` are of steps: tokens, sequences, decode_context, prefill_tokens. `settings` name what all data had in
    common: engine, model, tensor_parallel_size, quantization, kv_cache_dtype. `data` is the fingerprint: sha256 of the
    inputs, numbers of runs, requests, steps, the engine's release.
    """

    name: str
    gpu: str
    base: str  # name of the constants that the multipliers apply to
    base_digest: str
    terms: tuple[Term, ...]
    covariance: FloatArray  # [terms, terms] of the posterior
    tpot_log_error: LogError
    ttft_log_error: LogError
    held_out: Mapping[str, float] = field(default_factory=dict)  # e.g. tpot_median_percent
    ranges: Mapping[str, Range] = field(default_factory=dict)
    settings: ReadJson = field(default_factory=dict)
    data: ReadJson = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise HeadcountError(f"profile '{self.name}' holds {', '.join(twice)} twice")
        if not np.allclose(self.covariance, self.covariance.T):
            raise HeadcountError(f"profile '{self.name}' has a covariance that is not symmetric")
        if names and np.linalg.eigvalsh(self.covariance).min() < -1e-9 * max(np.abs(self.covariance).max(), 1e-9):
            raise HeadcountError(f"profile '{self.name}' has a covariance with a negative variance")

    @property
    def mean(self) -> FloatArray:
        return np.array([term.mean for term in self.terms])

    @property
    def sd(self) -> FloatArray:
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def constants(self, base: Constants, values: FloatArray | None = None) -> Constants:
        """The fitted constants, or those at other `values` of the terms."""
        chosen = self.mean if values is None else values
        return with_terms(base, {term.name: float(value) for term, value in zip(self.terms, chosen, strict=True)})

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """One sample of the terms from the posterior."""
        return np.asarray(rng.multivariate_normal(self.mean, self.covariance, method="eigh"))


def term_names() -> tuple[str, ...]:
    """Every name that a term may have."""
    return (STEP_SCALE, *OFFSETS, *_fitted_fields())


def with_terms(base: Constants, values: Mapping[str, float]) -> Constants:
    """The constants at these terms; what a value is added to does not go below 0, no share above 1."""
    changed: dict[str, Any] = {}
    for name, value in values.items():
        if name in OFFSETS or name == STEP_SCALE:
            continue
        most = 1.0 if name.endswith("_share") else math.inf
        changed[name] = _multiplied(getattr(base, name), math.exp(value), most)
    scale = math.exp(values.get(STEP_SCALE, 0.0))
    if scale != 1.0:
        for names, factor in ((_SCALED_DOWN, 1 / scale), (_SCALED_UP, scale)):
            changed |= {name: _multiplied(changed.get(name, getattr(base, name)), factor) for name in names}
    for term, name in OFFSETS.items():
        if values.get(term):
            changed[name] = max(changed.get(name, getattr(base, name)) + values[term], 0.0)
    return replace(base, **changed)


def digest_of(constants: Constants) -> str:
    """A short name for these very numbers."""
    numbers = {name: getattr(constants, name) for name in _fitted_fields()}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True, default=dict).encode()).hexdigest()[:16]


def settings_of(served: ServedModel) -> dict[str, object]:
    """What of a deployment a profile keeps: its values of `LatencyProfile.settings`."""
    args = served.args
    return {name: getattr(args, name) for name in _SETTINGS} | {
        "model": served.architecture.name, "engine": engine_of(args),
        "quantization": args.quantization or "", "kv_cache_dtype": one_spelling(args.kv_cache_dtype),
    }  # fmt: skip


def range_warnings(profile: LatencyProfile, served: ServedModel, base: Constants) -> tuple[str, ...]:
    """What of a deployment lies outside what the profile was learned from, one sentence each.

    Raises HeadcountError for another GPU or engine: shares of one GPU, kernels and hosts of one engine, say nothing of
    another. Profiles without an engine are vLLM's.
    """
    if served.gpu.name != profile.gpu:
        raise HeadcountError(
            f"latency profile '{profile.name}' is of {profile.gpu}, not {served.gpu.name}; leave it out, or fit "
            "one with headcount calibrate fit"
        )
    engine, fitted = engine_of(served.args), profile.settings.get("engine", VLLM)
    if engine != fitted:
        title = TITLES[engine]
        raise HeadcountError(
            f"latency profile '{profile.name}' is of {TITLES[fitted]}'s steps, not {title}'s; leave it out, or fit one "
            f"to {title}'s runs: headcount calibrate fit --engine {engine}"
        )
    found = []
    for name, value in settings_of(served).items():
        known = profile.settings.get(name)
        if known is not None and value not in (known if isinstance(known, list) else [known]):
            given = ", ".join(map(str, known)) if isinstance(known, list) else known
            found.append(
                f"{name} {value or 'of the checkpoint'} is outside the latency profile, which was fitted at {given}"
            )
    if digest_of(base) != profile.base_digest:
        found.append(
            f"the latency profile multiplies constants '{profile.base}' of another release of headcount; fit it again"
        )
    return tuple(found)


def profile_assumptions(profile: LatencyProfile) -> tuple[tuple[str, str, str], ...]:
    """Each fitted term as (name, value with its posterior sd, source)."""
    rows = []
    for term, sd in zip(profile.terms, profile.sd, strict=True):
        if term.name in OFFSETS:
            value = f"{term.mean * 1e3:+.2f} ± {sd * 1e3:.2f} ms"
        else:
            value = f"× {math.exp(term.mean):.3f} ± {math.expm1(sd):.1%}"
        name = term.name.removesuffix("_s").replace("_", " ")
        rows.append((f"{name}, fitted", value, f"latency profile '{profile.name}', {profile.source}"))
    return tuple(rows)


def _fitted_fields() -> tuple[str, ...]:
    return tuple(item.name for item in fields(Constants) if item.name not in NOT_CONSTANTS)


def _multiplied(value: Any, factor: float, most: float = math.inf) -> Any:
    if isinstance(value, Mapping):
        return {key: _multiplied(number, factor, most) for key, number in value.items()}
    return min(value * factor, max(most, value))
