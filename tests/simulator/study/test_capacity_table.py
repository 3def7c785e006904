"""Users per GPU count, on questions small enough to be simulated here."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.queries.report_data.study import loads_json
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study import loads
from simulator.study.candidate import RunContext
from simulator.study.capacity_interval import interval_of_users
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable, capacity_rows
from simulator.study.slo import SLO
from simulator.study.slo_crossing import Located
from simulator.study.statistics import FloatArray, t_interval
from workloads.synthetic import single_turn_users

DESIGN_KEYS = {
    "gpus", "replicas", "tp", "users", "users_low", "users_high", "binding", "usd_per_hour", "at_users_low", "at_users",
}  # fmt: skip
LOAD_KEYS = {
    "in_flight", "requests_per_s", "output_tokens_per_s", "ttft_s", "tpot_s", "attainment",
    "usd_per_million_output_tokens", "kv_usage", "prefix_hit_rate", "preemptions_per_request",
}  # fmt: skip
FURTHER_KEYS = {
    "users_long_run", "hours_over_long_run",
    "num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high", "reason", "users_low_sampling",
    "users_high_sampling", "users_at_step_time_error_high",
    "screened", "users_at_step_time_error_low", "step_time_error", "users_at_ttft_error_high",
    "users_at_ttft_error_low", "ttft_error", "users_at_kv_cache_low", "users_at_kv_cache_high", "dp", "pp", "precision",
    "users_low_precision", "users_high_precision", "replications", "router", "unused_gpus", "evidence",
}  # fmt: skip
LATENCY_KEYS = {"mean", "p50", "p90", "p95", "p99", "p95_low", "p95_high"}


ARGS = EngineArgs(tensor_parallel_size=1, max_num_seqs=2, max_model_len=2048)


def question(**changes: Any) -> CapacityQuestion:
    """Few sequences at a time, so that few users are many."""
    settled: dict[str, Any] = {
        "architecture": load_model("llama-3.1-8b"),
        "gpu": find_gpu("h100-sxm"),
        "gpus": (1, 2),
        "workload": single_turn_users(input_len=200, output_len=40, think_time_s=20.0),
        "think_time_s": 20.0,
        "slo": SLO(ttft_s=0.5, tpot_s=0.05),
        "args": ARGS,
        "replications": 6,
    }
    return CapacityQuestion(**(settled | changes))


@pytest.fixture(autouse=True, scope="module")
def short_runs() -> Iterator[None]:
    """Fewer requests than a user's question: what is proved here holds of any number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "REQUESTS_PER_REPLICATION", 1000)
        yield


@cache
def small_answer() -> tuple[CapacityRow, ...]:
    return tuple(capacity_rows(question()))


@pytest.mark.slow
def test_rows_come_in_the_asked_order() -> None:
    rows = list(capacity_rows(question(gpus=(2, 1))))
    assert [row.gpus for row in rows] == [2, 1]
    assert [(row.replicas, row.tp) for row in rows] == [(2, 1), (1, 1)]


@pytest.mark.slow
def test_what_a_longer_limit_serves_does_not_depend_on_limits_asked_before() -> None:
    def shares(*factors: float) -> list[float]:
        (found,) = CapacityTable(question=question(gpus=(1,)), how=RunContext()).candidates(1)
        return [found.simulated.share_under(found.simulated.question.slo.with_ttft(factor)) for factor in factors]

    assert shares(4.0) == shares(2.0, 0.5, 4.0)[2:]


@pytest.mark.slow
def test_a_row_as_json_has_the_agreed_keys_and_nothing_that_json_lacks() -> None:
    for row in small_answer():
        found = row.to_json()
        assert set(found) == DESIGN_KEYS | FURTHER_KEYS
        for at in (found["at_users_low"], found["at_users"]):
            assert set(at) == LOAD_KEYS
            assert set(at["ttft_s"]) == set(at["tpot_s"]) == LATENCY_KEYS
            assert set(at["attainment"]) == {"mean", "low", "high"}
        json.dumps(found, allow_nan=False)


