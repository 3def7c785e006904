"""The memory model's constants from logged servers, with what they leave unexplained."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvcache.memory.interval import LEVEL, Residuals, Spread, Terms, shipped_residuals
from kvcache.memory.terms import (
    FITTED,
    Constants,
    activation_peak_bytes,
    expert_workspace_bytes,
    has_nvlink_buffers,
    non_torch_bytes,
    widest_layer_bytes_per_token,
)
from kvcache.releases import ENGINE_V1, SAMPLER_WITHOUT_SORT
from validation.measured.servers import GIB, LoggedServer

# The terms took their form after these logs were seen: for other models no spread below this is claimed.
LEAST_WEIGHTS, LEAST_ACTIVATION = 0.003, 0.02
NORMAL_SDS = 1.645  # half a 90 % interval of a normal distribution: nor is a shorter one
KeyOf = Callable[[LoggedServer], str]


@dataclass(frozen=True)
class Judged:
    """A server with what is predicted for it by constants and residuals that may not know it."""

    server: LoggedServer
    terms: Terms
    available_bytes: float
    half_width_bytes: float

    @property
    def kv_error(self) -> float:
        """Relative error of the KV-cache tokens."""
        return self.server.kv_ratio(self.available_bytes) - 1

    @property
    def half_width(self) -> float:
        """Half of the interval over the prediction."""
        return self.half_width_bytes / max(self.available_bytes, 1.0)

    @property
    def is_covered(self) -> bool:
        low, high = (self.available_bytes + sign * self.half_width_bytes for sign in (-1, 1))
        return self.server.kv_ratio(max(low, 0.0)) <= 1 <= self.server.kv_ratio(high)


def predict(server: LoggedServer, constants: Constants = FITTED) -> tuple[Terms, float]:
    """The terms under these constants, and the bytes left for KV blocks on one GPU of the stage that limits them."""
    b = server.budget
    changed = 0 if constants is FITTED else _activation(server, constants) - _activation(server, FITTED)
    terms = Terms(
        weights_bytes=b.weights_bytes,
        activation_peak_bytes=b.activation_peak_bytes + changed,
        non_torch_bytes=non_torch_bytes(server.parallelism, server.vllm_version, server.gpu, constants),
        cuda_graph_bytes=b.cuda_graph_bytes,
    )
    spent = terms.weights_bytes + terms.activation_peak_bytes + terms.non_torch_bytes + terms.cuda_graph_bytes
    return terms, b.requested_bytes - spent


def judge(server: LoggedServer, constants: Constants = FITTED, residuals: Residuals | None = None) -> Judged:
    """What the model says of this server."""
    terms, available = predict(server, constants)
    half = (residuals or shipped_residuals()).half_width_bytes(terms, server.budget.unmeasured)
    return Judged(server, terms, available, half)


def held_out(servers: Sequence[LoggedServer], key: KeyOf) -> list[Judged]:
    """Every server judged by constants and residuals that were fitted without those that share its key."""
    found: dict[str, tuple[Constants, Residuals]] = {}
    for group in {key(server) for server in servers}:
        others = [server for server in servers if key(server) != group]
        constants = fit_constants(others)
        found[group] = constants, fit_residuals(others, constants)
    return [judge(server, *found[key(server)]) for server in servers]


def fit_constants(servers: Sequence[LoggedServer]) -> Constants:
    """The constants that these servers' logs give; what none of them shows stays as shipped.

    Pipelines are left out: which of their stages samples is not in the table.
    """
    servers = [server for server in servers if server.budget.pipeline_parallel_size == 1]
    known = [server for server in servers if server.activation_gib is not None]
    sampling = [server for server in known if not _is_widest(server)]
    since = [server for server in sampling if SAMPLER_WITHOUT_SORT.holds_in(server.vllm_version)]
    constants = _with_sampler(since) if len(since) >= 8 else FITTED
    before = [
        server
        for server in sampling
        if ENGINE_V1.holds_in(server.vllm_version) and not SAMPLER_WITHOUT_SORT.holds_in(server.vllm_version)
    ]
    if before:
        constants = replace(constants, sampler_bytes_per_logit_before_0_17=_old_sampler(before, constants))
    constants = _with_widest([server for server in servers if _is_widest(server)], constants)
    return replace(
        constants,
        non_torch_bytes=_non_torch(servers, constants.non_torch_bytes, since_0_18=True),
        non_torch_bytes_before_0_18=_non_torch(servers, constants.non_torch_bytes_before_0_18, since_0_18=False),
    )


def _activation(server: LoggedServer, constants: Constants) -> int:
    b = server.budget
    return activation_peak_bytes(
        server.architecture,
        server.parallelism,
        max_num_batched_tokens=b.max_num_batched_tokens,
        max_num_seqs=b.max_num_seqs,
        samples=b.limiting_stage == b.pipeline_parallel_size - 1,
        vllm_version=server.vllm_version,
        eight_bit=server.eight_bit,
        constants=constants,
    )


def _is_widest(server: LoggedServer) -> bool:
    """Whether the forward pass peaks above the sampler, by the shipped constants."""
    without = replace(FITTED, widest_copies_of_hidden_states=0.0, widest_copies_of_8_bit_hidden_states=0.0)
    return _activation(server, FITTED) > _activation(server, without)


def _with_sampler(servers: Sequence[LoggedServer]) -> Constants:
    """Least squares over servers whose peak is the sampler's."""
    matrix = np.array([_features(server) for server in servers])
    scale = np.abs(matrix).max(axis=0) + 1e-9
    target = np.array([(server.activation_gib or 0.0) * GIB - _experts(server) for server in servers])
    base, logits, hidden, vision = np.linalg.lstsq(matrix / scale, target, rcond=None)[0] / scale
    return replace(
        FITTED,
        forward_base_bytes=float(base),
        sampler_bytes_per_logit=float(logits),
        forward_copies_of_hidden_states=float(hidden),
        vision_activation_bytes=float(vision),
    )


