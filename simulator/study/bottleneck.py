"""What keeps a deployment from serving more users."""

from typing import TYPE_CHECKING, Final

import numpy as np

from simulator.core import layout
from simulator.deployment import Deployment
from simulator.engines.engines import words_of
from simulator.engines.tuning import ADAPTER_KERNELS, API_SERVER, MAX_LORAS
from simulator.latency import model as causes_of
from simulator.latency.model import AverageStep, LatencyModel, breakdown, step_with_prefill, step_without_prefill
from simulator.study.slo import SLO
from simulator.study.statistics import FloatArray

if TYPE_CHECKING:
    from simulator.study.points import Point

LOADING_SHARE = 0.5  # of the TTFT of those that miss its limit: above it, loads of KV are what hurts
API_SERVER_SHARE: Final = 0.5  # of the TTFT of those that miss its limit: above it, API servers are what hurts
BLOCKED_SHARE = 0.05  # of replica time: above it, waiting for a resource is what hurts
STREAMED_TOKENS_PER_S: Final = 7_600  # by one API server
STREAMED_SOURCE: Final = "docs/measurements/calibration.md: 256 clients, vLLM 0.26, a virtual machine with 16 cores"
LONGER: Final = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)  # times a limit that is missed
_CLOSE: Final = 0.01  # a share of misses to the one that is allowed: two more digits tell them apart

CAUSE_NAMES = {
    causes_of.WEIGHTS_READ: "weight reads",
    causes_of.KV_READ: "KV reads",
    causes_of.ACTIVATIONS: "activation traffic",
    causes_of.COMPUTE: "compute",
    causes_of.COMMUNICATION: "communication",
    causes_of.FIXED_OVERHEAD: "kernel overhead",
    causes_of.ENCODER: "image encoder",
    causes_of.ADAPTERS: ADAPTER_KERNELS,
    causes_of.HOST: "host",
}
"""Why a step takes time; reads and traffic are memory bandwidth."""

_GROWS_WITH_TOKENS = {
    CAUSE_NAMES[cause]
    for cause in (causes_of.ACTIVATIONS, causes_of.COMPUTE, causes_of.COMMUNICATION, causes_of.ENCODER)
}
_GROWS_WITH_LOAD = {*_GROWS_WITH_TOKENS, CAUSE_NAMES[causes_of.KV_READ]}  # of a step that only decodes


def what_binds(plan: Deployment, point: "Point") -> str:
    """The limit that requests miss first, with the resource behind it."""
    ttft, tpot = point.mean("ttft_misses"), point.mean("tpot_misses")
    limit = "TTFT" if ttft >= tpot else "TPOT"
    if ttft + tpot == 0:  # where not one request is decided within the run, attainment is 0: all of them queue
        limit = "queue" if point.queue_grows or point.attainment.mean < 1 else "nothing yet"
    if outside := _outside_engine(point, limit, ttft + tpot):
        return f"{limit}: {outside}"
    words = words_of(plan.args)
    resources = {
        layout.BLOCKED_BY_KV_BLOCKS: words.kv,
        layout.BLOCKED_BY_MAX_NUM_SEQS: words.running,
        layout.BLOCKED_BY_TOKEN_BUDGET: words.prefill,
        layout.BLOCKED_BY_MAX_LORAS: MAX_LORAS,
    }
    blocked = {reason: point.blocked_share(reason) for reason in resources}
    worst = max(blocked, key=lambda reason: blocked[reason])
    if limit == "TPOT" and (step := point.mean_step) is not None:
        return f"{limit}: {step_cause(plan.latency, step, limit, _slower(point, tpot))}"
    if blocked[worst] <= BLOCKED_SHARE:
        return f"{limit}: {_largest(step_causes(plan, point, only_prefill=limit == 'TTFT'), limit)}"
    if worst == layout.BLOCKED_BY_TOKEN_BUDGET:
        causes = step_causes(plan, point, only_prefill=True)
        by_token = {name: share for name, share in causes.items() if name in _GROWS_WITH_TOKENS}
        if sum(by_token.values()) > 0.5:  # a larger step would take longer in proportion: the budget is not what lacks
            return f"{limit}: {_largest(by_token, limit)}"
    return f"{limit}: {resources[worst]}"


def _outside_engine(point: "Point", limit: str, misses: float) -> str:
    """What holds requests up before an engine's scheduler computes them; "" for nothing."""
    if point.cancelled is not None and point.cancelled.rejected > misses / 2:
        return "rejected by the gateway"
    if limit != "TPOT" and point.mean("held") > point.mean("waiting") / 2:
        return "gateway's queue"
    if limit != "TPOT" and point.mean("api_server_share") > API_SERVER_SHARE:
        return API_SERVER
    return "KV loads" if limit == "TTFT" and point.mean("loading_share") > LOADING_SHARE else ""


def _largest(causes: dict[str, float], limit: str) -> str:
    cause = max(causes, key=lambda name: causes[name])
    return f"prefill {cause}" if limit == "TTFT" else cause


