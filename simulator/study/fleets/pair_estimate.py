"""About how large a load each of two pools serves alone: prompts are one load, answers another."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.study.capacity_interval import safe_share
from simulator.study.estimate import Estimate, estimate_users
from simulator.study.fleets.screening import MOST_ESTIMATED
from simulator.study.loads import Load
from simulator.study.slo import SLO
from simulator.study.traffic import traffic_of

STEPS: Final = 4  # of the decode engine from a request's arrival to its first token
_NO_LIMIT_S: Final = 1e6
_LEAST_S: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class PoolEstimate:
    """One pool by its estimate."""

    role: str
    estimate: Estimate
    rate: float  # requests/s of one engine, to sign
    served_s: float  # mean time of a request there
    target: float  # share of requests that have to meet the limits

    @property
    def refusal(self) -> str | None:
        """Why not even the smallest load is served; None where one is."""
        found = self.estimate
        if found.attainment >= self.target:
            return None
        limits = f"TTFT {found.ttft_s:.3g} s, TPOT {found.tpot_s * 1e3:.3g} ms at the target's percentile"
        return f"{self.role} engines are estimated to miss the SLO under any load ({found.binding}): {limits}"


@dataclass(frozen=True, kw_only=True)
class PairEstimate:
    """Both pools, and how long a request takes on its way through them."""

    prefill: PoolEstimate
    decode: PoolEstimate
    handover_s: float

    @property
    def pools(self) -> tuple[PoolEstimate, PoolEstimate]:
        return self.prefill, self.decode

    @property
    def served_s(self) -> float:
        return self.prefill.served_s + self.handover_s + self.decode.served_s


def estimate_pair(disaggregated: DisaggregatedDeployment, load: Load, slo: SLO, *, stays: bool = False) -> PairEstimate:
    """Both pools with as many engines as there are, each with half of the misses that the target allows.

    Where a conversation `stays`, the prefill engine of its next turn is the one that has computed its last.
    """
    slo = replace(slo, attainment=(1 + slo.attainment) / 2)
    assert isinstance(disaggregated.decode.engine, EngineConfig), "SGLang was refused before"
    engine = replace(
        disaggregated.decode.engine, enable_prefix_caching=True
    )  # a prompt that is read is as if it were cached
    decode = _pool(replace(disaggregated.decode, engine=engine), disaggregated.num_decode, load, slo, DECODE)
    handover_s = _handover_s(disaggregated, engine.block_size, load, slo, decode.estimate.tpot_s)
    ttft_s = _NO_LIMIT_S if slo.ttft_s is None else max(slo.ttft_s - handover_s, _LEAST_S)
    limits = replace(slo, ttft_s=ttft_s, tpot_s=None)
    spread = 1 if stays else disaggregated.num_prefill
    return PairEstimate(
        prefill=_pool(disaggregated.prefill, spread, load, limits, PREFILL), decode=decode, handover_s=handover_s
    )


def estimated_users_of_pair(
    disaggregated: DisaggregatedDeployment, load: Load, slo: SLO, think_time_s: float, *, stays: bool = False
) -> int:
    """About how many users both pools serve, to sign; 0 where one of them serves nobody."""
    found = estimate_pair(disaggregated, load, slo, stays=stays)
    if any(pool.refusal for pool in found.pools):
        return 0
    rate = min(pool.rate * count for pool, count in zip(found.pools, disaggregated.counts, strict=True))
    return math.floor(rate * (think_time_s + found.served_s))


def _pool(plan: Deployment, engines: int, load: Load, slo: SLO, role: str) -> PoolEstimate:
    counted = min(engines, MOST_ESTIMATED)
    found = estimate_users(plan, counted, load, slo, role)
    return PoolEstimate(
        role=role,
        estimate=found,
        rate=found.requests_per_s / counted * safe_share(found, plan, counted, load=load, slo=slo, role=role),
        served_s=found.in_flight / found.requests_per_s,
        target=slo.attainment,
    )


def _handover_s(disaggregated: DisaggregatedDeployment, block_size: int, load: Load, slo: SLO, step_s: float) -> float:
    """Of a long prompt that no cache has: dispatch, read, steps of the decode engine."""
    nic = disaggregated.nics[1]
    prompt = float(np.quantile(traffic_of(load, 1).prompt, 2 * slo.attainment - 1))
    read_s = nic.transfer_s + prompt / block_size * (nic.post_s + nic.block_s)
    return disaggregated.between.dispatch_s + read_s + STEPS * step_s
