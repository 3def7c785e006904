"""Users per GPU count in a line, and why nobody is served."""

import math

from files.names import readable
from headcount.text.units import counted
from headcount.text.words import found_text, kv_pool, layout_text
from simulator.deployment import Deployment
from simulator.engines.engines import SGLANG
from simulator.engines.memory import longest_fit
from simulator.study.capacity_interval import starts_with_fewest
from simulator.study.capacity_row import CapacityRow
from workloads.load import usual_think_time_s
from workloads.populations.population import Population
from workloads.traces.resampled import sample_error
from workloads.traces.trace import Trace


def found_line(row: CapacityRow) -> str:
    """A row, shown as soon as it is found."""
    figures = found_text(row.users_low, row.users, row.users_high)
    return f"{counted(row.gpus, 'GPU')}: {figures if row.users else row.reason or 'no users'}"


def trace_text(
    workload: Population | Trace, think_time_s: float, row: CapacityRow | None, users: float | None = None
) -> str:
    """What a trace's number of users rests on, and how many times its own load they are; "" for a population.

    `users` are those of the answer, if not the row's own.
    """
    if not isinstance(workload, Trace):
        return ""
    own = "" if think_time_s != usual_think_time_s() else " (set yours with --think-time)"
    error, sample = sample_error(workload), ""
    if error is not None:
        sample = (
            f"for these {workload.num_requests:,} requests: another recording may give ±{error[1]:.0%} other users; "
        )
    said = f"{sample}think time {think_time_s:,.3g} s{own}"
    point = None if row is None else row.safe_point or row.point
    if row is None or point is None or not math.isfinite(workload.requests_per_s):
        return said
    users = users if users is not None else row.users_low if row.safe_point else row.users
    sent = point.mean("requests_per_s")
    rate = users * sent / (sent * think_time_s + point.mean("in_flight"))  # N = λ (Z + R), L = λR
    times = readable(rate / workload.requests_per_s)
    return (
        f"{said}: {counted(round(users), 'user')} send {readable(rate)} requests/s, {times} times the trace's own "
        f"{readable(workload.requests_per_s)}"
    )


def no_capacity_reason(row: CapacityRow) -> str:
    """Why the lower end of the interval of users is 0."""
    if row.users_low_sampling and row.users_at_kv_cache_low == 0 and row.plan is not None:
        return _no_start_reason(row.plan)
    if row.users_low_sampling and row.users_at_step_time_error_high and row.users_at_ttft_error_high == 0:
        return f"if TTFT is {row.ttft_error:.0%} longer than simulated, which is within its error, no user is served"
    if row.users_low_sampling and row.step_time_error is not None:
        longer = f"{row.step_time_error:.0%} longer than simulated, which is within their error"
        return f"if steps take {longer}, no user is served; a latency profile reduces the error"
    return "the interval over the replications is too wide; more replications narrow it"


def _no_start_reason(plan: Deployment) -> str:
    """With the fewest KV blocks that are likely; and the longest context that is sure to start."""
    budget = plan.budget
    unit, _, low, _ = kv_pool(budget)
    end = f"at the low end of the KV {unit}' interval ({low:,})"
    if budget.engine == SGLANG or starts_with_fewest(plan):
        return f"{end}, no users are served; narrow the interval with --startup-log"
    longest = longest_fit(plan.architecture, plan.gpu, budget, plan.given)
    shorter = f"lower --max-model-len to {longest} or " if longest else ""
    return (
        f"{end}, vLLM would not start: the blocks do not hold one request of max_model_len {budget.max_model_len:,}; "
        f"{shorter}narrow the interval with --startup-log"
    )


def row_layout(row: CapacityRow) -> str:
    if not row.replicas:  # the sizes asked for do not divide the GPUs
        return "–"
    unused = f", {row.unused_gpus} unused" if row.unused_gpus else ""
    return layout_text(row.replicas, row.tp, row.dp, row.pp) + unused
