"""Waiting times are those of queueing theory where theory has them exactly."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from simulator.study.statistics import t_interval
from workloads.requests import independent_requests

STEP_S = 0.01
REPLICATIONS, REQUESTS, DROPPED = 12, 20_000, 2_000
CONFIDENCE = 0.999  # of each comparison; seeds are fixed

Sampler = Callable[[np.random.Generator, int], NDArray[np.int64]]


def mean_waits_s(*, rate_per_s: float, servers: int, service_steps: Sampler) -> NDArray[np.float64]:
    """Mean time from arrival to first schedule, one figure per replication: one slot is one server."""
    engine = EngineConfig(
        num_gpu_blocks=200_000,
        max_model_len=10**6,
        max_num_seqs=servers,
        max_num_batched_tokens=64,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    times = constant_step_times(STEP_S, max_num_batched_tokens=64, max_num_seqs=servers)
    means = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        table = independent_requests(
            arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, REQUESTS)),
            prompt_tokens=np.ones(REQUESTS),
            output_tokens=service_steps(rng, REQUESTS),
        )
        simulation = Simulation(Fleet(pools=(Pool(engine=engine, step_times=times),)), table)
        simulation.run()
        waits_s = simulation.requests["scheduled_s"] - simulation.requests["arrival_s"]
        means.append(float(waits_s[DROPPED:].mean()))
    return np.array(means)


def pollaczek_khinchine_s(rate_per_s: float, mean_s: float, second_moment: float) -> float:
    """Mean wait of M/G/1."""
    return rate_per_s * second_moment / (2 * (1 - rate_per_s * mean_s))


def erlang_c_wait_s(rate_per_s: float, mean_s: float, servers: int) -> float:
    """Mean wait of M/M/c."""
    load = rate_per_s * mean_s
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    waits = last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)
    return waits * mean_s / (servers - load)


def assert_agree(measured_s: NDArray[np.float64], theory_s: float, *, slack_s: float = 0.0) -> None:
    interval = t_interval(measured_s, confidence=CONFIDENCE)
    assert interval.low - slack_s <= theory_s <= interval.high + slack_s, (interval, theory_s)
    assert interval.high - interval.low < 0.25 * theory_s, "too few replications to prove anything"


def test_one_slot_with_equal_answers_waits_as_m_d_1() -> None:
    steps, utilization = 20, 0.7
    service_s = steps * STEP_S
    rate = utilization / service_s
    waits = mean_waits_s(rate_per_s=rate, servers=1, service_steps=lambda _, n: np.full(n, steps))
    assert_agree(waits, pollaczek_khinchine_s(rate, service_s, service_s**2))


@pytest.mark.slow
def test_one_slot_with_geometric_answers_waits_as_m_g_1_and_nearly_as_m_m_1() -> None:
    steps, utilization = 40, 0.6
    service_s, end = steps * STEP_S, 1 / steps
    rate = utilization / service_s
    waits = mean_waits_s(rate_per_s=rate, servers=1, service_steps=lambda rng, n: rng.geometric(end, n))
    assert_agree(waits, pollaczek_khinchine_s(rate, service_s, STEP_S**2 * (2 - end) / end**2))
    m_m_1 = utilization * service_s / (1 - utilization)
    assert_agree(waits, m_m_1, slack_s=m_m_1 / (2 * steps))  # geometric has 1/(2·steps) less second moment


def test_c_slots_with_geometric_answers_wait_as_m_m_c_to_within_a_step() -> None:
    steps, servers, utilization = 60, 4, 0.8
    service_s = steps * STEP_S
    rate = utilization * servers / service_s
    waits = mean_waits_s(rate_per_s=rate, servers=servers, service_steps=lambda rng, n: rng.geometric(1 / steps, n))
    assert_agree(waits, erlang_c_wait_s(rate, service_s, servers), slack_s=STEP_S)