@pytest.mark.slow
def test_the_number_to_sign_is_no_larger_than_the_mean() -> None:
    for row in small_answer():
        assert 0 <= row.users_low <= row.users <= row.users_high
        assert row.point is not None
        known = [point for point in row.curve if len(point.replications) == row.replications]
        below = max((point for point in known if point.size <= row.users), key=lambda point: point.size)
        above = min((point for point in known if point.size > row.users), key=lambda point: point.size)
        share = math.log(row.users / below.size) / math.log(above.size / below.size)
        pairs = zip(below.replications, above.replications, strict=True)
        there = t_interval([(1 - share) * one.attainment + share * other.attainment for one, other in pairs])
        assert there.low <= 0.95 <= there.high
        assert row.point.size == row.users


@pytest.mark.slow
def test_users_who_are_safe_to_promise_wait_no_longer_than_more_of_them() -> None:
    for row in small_answer():
        safe, mean = row.to_json()["at_users_low"], row.to_json()["at_users"]
        assert row.safe_point is not None
        assert row.safe_point.size == row.users_low < row.users
        assert safe["ttft_s"]["p95"] < mean["ttft_s"]["p95"]
        assert safe["requests_per_s"] < mean["requests_per_s"]


@pytest.mark.slow
def test_twice_the_replicas_serve_more() -> None:
    one, two = small_answer()
    assert two.users > 1.5 * one.users > 0


def test_a_figure_follows_from_the_others() -> None:
    for row in small_answer():
        found = row.to_json()
        assert found["usd_per_hour"] == row.gpus * find_gpu("h100-sxm").usd_per_hour
        found = found["at_users"] | {"usd_per_hour": found["usd_per_hour"]}
        per_token = found["usd_per_hour"] / 3600 / found["output_tokens_per_s"]
        assert found["usd_per_million_output_tokens"] == pytest.approx(1e6 * per_token)
        law = found["requests_per_s"] * (20.0 + found["in_flight"] / found["requests_per_s"])
        assert law == pytest.approx(row.users, rel=0.1)  # N = λ (Z + R), up to chance


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer_and_another_gives_another() -> None:
    again = [row.to_json() for row in capacity_rows(question(gpus=(1,)))]
    other = [row.to_json() for row in capacity_rows(question(gpus=(1,), seed=1))]
    assert again == [small_answer()[0].to_json()] != other


def test_a_tp_that_does_not_divide_the_gpus_serves_nobody_and_says_why() -> None:
    one, two = capacity_rows(question(args=replace(ARGS, tensor_parallel_size=2)))
    assert (one.users, one.runs) == (0, False)
    assert "tensor parallel size 2 does not divide 1 GPU" in (one.reason or "")
    assert two.users > 0
    assert set(one.to_json()) == DESIGN_KEYS | FURTHER_KEYS


def test_a_model_that_does_not_fit_says_by_how_much_and_what_would() -> None:
    (row,) = capacity_rows(
        question(architecture=load_model("llama-3.1-70b"), gpus=(1,), args=replace(ARGS, tensor_parallel_size=None))
    )
    assert (row.users, row.runs) == (0, False)
    assert "GiB short per GPU" in (row.reason or "")
    assert "fits with" in (row.reason or "")
    assert "--tensor-parallel-size 2" in (row.reason or "") or "--quantization" in (row.reason or "")


def test_an_slo_that_not_even_one_user_gets_is_a_row_of_none_with_the_limit_missed() -> None:
    (row,) = capacity_rows(question(gpus=(1,), slo=SLO(ttft_s=0.5, tpot_s=1e-6)))
    assert (row.users, row.users_low, row.runs) == (0, 0, True)
    assert "100% miss the TPOT limit" in (row.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"tpot_s": 0.0075}, {"ttft_s": 0.2}])
def test_a_gpu_twice_as_fast_never_serves_fewer(limit: dict[str, float]) -> None:
    gpu = find_gpu("h100-sxm")
    fast = replace(
        gpu,
        memory_bandwidth_bytes_per_s=2 * gpu.memory_bandwidth_bytes_per_s,
        flops_per_s={name: 2 * value for name, value in gpu.flops_per_s.items()},
    )
    rows = [
        next(capacity_rows(question(gpu=each, gpus=(1,), slo=SLO(**{"ttft_s": 1.0, "tpot_s": 0.05} | limit))))
        for each in (gpu, fast)
    ]
    assert rows[1].users >= rows[0].users
    assert rows[1].users_low >= rows[0].users_low


@pytest.mark.parametrize(("changes", "message"), [({"gpus": ()}, "GPU counts"), ({"gpus": (0,)}, "GPU counts"),
    ({"replications": 1}, "give no interval")])  # fmt: skip
