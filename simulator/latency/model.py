"""What a latency form hands over: the compiled step times, where they come from, how far they may be off."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.shape.architecture import Architecture, with_dtype, with_state_dtype
from simulator.engines.engines import AnyArgs, with_settings
from simulator.latency.step_time import BatchSums, FloatArray, StepTimes

# Why a step takes time. The first three wait for memory bandwidth.
WEIGHTS_READ = "weights_read"
KV_READ = "kv_read"
ACTIVATIONS = "activations"
COMPUTE = "compute"
COMMUNICATION = "communication"
FIXED_OVERHEAD = "fixed_overhead"  # kernel starts, glue, the launch floor of steps with prefill
ADAPTERS = "adapters"  # LoRA; only of servers with adapters
ENCODER = "image_encoder"  # of images; only of servers that get any
HOST = "host"  # scheduling, input preparation: what the GPU waits for
ERROR_SEQUENCES = 16  # running at once, at which an error is stated; it grows or not from FEWEST to MOST of them
FEWEST_SEQUENCES, MOST_SEQUENCES = 4, 256  # of the runs that show it
CAUSES = (WEIGHTS_READ, KV_READ, ACTIVATIONS, COMPUTE, COMMUNICATION, FIXED_OVERHEAD, HOST)


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """What a latency form may look at: a model in the dtype it is served in, its GPU, arguments, all with a value."""

    architecture: Architecture
    gpu: GPU
    args: AnyArgs


def served_model(architecture: Architecture, gpu: GPU, args: AnyArgs | None = None, **settings: object) -> ServedModel:
    """A model under an engine's arguments, with its default for each that is not given; memory is not asked."""
    filled = with_settings(args, settings).filled(architecture, gpu)
    served = with_state_dtype(with_dtype(architecture, filled.dtype), filled.mamba_ssm_cache_dtype)
    return ServedModel(architecture=served, gpu=gpu, args=filled)


@dataclass(frozen=True, kw_only=True)
class LogError:
    """How far a mean latency may be off: standard deviations of its natural logarithm.

    `deployment` is common to all loads of one deployment, `residual` is each load's own. `half_width_sds` is half a
    90 % interval in standard deviations: more than a normal distribution's where errors have heavy tails. All are for
    ERROR_SEQUENCES running at once; errors grow with the number's power `growth`. `groups` of model, GPU and release
    were left out to find it, 0 where it is by judgement. `shorter_sds` is what the interval's lower end has instead of
    `half_width_sds`, where measured means lie above the simulated ones, and hardly any below; None: as the upper end.
    """

    deployment: float
    residual: float
    half_width_sds: float = 1.645
    growth: float = 0.0
    groups: int = 0
    shorter_sds: float | None = None

    @property
    def total(self) -> float:
        return math.hypot(self.deployment, self.residual)

    @property
    def half_width(self) -> float:
        """By what share a measured mean may lie above the simulated one, nine times in ten within the interval."""
        return self.half_width_at(ERROR_SEQUENCES)

    @property
    def shorter(self) -> float:
        """By what share a simulated mean may lie above the measured one: the other end."""
        return self.shorter_at(ERROR_SEQUENCES)

    def half_width_at(self, sequences: float) -> float:
        """The same, with so many sequences running at once on average."""
        return math.expm1(self.log_half_width_at(sequences))

    def log_half_width_at(self, sequences: float) -> float:
        """Half of the 90 % interval of the natural logarithm."""
        return self.half_width_sds * self.total * float(error_scale(sequences, self.growth))

    def shorter_at(self, sequences: float) -> float:
        """By what share a simulated mean may lie above the measured one, nine times in ten within the interval."""
        return math.expm1(self.log_shorter_at(sequences))

    def log_shorter_at(self, sequences: float) -> float:
        """From the natural logarithm of the simulated mean to the lower end of the 90 % interval."""
        sds = self.half_width_sds if self.shorter_sds is None else self.shorter_sds
        return sds * self.total * float(error_scale(sequences, self.growth))

    def log_ends_at(self, sequences: float) -> tuple[float, float]:
        """How far the lower and the upper end of the logarithm's 90 % interval lie from the simulated one."""
        return self.log_shorter_at(sequences), self.log_half_width_at(sequences)

    def interval(self, mean_s: float | None, sequences: float) -> tuple[float, float] | None:
        """Where a measured mean lies nine times in ten; None without a simulated one."""
        if mean_s is None or not math.isfinite(mean_s):
            return None
        return mean_s / (1 + self.shorter_at(sequences)), mean_s * (1 + self.half_width_at(sequences))


