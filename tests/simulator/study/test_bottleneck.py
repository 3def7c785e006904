"""What binds, on deployments that are built so that it is known."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvcache.gpus.gpu import GPU
from kvcache.models.catalog import find_gpu, load_model
from simulator.core.layout import BLOCKED_BY_MAX_NUM_SEQS
from simulator.engines.engines import engine_args
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study.bottleneck import first_missed, longer_limits, not_served, reached, what_binds
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import capacity_rows
from simulator.study.slo import SLO
from workloads.synthetic import single_turn_users

ONLY_TTFT, ONLY_TPOT = {"ttft_s": 1.0, "tpot_s": None}, {"ttft_s": None, "tpot_s": 0.02}
QUICK = ("a step of 64 tokens",)
NO_SETTINGS = ("gpu", "gpus", "tp", "input_len", "output_len", "slo")


def gpu(*, memory: float = 1, compute: float = 1, link: float = 1) -> GPU:
    """An H100 whose memory bandwidth, FLOP/s and link are so many times as fast."""
    known = find_gpu("h100-sxm")
    return replace(
        known,
        memory_bandwidth_bytes_per_s=known.memory_bandwidth_bytes_per_s * memory,
        flops_per_s={name: value * compute for name, value in known.flops_per_s.items()},
        interconnect_bytes_per_s=known.interconnect_bytes_per_s * link,
    )


SHORT = {"input_len": 400, "output_len": 40, "max_model_len": 512}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    # what is built, what must be named, what relaxes it
    "a pool of 40 blocks": (
        {**SHORT, "num_gpu_blocks_override": 40},
        "TTFT: KV blocks",
        {"num_gpu_blocks_override": 400},
    ),
    "one sequence at a time": ({"max_num_seqs": 1}, "TTFT: max_num_seqs", {"max_num_seqs": 16}),
    "a step of 64 tokens": (
        {"input_len": 1000, "output_len": 8, "max_num_batched_tokens": 64, "max_num_seqs": 64},
        "TTFT: max_num_batched_tokens",
        {"max_num_batched_tokens": 1024},
    ),
    "an SGLang of 700 tokens": (
        {"engine": "sglang", "input_len": 400, "output_len": 40, "context_length": 512, "max_total_num_tokens": 700},
        "TTFT: KV tokens",
        {"max_total_num_tokens": 7000},
    ),
    "an SGLang with one running request": (
        {"engine": "sglang", "max_running_requests": 1},
        "TTFT: max_running_requests",
        {"max_running_requests": 16},
    ),
    "an SGLang with chunks of 64 tokens": (
        {"engine": "sglang", "input_len": 1000, "output_len": 8, "chunked_prefill_size": 64, "slo": ONLY_TTFT},
        "TTFT: chunked_prefill_size",
        {"chunked_prefill_size": 1024},
    ),
    "an SGLang with 16 tokens of prefill": (
        {"engine": "sglang", "input_len": 60, "output_len": 8, "max_prefill_tokens": 16, "slo": ONLY_TTFT},
        "TTFT: max_prefill_tokens",
        {"max_prefill_tokens": 1024},
    ),
    "a slow link": (
        {"gpu": gpu(link=1 / 200), "gpus": (2,), "tp": 2, "input_len": 500, "output_len": 8, "slo": ONLY_TTFT},
        "TTFT: prefill communication",
        {"gpu": gpu(link=1)},
    ),
    "long prompts on fast memory": (
        {"gpu": gpu(memory=4), "input_len": 8000, "output_len": 4, "max_model_len": 16384, "slo": ONLY_TTFT},
        "TTFT: prefill compute",
        {"gpu": gpu(memory=4, compute=4)},
    ),
    "a decode that reads weights": (
        {"gpu": gpu(memory=1 / 8, compute=20), "output_len": 100, "slo": {**ONLY_TPOT, "tpot_s": 0.065}},
        "TPOT: weight reads",
        {"gpu": gpu(memory=1, compute=20)},
    ),
    "a decode between long prompts": (
        {"input_len": 6000, "output_len": 100, "slo": {**ONLY_TPOT, "tpot_s": 0.03}, "max_model_len": 16384},
        "TPOT: prefill compute",
        {"gpu": gpu(compute=4)},
    ),
    "a decode over long contexts": (
        {"gpu": gpu(compute=20), "input_len": 8000, "output_len": 200, "slo": ONLY_TPOT, "max_model_len": 16384},
        "TPOT: KV reads",
        {"gpu": gpu(compute=20, memory=4)},
    ),
}


def question(**given: Any) -> CapacityQuestion:
    """Users who think for two seconds, so that a small load is a few users."""
    case: dict[str, Any] = {"gpu": gpu(), "gpus": (1,), "tp": 1, "input_len": 200, "output_len": 40, "slo": {}} | given
    engine = {name: value for name, value in case.items() if name not in NO_SETTINGS}
    longest = "context_length" if "engine" in case else "max_model_len"
    return CapacityQuestion(
        architecture=load_model("llama-3.1-8b"),
        gpu=case["gpu"],
        gpus=case["gpus"],
        workload=single_turn_users(input_len=case["input_len"], output_len=case["output_len"], think_time_s=2.0),
        think_time_s=2.0,
        slo=SLO(**case["slo"]),
        args=engine_args({longest: 2048, "tensor_parallel_size": case["tp"]} | engine),
        replications=2,
    )


@cache
def answer(name: str, *, relaxed: bool = False) -> CapacityRow:
    built, _, relaxing = CASES[name]
    return next(iter(capacity_rows(question(**(built | (relaxing if relaxed else {}))))))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_what_was_built_to_bind_is_named(name: str) -> None:
    assert answer(name).binding == CASES[name][1]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_more_of_what_binds_serves_more_users(name: str) -> None:
    assert answer(name, relaxed=True).users > 1.2 * answer(name).users


@pytest.mark.slow
def test_where_only_tpot_is_limited_a_queue_of_most_users_is_the_limit() -> None:
    """A TPOT that nothing reaches: users would otherwise have no end, since all but four wait and think no more."""
    row = next(iter(capacity_rows(question(max_num_seqs=4, slo={"ttft_s": None, "tpot_s": 1.0}))))
    assert row.binding == "queue: max_num_seqs"
    assert row.point is not None
    assert 0.25 * row.users < row.point.mean("waiting") <= 0.6 * row.users
    assert row.users_at_step_time_error_low is not None
    assert row.users < row.users_at_step_time_error_low < 3 * row.users


def test_a_load_of_which_no_request_is_decided_is_a_queue() -> None:
    point: Any = SimpleNamespace(
        mean=lambda _: 0.0,
        queue_grows=False,
        attainment=SimpleNamespace(mean=0.0),
        cancelled=None,
        blocked_share=lambda reason: float(reason == BLOCKED_BY_MAX_NUM_SEQS),
    )
    plan: Any = SimpleNamespace(args=EngineArgs())
    assert what_binds(plan, point) == "queue: max_num_seqs"


@pytest.mark.slow
def test_a_larger_token_budget_does_not_help_where_compute_binds() -> None:
    built = CASES["long prompts on fast memory"][0]
    larger = next(iter(capacity_rows(question(**built, max_num_batched_tokens=16384))))
    assert larger.users < 1.2 * answer("long prompts on fast memory").users


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0%"), (0.0005, "0.05%"), (0.3, "30%"), (0.9995, "99.95%"), (1.0, "100%")],
)
def test_a_few_misses_are_not_none_and_most_are_not_all(share: float, said: str) -> None:
    point: Any = SimpleNamespace(mean=lambda _: share)
    slo = SLO(ttft_s=1.0, tpot_s=None, attainment=0.95)
    assert first_missed(slo, point) == f"{said} of requests miss the TTFT limit"


def test_what_a_load_reaches_is_told_at_the_target_s_percentile() -> None:
    times = {"ttft_s": np.arange(101) / 100, "tpot_s": np.array([np.nan])}
    point: Any = SimpleNamespace(times=times.get)
    assert reached(SLO(ttft_s=0.5, tpot_s=0.05, attainment=0.95), point) == "TTFT 0.95 s at the target's percentile"


def test_misses_near_the_target_have_the_digits_that_tell_them_apart_and_a_longer_limit_is_named() -> None:
    ttft_s = np.concatenate([np.full(954, 0.5), np.full(46, 1.2)])
    misses = {"ttft_misses": 0.046, "tpot_misses": 0.0}
    point: Any = SimpleNamespace(
        mean=misses.get, times={"ttft_s": ttft_s, "tpot_s": np.full(1000, 0.01)}.get, queue_grows=False,
        ttft_over=lambda slo: ttft_s / slo.ttft_s,
        attainment=SimpleNamespace(mean=0.954), replications=(0,) * 6,
    )  # fmt: skip
    slo = SLO(ttft_s=1.0, tpot_s=0.05, attainment=0.95)
    said = not_served(slo, point, "1 user")
    assert said.startswith(
        "whether 1 user meets the SLO is too close to call: 4.60% of requests miss the TTFT limit, 0% miss the TPOT "
        "limit in 6 replications, where 5.00% may; TTFT "
    )
    strict = SLO(ttft_s=0.4, tpot_s=0.05, attainment=0.95)
    assert longer_limits(strict, point) == "--ttft 500ms"
    point.queue_grows = True
    assert longer_limits(strict, point) == ""