def test_a_question_without_an_answer_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        question(**changes)


def test_the_interval_of_users_holds_sampling_and_step_times() -> None:
    (row,) = capacity_rows(question(gpus=(1,)))
    assert (
        row.users_at_step_time_error_high is not None
        and row.users_at_step_time_error_low is not None
        and row.step_time_error is not None
    )
    assert row.users_low <= min(row.users_low_sampling, row.users_at_step_time_error_high)
    assert row.users_at_step_time_error_high <= row.users <= row.users_at_step_time_error_low
    assert row.users_high >= max(row.users_high_sampling, row.users_at_step_time_error_low)
    assert row.users_low_precision is not None and row.users_high_precision is not None
    assert row.precision / 2 < row.users_low_precision < 3 * row.precision
    assert 0.04 < row.step_time_error < 0.5


def test_where_ttft_binds_its_own_error_is_in_the_interval_as_a_limit_that_is_as_much_shorter() -> None:
    base = question(gpus=(1,))
    (row,) = capacity_rows(base)
    assert row.users_at_ttft_error_high is not None and row.ttft_error is not None and row.plan is not None
    assert row.users_low <= row.users_at_ttft_error_high < row.users
    limit_s = base.slo.ttft_s / (1 + row.ttft_error)
    (under,) = capacity_rows(replace(base, slo=replace(base.slo, ttft_s=limit_s)))
    assert row.users_at_ttft_error_high == pytest.approx(under.users, rel=0.05)


@pytest.mark.parametrize("ttft_s", [None, 600.0])
def test_where_ttft_hardly_matters_the_interval_leaves_its_error_out(ttft_s: float | None) -> None:
    slow = EngineArgs(tensor_parallel_size=1, max_num_seqs=64, max_model_len=2048)
    (row,) = capacity_rows(question(gpus=(1,), args=slow, slo=SLO(ttft_s=ttft_s, tpot_s=0.011)))
    assert row.users and row.step_time_error is not None
    assert row.ttft_error is row.users_at_ttft_error_high is row.users_at_ttft_error_low is None


@given(st.lists(st.integers(0, 5000), min_size=3, max_size=3), st.lists(st.integers(0, 5000), min_size=2, max_size=2))
def test_an_interval_reaches_at_least_as_far_as_each_of_its_sources(sampled: list[int], others: list[int]) -> None:
    low, users, high = sorted(sampled)
    slower, faster = min(users, *others), max(users, *others)
    drawn = {"low": low, "mean": users, "high": high}
    alone = interval_of_users(drawn, {})
    assert (alone["users_low"], alone["users_high"]) == (low, high)
    both = interval_of_users(drawn, {"users_at_step_time_error_high": slower, "users_at_step_time_error_low": faster})
    assert 0 <= both["users_low"] <= min(low, slower)
    assert both["users_high"] >= max(high, faster)
    pool = {"users_at_kv_cache_low": slower, "users_at_kv_cache_high": faster}
    three = interval_of_users(drawn, both | pool)
    assert three["users_low"] <= both["users_low"] <= both["users_high"] <= three["users_high"]
    four = interval_of_users(
        drawn, both | pool | {"users_at_ttft_error_high": slower, "users_at_ttft_error_low": faster}
    )
    assert four["users_low"] <= three["users_low"] <= three["users_high"] <= four["users_high"]
    exact = interval_of_users({"low": users, "mean": users, "high": users}, both)
    assert (exact["users_low"], exact["users_high"]) == (slower, faster)


FOUND = st.builds(
    Located,
    size=st.integers(1, 5000),
    errors=st.lists(st.floats(-0.02, 0.02), min_size=3, max_size=3).map(np.array),
    fewest=st.just(3),
)


@given(users=FOUND, end=FOUND)
def test_an_end_with_a_single_source_is_known_as_well_as_that(users: Located, end: Located) -> None:
    sampled = {"low": users.size, "mean": users.size, "high": users.size}
    within = {"users_at_step_time_error_high": min(users.size, end.size)}
    found = interval_of_users(sampled, within | {"located": {"users": users, "users_at_step_time_error_high": end}})
    whose = users if end.size == users.size else end
    assert found["users_low_precision"] == pytest.approx(whose.half_width, rel=1e-6, abs=1e-12)
    assert found["users_high_precision"] == pytest.approx(users.half_width)