def _features(server: LoggedServer) -> tuple[float, float, float, float]:
    b, arch = server.budget, server.architecture
    hidden = 2.0 * b.max_num_batched_tokens * arch.hidden_size
    return 1.0, float(b.max_num_seqs * arch.vocab_size), hidden, float(bool(arch.vision_parameters))


def _experts(server: LoggedServer) -> float:
    tokens = server.budget.max_num_batched_tokens
    return expert_workspace_bytes(server.architecture, server.parallelism, tokens, server.vllm_version)


def _old_sampler(servers: Sequence[LoggedServer], constants: Constants) -> float:
    without = replace(constants, sampler_bytes_per_logit_before_0_17=0.0, widest_copies_of_hidden_states=-9.0)
    return statistics.mean(
        ((server.activation_gib or 0.0) * GIB - _activation(server, without)) / _features(server)[1]
        for server in servers
    )


def _with_widest(servers: Sequence[LoggedServer], constants: Constants) -> Constants:
    """Copies of the hidden states at the widest layer: of 16-bit servers, then what 8-bit ones have more."""
    logged = [(server, _logged_activation(server, constants)) for server in servers]
    copies = [(server, _copies(server, peak, constants)) for server, peak in logged if peak is not None]
    plain = [count for server, count in copies if not server.eight_bit]
    plainly = statistics.mean(plain) if plain else constants.widest_copies_of_hidden_states
    more = [count - plainly for server, count in copies if server.eight_bit]
    return replace(
        constants,
        widest_copies_of_hidden_states=plainly,
        widest_copies_of_8_bit_hidden_states=statistics.mean(more)
        if more
        else constants.widest_copies_of_8_bit_hidden_states,
    )


