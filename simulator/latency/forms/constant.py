"""Every step takes the same time: for comparing decisions, where time must be trivial."""

import numpy as np

from simulator.latency.model import FIXED_OVERHEAD, LatencyModel, ServedModel
from simulator.latency.step_time import constant_step_times


def latency_model(served: ServedModel, *, step_s: float = 0.01) -> LatencyModel:
    """Steps of `step_s` seconds, whatever they hold. Raises HeadcountError unless it is finite, above 0."""
    times = constant_step_times(
        step_s,
        max_num_batched_tokens=served.args.max_num_batched_tokens,
        max_num_seqs=served.args.max_num_seqs,
    )
    return LatencyModel(
        name="constant",
        step_times=times,
        assumptions=(("step time", f"{step_s * 1e3:g} ms", "given"),),
        is_measured=False,
        is_given=True,
        causes_by_tokens={FIXED_OVERHEAD: np.full(served.args.max_num_batched_tokens + 1, step_s)},
    )