def step_cause(latency: LatencyModel, step: AverageStep, limit: str, times: float) -> str:
    """What most of the time goes to of an average step with prefill, or for TPOT of one `times` as long as the average.

    Then more sequences decode and more prompts come between them, in proportion, as both wait for longer steps: what
    grows with the load fills the rest.
    """
    if limit == "TTFT":
        return _largest(_named(breakdown(latency, step_with_prefill(step))), limit)
    seconds = _named(breakdown(latency, step))
    decode = _named(breakdown(latency, step_without_prefill(step)))
    fixed = {name: decode[name] for name in decode if name not in _GROWS_WITH_LOAD}
    growing = {name: decode[name] for name in decode if name in _GROWS_WITH_LOAD}
    growing |= {f"prefill {name}": max(seconds[name] - decode.get(name, 0.0), 0.0) for name in seconds}
    grown_s = times * sum(seconds.values()) - sum(fixed.values())
    factor = max(grown_s / (sum(growing.values()) or 1.0), 1.0)
    causes = fixed | {name: factor * value for name, value in growing.items()}
    return max(causes, key=lambda name: causes[name])


def _slower(point: "Point", misses: float) -> float:
    """How many times as long as the mean TPOT the limit is that this share of requests misses."""
    tpot_s = point.times("tpot_s")
    tpot_s = tpot_s[np.isfinite(tpot_s)]  # an answer of one token has none
    return float(np.quantile(tpot_s, 1 - misses) / tpot_s.mean()) if len(tpot_s) else 1.0


def _named(seconds: dict[str, float]) -> dict[str, float]:
    return {CAUSE_NAMES[name]: value for name, value in seconds.items()}


def step_causes(plan: Deployment, point: "Point", *, only_prefill: bool = False) -> dict[str, float]:
    """Shares of the mean step's time by cause, or of the mean step that holds prefill."""
    step = point.mean_step
    if step is None:
        return {"no load": 1.0}
    seconds = _named(breakdown(plan.latency, step_with_prefill(step) if only_prefill else step))
    total = sum(seconds.values()) or 1.0
    return {name: value / total for name, value in seconds.items()}


def not_served(slo: SLO, point: "Point", load: str, *, is_long_run: bool = True) -> str:
    """Why not even that load meets the SLO, and which longer limits it meets."""
    missed, at = first_missed(slo, point), reached(slo, point)
    longer = longer_limits(slo, point)
    way_out = f"{load} would meet {longer}" if longer else ""
    if is_long_run and not point.queue_grows and point.attainment.mean >= slo.attainment:
        close = f"whether {load} meets the SLO is too close to call: {missed} in {len(point.replications)} replications"
        return "; ".join(filter(None, (f"{close}, where {1 - slo.attainment:.2%} may", at, way_out)))
    return f"not even {load} meets the SLO: {'; '.join(filter(None, (missed, at, way_out)))}"


def first_missed(slo: SLO, point: "Point") -> str:
    """Which limit a load misses, in words for an error message."""
    ttft, tpot = point.mean("ttft_misses"), point.mean("tpot_misses")
    parts = [f"{_missing(ttft, slo)} of requests miss the TTFT limit"] if slo.ttft_s is not None else []
    parts += [f"{_missing(tpot, slo)} miss the TPOT limit"] if slo.tpot_s is not None else []
    return ", ".join(parts)


def longer_limits(slo: SLO, point: "Point") -> str:
    """The least of LONGER limits that a load meets as simulated, such as `--ttft 2000ms`; "" where none is met."""
    if point.queue_grows:
        return ""
    tpot_s = point.times("tpot_s")
    tpot_s = tpot_s[np.isfinite(tpot_s)]  # an answer of one token has none
    later = _least_met(point.ttft_over(slo), slo.attainment)
    slower = 0.0 if slo.tpot_s is None else _least_met(tpot_s / slo.tpot_s, slo.attainment)
    if later is None or slower is None:
        return ""
    options = [f"--ttft {slo.with_ttft(later).ttft_option}"] if later else []
    options += [f"--tpot {1e3 * slower * slo.tpot_s:g}ms"] if slower and slo.tpot_s else []
    return " ".join(options)


def _least_met(times: FloatArray, attainment: float) -> float | None:
    """Of LONGER, which `times` over their limits meet; 0 where 1 is met with room to spare, None where none is."""
    if not len(times) or np.mean(times <= 1 / LONGER[0]) >= attainment:
        return 0.0
    return next((factor for factor in LONGER if np.mean(times <= factor) >= attainment), None)


def reached(slo: SLO, point: "Point") -> str:
    """What a limit would have to be, such as `TTFT 1.42 s, TPOT 7.9 ms at the target's percentile`; may be empty."""
    found = {name: point.times(name) for name in ("ttft_s", "tpot_s")}
    at = {
        name: float(np.percentile(finite, 100 * slo.attainment))
        for name, values in found.items()
        if len(finite := values[np.isfinite(values)])
    }
    parts = [f"TTFT {at['ttft_s']:.3g} s"] if "ttft_s" in at else []
    parts += [f"TPOT {at['tpot_s'] * 1e3:.3g} ms"] if "tpot_s" in at else []
    return f"{', '.join(parts)} at the target's percentile" if parts else ""


def _missing(share: float, slo: SLO) -> str:
    """With the digits that tell it from the share that may miss."""
    return f"{share:.2%}" if abs(share - (1 - slo.attainment)) < _CLOSE else _percent(share)


def _percent(share: float) -> str:
    """Never 0% where there are some, nor 100% where not all."""
    whole = f"{share:.0%}"
    return f"{share:.2%}" if (whole == "0%" and share > 0) or (whole == "100%" and share < 1) else whole
