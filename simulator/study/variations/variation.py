"""One of many variations of a question: looked at in milliseconds, then simulated, but more briefly than alone."""

from dataclasses import dataclass, replace
from typing import Any

from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.study.bottleneck import what_binds
from simulator.study.candidate import RunContext, evaluator_of
from simulator.study.capacity import Capacity, find_capacity
from simulator.study.capacity_interval import (
    FASTER,
    LARGER,
    LATER,
    POOL_MATTERS,
    SLOWER,
    SMALLER,
    SOONER,
    load_on,
    starts_with_fewest,
    ttft_limits,
    users_within_errors,
    with_fewest,
)
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, empty_row, no_capacity_reason, row_of
from simulator.study.capacity_table import plans_of
from simulator.study.estimate import Estimate, estimate_users, estimated_users
from simulator.study.fleets.disaggregation import (
    capacity_of_disaggregated,
    disaggregated_row,
    evaluator_of_disaggregated,
)
from simulator.study.fleets.pair_estimate import estimated_users_of_pair
from simulator.study.points import Evaluator
from simulator.study.served import safe_point
from simulator.study.slo import SLO

SENSITIVE = 0.5  # of the users: where an error leaves fewer, how many is simulated


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """What an estimate says of a question with one GPU count; with a reason nothing runs there."""

    question: CapacityQuestion
    gpus: int
    users: int = 0  # about
    plan: Deployment | None = None
    estimate: Estimate | None = None
    reason: str | None = None
    tp: int = 1
    disaggregated: DisaggregatedDeployment | None = None  # whose answers `plan` computes


def screen(question: CapacityQuestion) -> Candidate:
    """The tensor-parallel size that serves most by its estimate, of those that the question leaves open."""
    gpus = question.gpus[0]
    plans = plans_of(question, gpus)
    found: list[Candidate] = []
    for tp, plan in plans.items():
        if isinstance(plan, Deployment):
            load = question.load(plan)
            estimate = estimate_users(plan, gpus // plan.gpus, load, question.slo)
            users = estimated_users(load, estimate, question.slo)
            found.append(Candidate(question=question, gpus=gpus, users=users, plan=plan, estimate=estimate, tp=tp))
    if found:
        return max(found, key=lambda each: (each.users, -each.tp))
    why = str(next(reversed(plans.values()), "no tensor-parallel size divides the GPUs"))
    return Candidate(question=question, gpus=gpus, reason=why, tp=max(plans, default=1))


def screen_disaggregated(question: CapacityQuestion, disaggregated: DisaggregatedDeployment) -> Candidate:
    """The same where disaggregated."""
    users = estimated_users_of_pair(
        disaggregated, question.load(disaggregated.decode), question.slo, question.think_time_s
    )
    tp = disaggregated.decode.tensor_parallel_size
    return Candidate(
        question=question,
        gpus=disaggregated.gpus,
        users=users,
        plan=disaggregated.decode,
        tp=tp,
        disaggregated=disaggregated,
    )


def _simulated_disaggregated(looked: Candidate, disaggregated: DisaggregatedDeployment, how: RunContext) -> CapacityRow:
    evaluator = evaluator_of_disaggregated(looked.question, disaggregated, how)
    return disaggregated_row(
        looked.question,
        disaggregated,
        evaluator,
        capacity_of_disaggregated(looked.question, disaggregated, evaluator, is_quick=True),
    )


def simulated(looked: Candidate, how: RunContext, *, is_served: bool = False) -> CapacityRow:
    """The row of a variation, from two loads around its capacity; errors of step times and KV pool by estimate.

    `is_served`: the load at 95 % confidence is simulated, too.
    """
    question, plan, gpus = looked.question, looked.plan, looked.gpus
    if looked.disaggregated is not None:
        return _simulated_disaggregated(looked, looked.disaggregated, how)
    if plan is None or looked.estimate is None:
        return empty_row(question, gpus, looked.tp, looked.reason or "it does not run")
    evaluator = evaluator_of(question, plan, gpus // plan.gpus, how)
    found = find_capacity(
        evaluator,
        looked.estimate.size,
        precision=question.precision,
        replications=question.replications,
        is_quick=True,
    )
    if not found.mean:
        row = empty_row(question, gpus, looked.tp, no_capacity_reason(question, evaluator), plan)
        return replace(row, binding=what_binds(plan, evaluator.points()[0]))
    row = row_of(
        question,
        plan,
        evaluator,
        found,
        gpus=gpus,
        within_errors=lambda users: estimated_within_errors(looked, evaluator, found, users),
    )
    if not is_served:
        return row
    return replace(row, safe_point=safe_point(evaluator, found, users=row.users, users_low=row.users_low))


def estimated_within_errors(looked: Candidate, evaluator: Evaluator, found: Capacity, users: int) -> dict[str, object]:
    """Users where step times, then the KV pool, differ by the error that covers 90 % of servers, as estimates have it.

    An estimate's own error cancels in the ratio of two of them, but not where few are left: there they are simulated.
    """
    plan, here = looked.plan, looked.estimate
    if plan is None or here is None or not users or not looked.users:
        return {}

    def users_if(other: Deployment, slo: SLO = evaluator.slo) -> int:
        load = load_on([other], evaluator.load)
        if load is None:
            return 0
        there = estimate_users(other, looked.gpus // plan.gpus, load, slo)
        serves = estimated_users(load, there, slo) > 0
        return round(users * there.size / here.size) if serves else 0

    within: dict[str, Any] = {}
    if not plan.latency.is_given and found.point is not None:
        sequences = step.sequences if (step := found.point.mean_step) else 1.0
        error = plan.latency.step_error_at(sequences)
        slower, faster = users_if(plan.with_step_times(1 + error)), users_if(plan.with_step_times(1 / (1 + error)))
        within |= {SLOWER: min(slower, users), FASTER: max(faster, users), "step_time_error": error}
        if evaluator.slo.ttft_s is not None and (error := plan.latency.ttft_error_at(sequences)):
            later, sooner = (users_if(plan, limits) for limits in ttft_limits(evaluator.slo, error))
            within |= {LATER: min(later, users), SOONER: max(sooner, users), "ttft_error": error}
    budget = plan.budget
    if budget.num_gpu_blocks_high - budget.num_gpu_blocks_low >= 2 * POOL_MATTERS * budget.num_gpu_blocks:
        smaller = users_if(with_fewest(plan)) if starts_with_fewest(plan) else 0
        larger = users_if(plan.with_kv_blocks(budget.num_gpu_blocks_high))
        within |= {SMALLER: min(smaller, users), LARGER: max(larger, users)}
    is_sensitive = min(within.get(name, users) for name in (SLOWER, LATER, SMALLER)) < SENSITIVE * users
    return users_within_errors([plan], evaluator, found, users) if is_sensitive else within