def _logged_activation(server: LoggedServer, constants: Constants) -> float | None:
    """As logged, or what the logged pool leaves for it; None where the batch was not the logs' own."""
    if server.activation_gib is not None:
        return server.activation_gib * GIB
    if server.weights_gib is None or server.available_gib is None or server.budget.unmeasured:
        return None
    beside = non_torch_bytes(server.parallelism, server.vllm_version, server.gpu, constants)
    return server.budget.requested_bytes - (server.weights_gib + server.available_gib) * GIB - beside


def _copies(server: LoggedServer, peak_bytes: float, constants: Constants) -> float:
    b, arch = server.budget, server.architecture
    hidden = 2.0 * b.max_num_batched_tokens * arch.hidden_size
    widest = b.max_num_batched_tokens * widest_layer_bytes_per_token(
        arch, server.parallelism, eight_bit=server.eight_bit
    )
    rest = peak_bytes - constants.forward_base_bytes - _experts(server) - widest
    return rest / hidden - bool(arch.vision_parameters)


def _non_torch(servers: Sequence[LoggedServer], shipped: Mapping[int, float], *, since_0_18: bool) -> dict[int, float]:
    """Medians by ranks, since 0.8: Granite 3 at TP 1 takes 0.2 GiB more than all others, for no known reason."""
    table = {}
    for ranks, default in shipped.items():
        logged = [
            server.non_torch_gib * GIB
            for server in servers
            if server.non_torch_gib is not None
            and ENGINE_V1.holds_in(server.vllm_version)
            and server.parallelism.tensor_parallel_size == ranks
            and has_nvlink_buffers(ranks, server.vllm_version, server.gpu) == since_0_18
        ]
        table[ranks] = statistics.median(logged) if logged else default
    return table


def fit_residuals(servers: Sequence[LoggedServer], constants: Constants) -> Residuals:
    """How far these servers are off: the spread of each term where all is measured, then the interval's width.

    The width is the quantile of all pools' errors over their standard deviations that covers them as often as the
    interval should, corrected for their number (split conformal prediction), so that heavy tails count.
    """
    measured = [server for server in servers if not server.budget.unmeasured]
    weights = _log_spread([_pair(s.weights_gib, predict(s, constants)[0].weights_bytes) for s in measured])
    activation = _log_spread(
        [_pair(s.activation_gib, predict(s, constants)[0].activation_peak_bytes) for s in measured]
    )
    spread = Spread(
        weights=max(weights, LEAST_WEIGHTS),
        activation=max(activation, LEAST_ACTIVATION),
        non_torch_gib=_spread(
            [
                s.non_torch_gib - predict(s, constants)[0].non_torch_bytes / GIB
                for s in measured
                if s.non_torch_gib is not None
            ]
        ),
        cuda_graph=shipped_residuals().measured.cuda_graph,
        source=f"residuals of {len(measured)} public start-up logs, vLLM 0.11–0.19 on H100 80GB",
    )
    residuals = Residuals(measured=spread, beyond=shipped_residuals().beyond, half_width_sds=1.0)
    return replace(residuals, half_width_sds=_quantile([_sds(s, constants, residuals) for s in servers if s.is_judged]))


def _pair(logged_gib: float | None, predicted_bytes: float) -> float | None:
    return None if logged_gib is None else math.log(predicted_bytes / GIB / logged_gib)


def _log_spread(errors: Sequence[float | None]) -> float:
    return _spread([error for error in errors if error is not None])


def _spread(errors: Sequence[float]) -> float:
    return math.sqrt(statistics.mean(error * error for error in errors))


def _sds(server: LoggedServer, constants: Constants, residuals: Residuals) -> float:
    """The pool's error in bytes over its standard deviation."""
    terms, available = predict(server, constants)
    ratio = server.kv_ratio(available)
    logged = available / ratio if ratio else 0.0
    return abs(available - logged) / residuals.sd_bytes(terms, server.budget.unmeasured)


def _quantile(values: Sequence[float]) -> float:
    ordered = sorted(values)
    rank = min(len(ordered), math.ceil(LEVEL * (len(ordered) + 1)))
    return max(ordered[rank - 1], NORMAL_SDS)
