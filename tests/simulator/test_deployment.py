"""A deployment is simulated with the model's own layer groups, and under the release's own rules."""

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import Deployment, layouts, resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.speculation import Speculation
from simulator.simulation import Simulation
from workloads.requests import RequestTable
from workloads.synthetic import closed_load

STEP_S = 0.01


def planned(model: str, **options: object) -> Deployment:
    settings = {"latency_model": "constant", "step_s": STEP_S, "max_model_len": 32768, **options}
    engine = EngineArgs(**settings)  # type: ignore[arg-type]
    return resolve(load_model(model), find_gpu("h100-sxm"), engine)


def most_used_blocks(plan: Deployment, table: RequestTable) -> int:
    simulation = Simulation(plan.fleet(1, "round-robin"), table)
    simulation.run()
    return int(simulation.totals["max_used_blocks"].max())


def test_a_hybrid_model_s_windows_free_their_blocks() -> None:
    """gpt-oss: half of the layers attend to 128 tokens, so one long request holds about one group's blocks, not two."""
    plan = planned("openai/gpt-oss-20b", max_num_batched_tokens=2048)
    assert len(plan.engine.kv_groups) == 2
    assert plan.engine.num_gpu_blocks == plan.budget.num_gpu_blocks
    table = closed_load(concurrency=1, num_requests=1, input_len=30_000, output_len=20, length_spread=1.0)
    whole = -(-30_020 // plan.engine.block_size)
    in_flight = -(-(128 + 2 * 2048) // plan.engine.block_size) + 1
    assert whole < most_used_blocks(plan, table) <= whole + in_flight


def test_a_dense_model_holds_every_block() -> None:
    plan = planned("llama-3.1-8b", max_num_batched_tokens=2048)
    table = closed_load(concurrency=1, num_requests=1, input_len=30_000, output_len=20, length_spread=1.0)
    assert most_used_blocks(plan, table) == -(-30_019 // plan.engine.block_size)


def test_a_release_s_rules_are_applied() -> None:
    old, new = planned("openai/gpt-oss-20b", vllm_version="0.28.0"), planned("openai/gpt-oss-20b")
    assert old.engine.prefix_cache_retention_interval is None
    assert new.engine.prefix_cache_retention_interval == 0
    assert (old.engine.passed_over_keep_place, new.engine.passed_over_keep_place) == (False, True)
    chosen = planned("openai/gpt-oss-20b", prefix_cache_retention_interval=1024)
    assert chosen.engine.prefix_cache_retention_interval == 1024


QWEN, LONG = "Qwen/Qwen3-Next-80B-A3B-Instruct", {"tensor_parallel_size": 4}


def test_the_prefix_cache_keeps_states_by_default_and_says_where_it_does_not() -> None:
    kept, off, old = (
        planned(QWEN, **LONG, **given) for given in ({}, {"enable_prefix_caching": False}, {"vllm_version": "0.31.0"})
    )
    assert [plan.engine.caches_states for plan in (kept, off, old)] == [True, False, False]
    assert [len(plan.not_simulated) for plan in (kept, off, old)] == [0, 0, 1]
    assert len(planned("google/gemma-4-31B-it", tensor_parallel_size=2).not_simulated) == 1


def test_a_long_request_of_a_model_with_states_holds_them_for_the_last_blocks_only() -> None:
    plan = planned(QWEN, **LONG, max_num_batched_tokens=2048)
    assert sum(group.is_state for group in plan.engine.kv_groups) == 3
    table = closed_load(concurrency=1, num_requests=1, input_len=30_000, output_len=20, length_spread=1.0)
    whole = -(-30_019 // plan.engine.block_size)
    assert whole < most_used_blocks(plan, table) <= whole + 3 * (2 + plan.engine.plans_in_flight)


def test_scheduling_is_asynchronous_where_the_release_s_default_is() -> None:
    """vLLM 0.14 turned it on (its release notes); before, it is what --async-scheduling asks for."""
    assert planned("llama-3.1-8b").engine.async_scheduling
    assert planned("llama-3.1-8b", vllm_version="0.14.0").engine.async_scheduling
    old = {given: planned("llama-3.1-8b", vllm_version="0.13.0", async_scheduling=given) for given in (None, True)}
    assert [plan.engine.async_scheduling for plan in old.values()] == [False, True]
    assert [plan.args.async_scheduling for plan in old.values()] == [False, True]


@pytest.mark.parametrize(
    ("method", "version", "is_on"),
    [
        ("eagle", "0.14.0", True), ("eagle", "0.13.0", False), ("ngram", "0.32.0", False),
        ("draft_model", "0.27.0", False), ("draft_model", "0.32.0", True), ("ngram", "0.33.0", True),
    ],
)  # fmt: skip
def test_drafts_that_are_not_the_model_s_own_are_scheduled_asynchronously_in_late_releases_alone(
    method: str, version: str, is_on: bool
) -> None:
    small = "llama-3.2-1b-instruct" if method == "draft_model" else None
    drafts = Speculation(method=method, num_speculative_tokens=3, acceptance_rate=0.5, model=small)
    assert planned("llama-3.1-8b", speculation=drafts, vllm_version=version).engine.async_scheduling is is_on


def test_asynchronous_scheduling_with_drafts_by_n_grams_is_refused_as_by_vllm() -> None:
    drafts = Speculation(method="ngram", num_speculative_tokens=3, acceptance_rate=0.5)
    with pytest.raises(ValueError, match="async_scheduling: vLLM refuses it with n-gram drafting"):
        planned("llama-3.1-8b", speculation=drafts, async_scheduling=True, vllm_version="0.32.0")
    assert not planned(
        "llama-3.1-8b", speculation=drafts, async_scheduling=False, vllm_version="0.32.0"
    ).engine.async_scheduling
    later = planned("llama-3.1-8b", speculation=drafts, async_scheduling=True, vllm_version="0.33.0")
    assert later.engine.async_scheduling


def test_accepted_drafts_shorten_an_answer() -> None:
    """With every draft accepted a step yields 1 + K tokens."""
    table = closed_load(concurrency=1, num_requests=1, input_len=100, output_len=401, length_spread=1.0)
    speculation = Speculation(method="ngram", num_speculative_tokens=3, acceptance_rate=1.0)
    lasted_s = {}
    for name, chosen in (("drafted", speculation), ("plain", None)):
        simulation = Simulation(planned("llama-3.1-8b", speculation=chosen).fleet(1, "round-robin"), table)
        simulation.run()
        lasted_s[name] = float(
            np.diff([simulation.requests["first_token_s"][0], simulation.requests["finish_s"][0]])[0]
        )
    assert lasted_s["plain"] == pytest.approx(400 * STEP_S)
    assert lasted_s["drafted"] == pytest.approx(100 * STEP_S)


def test_a_head_that_drafts_for_windowed_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="eagle"):
        planned(
            "openai/gpt-oss-20b", speculation=Speculation(method="eagle", num_speculative_tokens=1, acceptance_rate=1)
        )


def test_a_split_that_the_format_refuses_is_a_row_with_its_reason() -> None:
    """Qwen3-235B in FP8: an eighth of an expert is no whole number of blocks."""
    model, options = load_model("qwen3-235b-a22b-fp8"), EngineArgs(max_model_len=8192)
    found = layouts(model, find_gpu("h200-sxm"), options, num_gpus=8)
    assert "whole groups of 128" in str(found[8])
    assert isinstance(found[4], Deployment)


def test_the_dtype_reaches_memory_and_step_times() -> None:
    half = planned("llama-3.1-8b", latency_model="physical", step_s=None)
    full = planned("llama-3.1-8b", latency_model="physical", step_s=None, dtype="float32")
    assert full.budget.quantization == "fp32"
    assert full.budget.num_gpu_blocks < half.budget.num_gpu_blocks / 2
    # One token's step reads the weights, which are twice as wide.
    assert full.latency.step_times.decode[1] > 1.5 * half.latency.step_times.decode[1]
    assert full.latency.step_times.context_s > 1.5 * half.latency.step_times.context_s


def test_memory_and_step_times_agree_on_what_auto_stands_for() -> None:
    """NVIDIA's nvfp4 checkpoints declare an FP8 cache: the pool has twice the tokens, and a step reads half."""
    plans = {
        name: planned("qwen3-32b", quantization="nvfp4", kv_cache_dtype=name, latency_model="physical", step_s=None)
        for name in ("auto", "fp8", "bfloat16")
    }
    times = {name: plan.latency.step_times for name, plan in plans.items()}
    assert plans["auto"].budget.kv_cache_dtype == "fp8_e4m3"
    assert plans["auto"].engine == plans["fp8"].engine
    assert times["auto"].context_s == times["fp8"].context_s < times["bfloat16"].context_s
    assert plans["auto"].budget.num_gpu_blocks // 2 == plans["bfloat16"].budget.num_gpu_blocks
    assert [value for name, value, _ in plans["auto"].assumptions if name == "KV cache"] == ["fp8_e4m3"]


def test_one_server_with_data_parallel_ranks_is_balanced_as_vllm_s_api_server_does() -> None:
    moe = resolve("qwen3-30b-a3b", "h100-sxm", data_parallel_size=2, max_model_len=4096)
    dense = resolve("llama-3.1-8b", "h100-sxm", data_parallel_size=2, max_model_len=4096)
    for plan in (moe, dense):
        assert plan.fleet(1, None).router == "vllm-dp"
        assert plan.fleet(2, None).router == "least-outstanding"  # whoever stands before several servers is not known
        assert plan.fleet(1, "round-robin").router == "round-robin"
    assert resolve("llama-3.1-8b", "h100-sxm").fleet(1, None).router == "least-outstanding"
