"""One interval of users for what replications, step times and the KV pool leave open."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.deployment import Deployment
from simulator.fleet.fleet import Fleet
from simulator.study.capacity import Capacity, Evaluator, Point, coarse_capacity
from simulator.study.loads import Load

POOL_MATTERS = 0.02  # half of the interval of KV blocks, from which on users are searched at its ends
SLOWER, FASTER = "users_if_slower", "users_if_faster"
SMALLER, LARGER = "users_if_pool_smaller", "users_if_pool_larger"


def interval_of_users(sampled: Mapping[str, int], within: Mapping[str, Any]) -> dict[str, Any]:
    """All sources of error as one interval: their logarithms add as independent errors do.

    `sampled` has what replications say (`low`, `mean`, `high`), `within` what `users_within_errors` found.
    """
    users, low, high = sampled["mean"], sampled["low"], sampled["high"]
    worse = [within.get(name, users) for name in (SLOWER, SMALLER)]
    better = [within.get(name, users) for name in (FASTER, LARGER)]
    return {
        **within,
        "users_low": math.floor(_together(users, [low, *worse])),
        "users_high": math.floor(_together(users, [high, *better])),
        "users_low_sampling": low,
        "users_high_sampling": high,
    }


def _together(users: int, ends: Iterable[int]) -> float:
    """An end of the interval from where each source alone puts it, all on the same side of `users`."""
    others = [end for end in ends if end != users]
    if users == 0 or len(others) < 2 or min(others) == 0:  # exact, whatever logarithms round to
        return max(others, default=users) if min(others, default=users) > users else min(others, default=users)
    distance = math.hypot(*(math.log(end / users) for end in others))
    return users * math.exp(math.copysign(distance, others[0] - users))


def users_within_errors(plan: Deployment, evaluator: Evaluator, found: Capacity, users: int) -> dict[str, Any]:
    """Users where step times, then the KV pool, differ by the error that covers 90 % of servers."""
    if not users:
        return {}
    return _within_step_times(plan, evaluator, found, users) | _within_pool(plan, evaluator, found, users)


def _within_step_times(plan: Deployment, evaluator: Evaluator, found: Capacity, users: int) -> dict[str, Any]:
    if plan.latency.is_given or found.point is None:
        return {}
    error = plan.latency.tpot_log_error.half_width_at(step.sequences if (step := found.point.mean_step) else 1.0)

    def users_times(factor: float) -> int:
        fleet = evaluator.fleet.with_pools(lambda pool: replace(pool, step_times=pool.step_times.times(factor)))
        return _users_on(fleet, evaluator, found, users, guess=found.mean / factor)

    slower, faster = users_times(1 + error), users_times(1 / (1 + error))
    return {SLOWER: min(slower, users), FASTER: max(faster, users), "step_time_error": error}


def _within_pool(plan: Deployment, evaluator: Evaluator, found: Capacity, users: int) -> dict[str, Any]:
    budget = plan.budget
    low, high = budget.num_gpu_blocks_low, budget.num_gpu_blocks_high
    if high - low < 2 * POOL_MATTERS * budget.num_gpu_blocks:
        return {}

    def users_if(blocks: int) -> int:
        fleet = evaluator.fleet.with_pools(
            lambda pool: replace(pool, engine=replace(pool.engine, num_gpu_blocks=blocks))
        )
        return _users_on(fleet, evaluator, found, users, guess=found.mean)

    starts = budget.kv_cache_tokens_low >= budget.max_model_len  # else vLLM refuses to
    return {SMALLER: min(users_if(low), users) if starts else 0, LARGER: max(users_if(high), users)}


def _users_on(fleet: Fleet, evaluator: Evaluator, found: Capacity, users: int, *, guess: float) -> int:
    """Users of another fleet under the same load."""
    other = replace(evaluator, fleet=fleet, known={})
    return math.floor(users * coarse_capacity(other, guess, found) / found.mean)


def users_at(load: Load, point: Point | None) -> int:
    """How many users a simulated load stands for; 0 where there is none."""
    if point is None:
        return 0
    e2e_s = point.times("e2e_s")
    finished_s = e2e_s[np.isfinite(e2e_s)]
    e2e_mean_s = float(finished_s.mean()) if len(finished_s) else point.mean("horizon_s")  # none: it takes longer still
    return int(load.users(point.size, requests_per_s=point.mean("requests_per_s"), e2e_mean_s=e2e_mean_s))
