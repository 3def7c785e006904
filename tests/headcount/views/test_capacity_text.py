"""What the answer says first, and what it says of its interval."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headcount.diagnostics import Facts, find_diagnostics
from headcount.queries.capacity import CapacityResult
from headcount.queries.suggestions import Suggestion
from headcount.text.capacity import trace_text
from headcount.views.of.capacity import _start_lines
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import resolve
from simulator.engines.engines import AnyArgs
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from workloads.load import load_preset, usual_think_time_s
from workloads.requests import independent_requests
from workloads.traces.trace import Trace


def told(**made: Any) -> str:
    """The text of one row of made-up users, as if they had been simulated."""
    return " ".join(str(answer_of(**made)).split())


def answer_of(
    *, model: str = "qwen3-0.6b", gpu: str = "h100-sxm", args: AnyArgs | None = None, **found: Any
) -> CapacityResult:
    given = {"latency_model": "constant", "step_s": 0.01} if "step_time_error" not in found else {}
    question = CapacityQuestion(
        architecture=load_model(model),
        gpu=find_gpu(gpu),
        gpus=(2,),
        workload=load_preset("chat"),
        think_time_s=84.0,
        args=args or EngineArgs(data_parallel_size=2, max_model_len=2048, **given),
    )
    plan = resolve(question.architecture, question.gpu, question.args)
    row = CapacityRow(
        gpus=2, tp=1, dp=2, replicas=1, plan=plan, **{"users": 90, "users_high": 120, "replications": 24} | found
    )
    return CapacityResult(
        diagnostics=find_diagnostics(Facts(plans=[plan])), question=question, capacity=(row,), workload="chat"
    )


def test_a_month_s_cost_is_told_per_user_to_sign_for() -> None:
    row = answer_of(users_low=80).rows()[0]
    assert row["usd_per_month"] == 2 * (find_gpu("h100-sxm").usd_per_hour or 0) * 730
    assert row["usd_per_user_month"] == row["usd_per_month"] / 80
    assert answer_of(users_low=0).rows()[0]["usd_per_user_month"] is None


def test_a_gpu_without_a_list_price_has_no_cost_rather_than_0() -> None:
    row = answer_of(gpu="a30", users_low=80).rows()[0]
    assert row["usd_per_month"] is row["usd_per_user_month"] is None


def test_a_replica_of_two_engines_is_said_to_be_one() -> None:
    text = told(users_low=80)
    assert " 1 × TP1 DP2 " in text
    assert " blocks per data-parallel rank; " in text


def test_times_that_were_given_are_in_no_interval() -> None:
    text = told(users_low=80)
    assert "80 users at 95 % confidence on 2 GPUs (90 expected, 90 % interval 80 to 120)" in text
    assert "interval, which covers simulation noise (24 replications). expected users" in text
    assert "step-time error" not in text


def test_the_step_times_part_of_the_interval_is_said() -> None:
    text = told(users_low=70, step_time_error=0.2, users_at_step_time_error_high=75, users_at_step_time_error_low=110)
    assert "90 % interval from step-time error alone (±20% for 90 % of measured servers): 75 to 110 users" in text
    assert "covers simulation noise (24 replications) and step-time error. expected users" in text
    assert "estimated" not in text


def test_ttft_s_own_part_of_the_interval_is_said() -> None:
    errors = {"step_time_error": 0.2, "users_at_step_time_error_high": 75, "users_at_step_time_error_low": 110}
    ttft = {"ttft_error": 0.36, "users_at_ttft_error_high": 80, "users_at_ttft_error_low": 95}
    text = told(users_low=70, **errors, **ttft)
    assert "90 % interval from TTFT error alone (±36%: front ends, short queues): 80 to 95 users" in text
    assert "covers simulation noise (24 replications), step-time error and TTFT error. expected" in text
    text = told(users_low=0, users_low_sampling=80, **errors, **ttft | {"users_at_ttft_error_high": 0})
    assert "if TTFT is 36% longer than simulated, which is within its error, no user is served" in text


def test_an_error_that_nobody_measured_is_called_a_judgement() -> None:
    text = told(
        gpu="mi300x",
        users_low=40,
        step_time_error=0.67,
        users_at_step_time_error_high=50,
        users_at_step_time_error_low=140,
    )
    assert "(±67%, estimated): 50 to 140 users" in text
    assert "no runs of this deployment were measured; estimated: 90 % of measured means lie within ±67% (TPOT)" in text


@pytest.mark.parametrize(
    ("low_sampling", "why"),
    [(80, "if steps take 67% longer than simulated"), (0, "more replications narrow it")],
)
def test_where_no_number_is_safe_to_promise_the_reason_is_told(low_sampling: int, why: str) -> None:
    errors = {"step_time_error": 0.67, "users_at_step_time_error_high": 0, "users_at_step_time_error_low": 100}
    text = told(users_low=0, users_low_sampling=low_sampling, **errors)
    assert "No users at 95 % confidence on 2 GPUs: " in text
    assert why in text
    assert "(90 expected, 90 % interval 0 to 120)" in text


def test_users_at_the_ends_of_the_pool_are_told_where_it_is_hardly_known() -> None:
    errors = {"step_time_error": 0.2, "users_at_step_time_error_high": 75, "users_at_step_time_error_low": 110}
    text = told(users_low=40, users_at_kv_cache_low=50, users_at_kv_cache_high=115, **errors)
    assert "blocks per data-parallel rank): 50 to 115 users" in text
    assert "(24 replications), step-time error and KV-cache size error. expected users" in text
    text = told(users_low=0, users_low_sampling=80, users_at_kv_cache_low=0, users_at_kv_cache_high=95, **errors)
    assert "no users are served; narrow the interval with --startup-log" in text


def test_where_vllm_may_not_start_the_longest_context_that_surely_does_is_told() -> None:
    errors = {
        "step_time_error": 0.2,
        "users_at_step_time_error_high": 75,
        "users_at_step_time_error_low": 110,
        "users_at_kv_cache_high": 115,
    }
    found = {"users_low": 0, "users_low_sampling": 80, "users_at_kv_cache_low": 0}
    text = told(model="gpt-oss-120b", args=EngineArgs(vllm_version="0.32.0"), **errors, **found)
    assert "vLLM would not start: the blocks do not hold one request of max_model_len 131,072" in text
    told_length = re.search(r"lower --max-model-len to (\d+) or narrow the interval with --startup-log", text)
    assert told_length is not None
    longest = int(told_length[1])
    for length, starts in ((longest, True), (longest + 1024, False)):
        budget = resolve("gpt-oss-120b", "h100-sxm", EngineArgs(max_model_len=length, vllm_version="0.32.0")).budget
        assert (budget.kv_cache_tokens_low >= length) == starts


def test_sglang_s_pool_is_told_in_tokens() -> None:
    errors = {
        "step_time_error": 0.2,
        "users_at_step_time_error_high": 75,
        "users_at_step_time_error_low": 110,
        "users_at_kv_cache_high": 115,
    }
    args = SGLangArgs(page_size=64, context_length=2048)
    text = told(args=args, users_low=40, users_at_kv_cache_low=50, **errors)
    tokens = resolve("qwen3-0.6b", "h100-sxm", args).budget.num_gpu_blocks_low * 64
    assert f"KV-cache size alone ({tokens:,} to " in text
    text = told(args=args, users_low=0, users_low_sampling=80, users_at_kv_cache_low=0, **errors)
    assert f"at the low end of the KV tokens' interval ({tokens:,}), no users are served" in text


@pytest.mark.parametrize(
    ("binding", "found", "why"),
    [
        ("TTFT: prefill compute", 0.6, "60 % of prompt tokens are found in a cache instead of 35 %"),
        ("TTFT: prefill compute", 0.355, ""),
        ("TPOT: weight reads", 0.6, ""),
    ],
)
def test_a_lift_says_why_room_for_kv_helps_where_computing_prompts_binds(binding: str, found: float, why: str) -> None:
    base: Any = SimpleNamespace(binding=binding, point=SimpleNamespace(mean=lambda _: 0.35, host_hit_rate=None))
    row = SimpleNamespace(point=SimpleNamespace(mean=lambda _: 0.3, host_hit_rate=found - 0.3))
    layout: Any = SimpleNamespace(row=row)
    assert Suggestion(argument="kv_offloading_size", value=512, layout=layout, base=base).why == why


def test_nobody_served_at_95_percent_confidence_needs_no_start_line() -> None:
    plan = SimpleNamespace(serve_line="vllm serve m")
    some: Any = SimpleNamespace(plan=plan, users=5, users_low=2, replicas=1, router_name=None)
    assert [*_start_lines(some)] == ["start the server with: vllm serve m"]
    assert not [*_start_lines(SimpleNamespace(**vars(some) | {"users_low": 0}))]  # type: ignore[arg-type]


def test_a_trace_s_users_are_told_with_their_think_time_and_the_trace_s_own_load() -> None:
    arrival_s = np.arange(10.0) * 2
    alike, unlike = (
        Trace(
            name="t.csv",
            format="azure",
            table=independent_requests(arrival_s=arrival_s, prompt_tokens=np.array(prompts), output_tokens=10),
            source="us",
        )
        for prompts in ([100] * 10, [100] * 9 + [4000])
    )
    trace = alike
    point: Any = SimpleNamespace(mean={"requests_per_s": 8.0, "in_flight": 16.0}.get)  # 2 s each
    row: Any = SimpleNamespace(safe_point=point, point=None, users_low=800, users=900)
    said = "think time 98 s"
    assert trace_text(trace, 98.0, row) == f"{said}: 800 users send 8 requests/s, 16 times the trace's own 0.5"
    assert trace_text(trace, 98.0, row, 400) == f"{said}: 400 users send 4 requests/s, 8 times the trace's own 0.5"
    assert trace_text(trace, 98.0, None) == said
    assert trace_text(trace, usual_think_time_s(), None) == "think time 83.8 s (set yours with --think-time)"
    assert trace_text(load_preset("chat"), 98.0, row) == ""
    sampled = r"for these 10 requests: another recording may give ±\d+% other users; think time 98 s"
    assert re.match(sampled, trace_text(unlike, 98.0, row))