@given(users=FOUND, ends=st.lists(FOUND, min_size=2, max_size=2), factor=st.floats(1e-6, 1e-5))
def test_the_error_of_an_end_is_how_far_a_replication_moves_it(
    users: Located, ends: list[Located], factor: float
) -> None:
    """The derivative of the formula that makes the end, by moving what it is made of."""
    names = ("users_at_step_time_error_high", "users_at_ttft_error_high")
    sizes = [math.log(users.size)] + [math.log(users.size * min(each.size / 5001, 0.99)) for each in ends]

    def end(logs: list[float]) -> float:
        return logs[0] - math.hypot(*(each - logs[0] for each in logs[1:]))

    moved: list[FloatArray] = [each.errors for each in (users, *ends) if each.errors is not None]
    told = [
        (end([x + factor * m[i] for x, m in zip(sizes, moved, strict=True)]) - end(sizes)) / factor for i in range(3)
    ]
    located = {"users": users} | {
        name: Located(size=math.exp(size), errors=each.errors, fewest=3)
        for name, size, each in zip(names, sizes[1:], ends, strict=True)
    }
    sampled = {"low": users.size, "mean": users.size, "high": users.size}
    found = interval_of_users(sampled, {"located": located})["users_low_precision"]
    assert found == pytest.approx(Located(size=1.0, errors=np.array(told), fewest=3).half_width, rel=1e-3, abs=1e-6)


def test_times_that_were_given_leave_sampling_alone() -> None:
    given_times = EngineArgs(
        tensor_parallel_size=1, max_num_seqs=2, max_model_len=2048, latency_model="constant", step_s=0.01
    )
    (row,) = capacity_rows(question(gpus=(1,), args=given_times))
    assert (row.users_low, row.users_high) == (row.users_low_sampling, row.users_high_sampling)
    assert row.step_time_error is row.users_at_step_time_error_high is None
    assert row.users_low_precision == pytest.approx(row.precision)


@pytest.mark.slow
def test_a_pool_that_is_hardly_known_widens_the_interval_of_users() -> None:
    """The pool of an L4 is told to a quarter: no server's log is behind it."""
    args = EngineArgs(tensor_parallel_size=1, max_model_len=1024, gpu_memory_utilization=0.82)
    load = single_turn_users(input_len=900, output_len=60, think_time_s=30.0)
    slo = SLO(ttft_s=5.0, tpot_s=1.0)
    asked = {
        "gpu": find_gpu("l4"),
        "gpus": (1,),
        "args": args,
        "workload": load,
        "think_time_s": 30.0,
        "slo": slo,
    }
    (row,) = capacity_rows(question(**asked))
    assert row.plan is not None and row.plan.budget.num_gpu_blocks_low < 0.9 * row.plan.budget.num_gpu_blocks
    assert row.users_at_kv_cache_low is not None and row.users_at_kv_cache_high is not None
    assert row.users_low <= row.users_at_kv_cache_low < row.users <= row.users_at_kv_cache_high <= row.users_high


def test_a_pool_that_is_given_leaves_its_error_out() -> None:
    (row,) = capacity_rows(
        question(gpus=(1,), args=EngineArgs(tensor_parallel_size=1, max_num_seqs=2, num_gpu_blocks_override=2000))
    )
    assert row.users_at_kv_cache_low is row.users_at_kv_cache_high is None


@pytest.mark.slow
def test_a_report_shows_copies_under_the_load_that_the_row_has() -> None:
    """Not one of them, nor the same servers behind another router; nothing of it is simulated again."""
    (row,) = capacity_rows(question(gpus=(2,), router="session-affinity"))
    asked = replace(question(gpus=(2,)), router=row.router)
    safe = row.safe_point
    assert safe is not None
    assert safe.copies == 2
    found = loads_json(asked, row, row.users_low, row.users, at_load=safe)
    loads: Any = found["loads"]
    (whole,) = (load for load in loads if load["share"] == 1.0)
    for name in ("requests_per_s", "in_flight", "kv_usage"):
        assert whole[name] == pytest.approx(safe.mean(name), rel=1e-3)
    timeline: Any = found["timeline"]
    assert np.mean(timeline["running"]) == pytest.approx(safe.mean("running"), rel=0.3)
