"""Requests of a population over a time or at a rate, in order of arrival, as a trace has them."""

import math
from dataclasses import replace

import numpy as np

from boundary.files import InputError
from workloads.arrivals import Arrivals, arrival_times
from workloads.description.arrivals import earliest_arrival_s
from workloads.populations.population import Population
from workloads.requests import NO_PREDECESSOR, FloatArray, IntArray, RequestTable

_DEVIATIONS = 8  # square roots of the mean number of turns: the most diligent of 100,000 users, think times of CV 1.8


def requests_over(
    population: Population, *, num_users: int, duration_s: float, seed: int, max_model_len: int
) -> RequestTable:
    """What so many users send within a time if answers take none; each turn follows the one before."""
    think_s = population.think_time_s.mean()
    if not think_s > 0:
        raise InputError(f"workload '{population.name}' has no think time, so users send without end; give a rate")
    mean = duration_s / think_s
    turns = math.ceil(mean + _DEVIATIONS * math.sqrt(mean)) + 8
    while True:
        sessions = population.sessions(num_users, turns, seed, max_model_len)
        if (sessions.arrival_s()[:, -1] > duration_s).all():
            return _until(sessions.table(duration_s), duration_s)
        turns *= 2


def requests_at(
    population: Population, arrivals: Arrivals, *, rate_per_s: float, num_requests: int, seed: int, max_model_len: int
) -> RequestTable:
    """What users send who are as many as send at that rate, in their order, but at the times of a process."""
    think_s = population.think_time_s.mean() or 1.0
    users = max(1, round(min(rate_per_s * think_s, num_requests / 2)))
    duration_s = (num_requests + 3 * math.sqrt(num_requests) + 10) * think_s / users
    while True:
        table = requests_over(
            population, num_users=users, duration_s=duration_s, seed=seed, max_model_len=max_model_len
        )
        if table.num_requests >= num_requests:
            break
        duration_s *= 1.2
    n = num_requests
    return replace(
        table.head(n),
        arrival_s=arrival_times(arrivals, rate_per_s, n, seed),
        follows=np.full(n, NO_PREDECESSOR, np.int64),
        think_s=np.zeros(n),
    )


def _until(table: RequestTable, duration_s: float) -> RequestTable:
    """The rows that arrive within the time, in order of arrival; a turn never comes before the one it follows."""
    at_s = earliest_arrival_s(table)
    order = np.argsort(at_s, kind="stable")
    return _in_order(table, order[: np.searchsorted(at_s[order], duration_s)])


def _in_order(table: RequestTable, rows: IntArray) -> RequestTable:
    """These rows; each comes after the one that it follows."""
    place = np.full(table.num_requests, NO_PREDECESSOR, np.int64)
    place[rows] = np.arange(len(rows))
    follows = table.follows[rows]
    arrival_s: FloatArray = table.arrival_s[rows]
    return replace(
        table,
        arrival_s=arrival_s,
        follows=np.where(follows >= 0, place[follows], follows),
        think_s=table.think_s[rows],
        prompt_tokens=table.prompt_tokens[rows],
        output_tokens=table.output_tokens[rows],
        priority=table.priority[rows],
        span_start=table.span_start[rows],
        span_count=table.span_count[rows],
    )
