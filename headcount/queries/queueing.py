"""Whether a load queues, where step times are not known well enough to say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from files.documents import Json
from headcount.queries.serving import TAILS, Served
from simulator.deployment import Deployment
from simulator.results import SimulationResult
from simulator.study.statistics import summary

QUEUES: Final = 0.5  # of the TTFT, in the queues of engines: above, the load queues
BUSY: Final = 0.5  # of the steps hold prompts, where these begin to wait for one another


@dataclass(frozen=True, kw_only=True)
class OtherEnd:
    """The load with steps `factor` times as long, an end of their 90 % interval.

    It queues there and does not as simulated, or the reverse.
    """

    factor: float
    result: SimulationResult

    def to_json(self) -> Json:
        times = self.result.times
        return {"step_time_factor": self.factor, **{name: summary(getattr(times, name)) for name in TAILS}}


def other_end_of(
    plan: Deployment,
    served: Served,
    stated: tuple[float, float] | None,
    serve: Callable[[float], SimulationResult],
) -> OtherEnd | None:
    """What servers do within the interval of step times that queue where the simulated one does not, or the reverse.

    `stated` is the interval of the mean TTFT without them; `serve` simulates the same load with steps so many times as
    long. None where the end that may differ queues as the simulated server does, or has a TTFT within `stated`.
    """
    longer = 1 + plan.latency.step_error_at(served.step.sequences)
    queues = queue_share(served.result) > QUEUES
    if stated is None or not (queues or _may_queue(plan, served, longer)):
        return None
    factor = 1 / longer if queues else longer
    result = serve(factor)
    low, high = stated
    if (queue_share(result) > QUEUES) == queues or low <= _mean_ttft_s(result) <= high:
        return None
    return OtherEnd(factor=factor, result=result)


def queue_share(result: SimulationResult) -> float:
    """Of the summed TTFT, in the queues of engines; preempted requests wait there again, after it."""
    waited_s = result.waiting_mean * (result.end_s - result.start_s)
    return waited_s / (float(np.nansum(result.times.ttft_s)) or 1.0)


def queue_facts(result: SimulationResult, other: OtherEnd | None) -> tuple[float, float, float] | None:
    """Factor of the step times, and the mean TTFT as simulated and with it; None where a load surely queues or not."""
    return None if other is None else (other.factor, _mean_ttft_s(result), _mean_ttft_s(other.result))


def _mean_ttft_s(result: SimulationResult) -> float:
    return float(np.nanmean(result.times.ttft_s))


def _may_queue(plan: Deployment, served: Served, longer: float) -> bool:
    """Whether longer steps may fill the KV cache, the sequences, or the steps with prompts.

    Requests stay as much longer, and at a rate so many more run that steps are as much longer again.
    """
    step, more = served.step, longer**2
    is_full = served.result.kv_usage_max * more > 1 or step.sequences * more > plan.engine.max_num_seqs
    return longer > 1 and (is_full or step.prefill_share * longer > BUSY)