def error_scale(sequences: float | FloatArray, growth: float) -> FloatArray:
    """By what an error stated for ERROR_SEQUENCES is multiplied at so many."""
    bounded = np.clip(sequences, FEWEST_SEQUENCES, MOST_SEQUENCES)
    return np.asarray((bounded / ERROR_SEQUENCES) ** growth)


NO_ERROR = LogError(deployment=0.0, residual=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class LatencyModel:
    """Step times of one deployment, with what they rest on.

    `is_measured`: the constants come from measurements of this GPU; `unmeasured`: the parts that do not. `calibrated`:
    they were fitted to this deployment. `is_given`: the user gave the times. `ttft_log_error` is of closed loops: equal
    clients that start together and stay in step. `open_ttft_log_error` is of requests that arrive at random, or whose
    users think between turns; None: the same.
    """

    name: str
    step_times: StepTimes
    assumptions: tuple[tuple[str, str, str], ...]  # (name, value with unit, source)
    is_measured: bool
    calibrated: bool = False
    is_given: bool = False
    unmeasured: tuple[str, ...] = ()
    tpot_log_error: LogError = NO_ERROR
    ttft_log_error: LogError = NO_ERROR
    open_ttft_log_error: LogError | None = None
    causes_by_tokens: Mapping[str, FloatArray] = field(default_factory=lambda: MappingProxyType({}))
    causes_by_sampled: Mapping[str, FloatArray] = field(default_factory=lambda: MappingProxyType({}))
    causes_by_all_tokens: Callable[[FloatArray], Mapping[str, FloatArray]] = lambda _: MappingProxyType({})
    data_parallel_size: int = 1
    context_cause: str = KV_READ
    warnings: tuple[str, ...] = ()  # what lies outside the latency profile, a sentence each
    ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # see `steps_outside`
    sampler: Callable[[np.random.Generator], "LatencyModel"] | None = None

    def step_error_at(self, sequences: float, *, shorter: bool = False) -> float:
        """By what share steps may be longer, or their inverse `shorter`, with so many sequences: of a 90 % interval."""
        error = self.tpot_log_error
        return 0.0 if self.is_given else error.shorter_at(sequences) if shorter else error.half_width_at(sequences)

    def ttft_log_error_of(self, *, in_step: bool) -> LogError:
        """Of closed loops of equal clients, else of users."""
        return self.ttft_log_error if in_step or self.open_ttft_log_error is None else self.open_ttft_log_error

    def ttft_error_at(self, sequences: float, *, shorter: bool = False) -> float:
        """The same of users' TTFT beside the error of the steps, which it shares: front ends, short queues."""
        if self.is_given:
            return 0.0
        errors = self.tpot_log_error, self.ttft_log_error_of(in_step=False)
        steps, whole = (
            error.log_shorter_at(sequences) if shorter else error.log_half_width_at(sequences) for error in errors
        )
        return math.expm1(math.sqrt(max(whole**2 - steps**2, 0.0)))

    def draw(self, rng: np.random.Generator) -> "LatencyModel":
        """The same deployment with constants drawn from what is known of their errors.

        That is the posterior of a latency profile, or the covariance of the shipped constants with what deployments
        differ by. Raises HeadcountError where times or constants were given: nothing is known of their errors.
        """
        if self.sampler is None:
            raise HeadcountError(
                f"latency model '{self.name}' has given times, so there is nothing to draw from; take the physical "
                "one, or give --latency-profile"
            )
        return self.sampler(rng)


@dataclass(frozen=True, kw_only=True)
class AverageStep:
    """A run's sums over its batches, per step; `prefill_share` of the steps hold all the prefill."""

    tokens: float
    sequences: float
    sampled: float
    decode_context: float = 0.0
    window_context: float = 0.0
    prefill_tokens: float = 0.0
    prefill_work: float = 0.0
    window_prefill_work: float = 0.0
    adapters: float = 0.0
    encoder_s: float = 0.0
    prefill_share: float = 0.0


def average_step(totals: NDArray[np.void]) -> AverageStep:
    """The average step of a run's `totals` (see `simulator.core.layout.TOTALS`), over all replicas.

    Raises HeadcountError where no step has run.
    """
    steps = float(totals["steps"].sum())
    if steps == 0:
        raise HeadcountError("no step has run; simulate some requests first")
    mean = {item.name: float(totals[item.name].sum()) / steps for item in fields(BatchSums)}
    return AverageStep(**mean, prefill_share=float(totals["prefill_steps"].sum()) / steps)


RANGED = ("tokens", "sequences", "decode_context", "prefill_tokens")


def ranged_sums(step: AverageStep) -> dict[str, float]:
    """The sums of an average step that a latency profile has a range of; prefill is that of the steps that hold any."""
    found = {name: getattr(step, name) for name in RANGED}
    return found | {"prefill_tokens": step_with_prefill(step).prefill_tokens}


_OF_PREFILL = ("prefill_tokens", "prefill_work", "window_prefill_work", "encoder_s")


def steps_outside(model: LatencyModel, step: AverageStep) -> tuple[str, ...]:
    """Which of an average step's sums lie outside what the latency profile was fitted on, one sentence each."""
    values = ranged_sums(step)
    return tuple(
        f"an average step's {name.replace('_', ' ')}, {values[name]:,.0f}, are outside the latency profile, fitted "
        f"from {low:,.0f} to {high:,.0f}"
        for name, (low, high) in model.ranges.items()
        if name in values and not low <= values[name] <= high
    )


def step_with_prefill(step: AverageStep) -> AverageStep:
    """The average step among those that hold prefill."""
    share = step.prefill_share or 1.0
    prefill = {name: getattr(step, name) / share for name in _OF_PREFILL}
    tokens = step.tokens - step.prefill_tokens + prefill["prefill_tokens"]
    return replace(step, tokens=tokens, prefill_share=1.0, **prefill)


def step_without_prefill(step: AverageStep) -> AverageStep:
    """What the average step would be without prefill."""
    none = dict.fromkeys((*_OF_PREFILL, "prefill_share"), 0.0)
    return replace(step, tokens=max(step.tokens - step.prefill_tokens, 0.0), **none)


def breakdown(model: LatencyModel, step: AverageStep) -> dict[str, float]:
    """Seconds of an average step by cause (`CAUSES`), so that their sum is the mean step time.

    Steps with prefill are averaged apart from those without. Exact where all steps of a kind are alike.
    """
    share = min(max(step.prefill_share, 0.0), 1.0)
    decode_tokens = max(step.tokens - step.prefill_tokens, 0.0)
    seconds = dict.fromkeys(CAUSES, 0.0)
    for weight, holds_prefill in ((1.0 - share, False), (share, True)):
        if weight == 0.0:
            continue
        tokens = decode_tokens + (step.prefill_tokens / weight if holds_prefill else 0.0)
        for cause, value in _one_kind(model, step, tokens, weight if holds_prefill else None).items():
            seconds[cause] = seconds.get(cause, 0.0) + weight * value
    return seconds


def _one_kind(model: LatencyModel, step: AverageStep, tokens: float, prefill_weight: float | None) -> dict[str, float]:
    times = model.step_times
    seconds = dict.fromkeys(CAUSES, 0.0)
    for tables, at in ((model.causes_by_tokens, tokens), (model.causes_by_sampled, step.sampled)):
        for cause, table in tables.items():
            seconds[cause] = seconds.get(cause, 0.0) + _at(table, at)
    all_tokens = np.array([tokens * model.data_parallel_size])  # the ranks are taken to be alike
    for cause, (value,) in model.causes_by_all_tokens(all_tokens).items():
        seconds[cause] += float(value)
    seconds[model.context_cause] += times.context_s * step.decode_context
    seconds[model.context_cause] += times.window_context_s * step.window_context
    if times.adapter_s:
        seconds[ADAPTERS] = seconds.get(ADAPTERS, 0.0) + times.adapter_s * step.adapters
    if step.encoder_s and prefill_weight is not None:
        seconds[ENCODER] = step.encoder_s / prefill_weight
    seconds[FIXED_OVERHEAD] += times.decode_base_s if step.decode_context > 0 else 0.0
    if prefill_weight is not None:
        work_s = times.prefill_s * step.prefill_work + times.window_prefill_s * step.window_prefill_work
        seconds[COMPUTE] += work_s / prefill_weight + _at(times.prefill, tokens) - _at(times.decode, tokens)
        own_s = sum(seconds.values()) - seconds.get(ENCODER, 0.0)
        seconds[FIXED_OVERHEAD] += max(_at(times.floor, tokens) - own_s, 0.0)
    host_s = float(times.host_s(step.sequences))
    seconds[HOST] += max(host_s - sum(seconds.values()), 0.0) + times.gap_s
    return seconds


def _at(table: FloatArray, position: float) -> float:
    return float(np.interp(position, np.arange(len(table)), table))
