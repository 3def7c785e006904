"""The capacity that is worked out without a simulation."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu
from simulator.deployment import Deployment, resolve
from simulator.study import traffic
from simulator.study.capacity_screening import screen_capacity
from simulator.study.estimate import ROUGHLY, Estimate, estimate_users, stationary_load
from simulator.study.loads import Load, TraceLoad, UserLoad
from simulator.study.points import Evaluator
from simulator.study.slo import SLO
from simulator.study.traffic import traffic_of
from workloads.clients import Clients, Library
from workloads.distributions import Exponential
from workloads.load import load_preset
from workloads.populations.population import Population
from workloads.populations.sessions import NO_TIME
from workloads.requests import independent_requests
from workloads.synthetic import single_turn_users
from workloads.traces.trace import Trace

CHAT = load_preset("chat")
ROUNDING = 1.1  # a step of the estimate's own search, and whole users


@cache
def deployment(gpu: str = "h100-sxm", **arguments: Any) -> Deployment:
    return resolve("llama-3.1-8b", gpu, max_model_len=16_384, **arguments)


def users(population: Population = CHAT, seed: int = 0) -> UserLoad:
    return UserLoad(population=population, max_model_len=16_384, seed=seed)


def estimate(
    plan: Deployment | None = None, replicas: int = 1, load: Load | None = None, slo: SLO | None = None
) -> Estimate:
    return estimate_users(plan or deployment(), replicas, load or users(), slo or SLO())


def trace(requests_per_s: float = 5.0, burst: int = 1) -> TraceLoad:
    """Requests that arrive `burst` at a time."""
    rng = np.random.default_rng(1)
    arrival = np.repeat(np.cumsum(rng.exponential(burst / requests_per_s, 6000 // burst)), burst)
    table = independent_requests(
        arrival_s=arrival - arrival[0],
        prompt_tokens=np.full(len(arrival), 800),
        output_tokens=np.full(len(arrival), 100),
    )
    return TraceLoad(trace=Trace(name="made", format="", table=table, source=""), think_time_s=30.0, seed=0)


# -- laws


@pytest.mark.slow
@settings(max_examples=5)
@given(st.sampled_from((0.3, 1.0, 3.0)), st.sampled_from((0.02, 0.04, 0.08)), st.sampled_from((0.9, 0.95)))
def test_looser_limits_never_serve_fewer(ttft_s: float, tpot_s: float, attainment: float) -> None:
    tight = estimate(slo=SLO(ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment)).size
    loose = estimate(slo=SLO(ttft_s=2 * ttft_s, tpot_s=1.5 * tpot_s, attainment=attainment)).size
    laxer = estimate(slo=SLO(ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment - 0.05)).size
    grows = estimate(slo=SLO(ttft_s=ttft_s, tpot_s=tpot_s, attainment=attainment, ttft_token_s=3e-4)).size
    assert tight <= ROUNDING * min(loose, laxer, grows)


@pytest.mark.parametrize(("gpu", "slo"), [("l40s", SLO(ttft_s=1.5)), ("h100-sxm", SLO())])
def test_more_replicas_serve_more(gpu: str, slo: SLO) -> None:
    """Without a cache: a conversation is not found again on another replica. Lone prompts take an L40S 1 s at p95."""
    plan = deployment(gpu, enable_prefix_caching=False)
    sizes = [estimate(plan, replicas, slo=slo).size for replicas in (1, 2, 4)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] > 3.5 * sizes[0]


def test_more_kv_blocks_never_serve_fewer() -> None:
    sizes = [estimate(deployment(num_gpu_blocks_override=blocks)).size for blocks in (3000, 8000, 20_000)]
    assert sizes[0] < sizes[1] <= ROUNDING * sizes[2]


def test_few_sequences_bind() -> None:
    few = estimate(deployment(max_num_seqs=4))
    assert few.size < estimate().size / 5
    assert few.binding == "TTFT: max_num_seqs"
    assert few.in_flight <= 4 + 1


@pytest.mark.slow
@pytest.mark.parametrize("slo", [SLO(), SLO(ttft_s=None, tpot_s=0.02)])
def test_who_thinks_longer_leaves_room_for_more(slo: SLO) -> None:
    sizes = [
        estimate(deployment(enable_prefix_caching=False), load=users(CHAT.with_think_time(think_s)), slo=slo).size
        for think_s in (5.0, 20.0, 80.0)
    ]
    assert sizes[0] < sizes[1] < sizes[2]


def test_a_faster_gpu_serves_more() -> None:
    sizes = [estimate(deployment(gpu)).size for gpu in ("l40s", "a100-80gb", "h100-sxm")]
    assert sizes[0] < sizes[1] < sizes[2]


def test_prefix_caching_serves_more() -> None:
    assert estimate(deployment(enable_prefix_caching=False)).size < estimate().size


def test_no_more_is_served_than_prefill_and_memory_bandwidth_allow() -> None:
    """By the arithmetic of prompts alone, at the peak of the data sheet."""
    load = users(single_turn_users(input_len=6000, output_len=50, think_time_s=30.0))
    found = estimate(load=load, slo=SLO(ttft_s=30.0, tpot_s=1.0))
    flops = 2 * 8.0e9 * 6000
    assert found.requests_per_s < find_gpu("h100-sxm").flops_per_s["bf16"] / flops


@pytest.mark.parametrize("load", [users(), trace()], ids=["users", "trace"])
def test_the_figures_obey_little_s_law_and_the_slo(load: Load) -> None:
    slo = SLO(ttft_s=1.0, tpot_s=0.04)
    found = estimate(load=load, slo=slo)
    assert found.attainment >= slo.attainment
    assert found.ttft_s <= 1.0 and found.tpot_s <= 0.04
    assert 0 < found.kv_usage < 1
    thinking = found.requests_per_s * CHAT.think_time_s.mean()
    if isinstance(load, UserLoad):
        assert found.size == pytest.approx(thinking + found.in_flight, rel=0.15)
    else:
        assert found.size == pytest.approx(found.requests_per_s, rel=0.15)


def test_where_nobody_is_served_the_estimate_is_the_smallest_load_and_says_so() -> None:
    found = estimate(slo=SLO(ttft_s=1.0, tpot_s=0.001))
    assert found.size == 1
    assert found.attainment < 0.5
    slow = estimate(load=trace(), slo=SLO(ttft_s=0.001, tpot_s=None))
    assert slow.size == pytest.approx(1e-3)


def test_the_same_question_has_the_same_answer() -> None:
    first = estimate()
    traffic._traffic.cache_clear()
    assert estimate(load=users(replace(CHAT))) == first


def test_bursts_leave_room_for_fewer() -> None:
    slo = SLO(ttft_s=0.5, tpot_s=0.03)
    assert estimate(load=trace(burst=20), slo=slo).size < 0.8 * estimate(load=trace(), slo=slo).size


def test_clients_who_wait_less_leave_room_for_fewer() -> None:
    def sizes(*clients: Clients) -> list[float]:
        return [estimate(load=users(replace(CHAT, clients=each))).size for each in clients]

    patient = sizes(*(Clients(patience_s=Exponential(mean_value=mean_s)) for mean_s in (3.0, 10.0, 1e6)))
    assert patient[0] < patient[1] < patient[2] == estimate().size
    tries = (Library(timeout_s=20.0, retries=retries) for retries in (2, 1, 0))
    timed_out = sizes(*(Clients(library=library) for library in tries))
    assert timed_out[0] < timed_out[1] < timed_out[2] < estimate().size


def test_a_trace_may_be_recorded_at_any_rate() -> None:
    assert estimate(load=trace(50.0)).size == pytest.approx(estimate(load=trace(0.5)).size, rel=1e-6)


def test_a_load_that_is_neither_users_nor_a_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="give a UserLoad or a TraceLoad"):
        estimate(load=object())  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_attention_ranks_serve_more_than_one_engine(model: str) -> None:
    one, two = (resolve(model, "h100-sxm", max_model_len=16_384, data_parallel_size=ranks) for ranks in (1, 2))
    assert two.fleet(3, "least-outstanding").num_engines == 6  # as the estimate counts them
    assert estimate(two).size > 1.5 * estimate(one).size


# -- how long answers take


def test_answers_take_as_long_as_requests_are_in_flight() -> None:
    found = estimate()
    mean_s = found.answers.of(traffic_of(users(), 1).prompt, traffic_of(users(), 1).output).mean()
    assert mean_s == pytest.approx(found.in_flight / found.requests_per_s, rel=ROUGHLY)  # Little's law
    assert found.answers.prompt_token_s > 0, "who sends more waits longer"


def test_where_nothing_is_served_nobody_knows_how_long_answers_take() -> None:
    assert estimate(slo=SLO(ttft_s=1.0, tpot_s=1e-6)).answers == NO_TIME


def test_a_trace_has_times_of_its_own() -> None:
    load = trace()
    assert stationary_load(load, deployment(), 1, SLO()) is load


# -- what a cache may hold


@pytest.mark.parametrize("engines", [1, 4])
def test_what_is_kept_longer_is_found_more_often(engines: int) -> None:
    cache = traffic_of(users(), engines).cache
    assert (np.diff(cache.kept_for) > 0).all()
    assert (np.diff(cache.tokens, axis=0) >= 0).all()
    assert (np.diff(cache.size) >= 0).all()
    assert (cache.tokens < traffic_of(users(), engines).prompt).all()


def test_on_one_engine_everything_said_before_is_found() -> None:
    """All but the new message of a turn, where nothing is ever dropped."""
    alone, spread = traffic_of(users(), 1), traffic_of(users(), 8)
    new = alone.prompt - alone.cache.tokens[-1]
    assert new.mean() == pytest.approx(CHAT.user_tokens.mean(), rel=0.15)
    assert (spread.prompt - spread.cache.tokens[-1]).mean() > new.mean()


# -- beside the simulation


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "load", "slo"),
    [
        (deployment("l40s"), users(), SLO(ttft_s=2.0, tpot_s=0.06)),
        (deployment("l4"), users(CHAT.with_think_time(10.0)), SLO(ttft_s=3.0, tpot_s=0.08)),
        (deployment("a100-80gb"), trace(), SLO(ttft_s=1.0, tpot_s=0.05)),
        (deployment(), users(replace(CHAT, clients=Clients(patience_s=Exponential(mean_value=3.0)))), SLO()),
        (deployment(), users(replace(CHAT, clients=Clients(library=Library(timeout_s=20.0)))), SLO()),
    ],
    ids=["chat", "few users", "trace", "patience", "time-out"],
)
def test_the_estimate_comes_near_the_search(plan: Deployment, load: Load, slo: SLO) -> None:
    found = estimate(plan, load=load, slo=slo).size
    evaluator = Evaluator(fleet=plan.fleet(1, "least-outstanding"), load=load, slo=slo)
    searched = screen_capacity(evaluator, found)
    assert math.log(found / searched) == pytest.approx(0.0, abs=math.log(1.3))
