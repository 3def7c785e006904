"""Attention data parallelism and expert parallelism under SGLang: arguments, memory, what a fleet of it is."""

import math
from typing import Any

import numpy as np
import pytest

import headcount as hc
from files.errors import HeadcountError
from kvcache.models.catalog import load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import stage_tensors
from simulator.deployment import Deployment, layouts, resolve
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.attention_groups import as_given, in_groups

DEEPSEEK = load_model("deepseek-v3")


def deployed(**settings: Any) -> Deployment:
    return resolve("deepseek-v3", "h200-sxm", engine="sglang", **settings)


def test_the_old_flag_makes_replicas_attention_groups() -> None:
    assert in_groups({"tensor_parallel_size": 8, "dp_size": 8}) == {"tensor_parallel_size": 8, "attn_dp_size": 8}
    assert in_groups({"attn_dp_size": 4, "dp_size": 1}) == {"attn_dp_size": 4, "dp_size": 1}


def test_what_a_server_logs_is_what_it_was_given() -> None:
    """It logs the chunk of a group, and how careful each group's scheduler is."""
    logged = {"dp_size": 8, "chunked_prefill_size": 1024, "schedule_conservativeness": 0.3, "enable_dp_attention": True}
    given = {"attn_dp_size": 8, "chunked_prefill_size": 8192, "schedule_conservativeness": 1.0}
    assert as_given(logged) == given
    assert as_given(given | {"attn_dp_size": 1}) == given | {"attn_dp_size": 1}


def test_each_group_has_its_part_of_what_a_server_schedules() -> None:
    plan = deployed(tensor_parallel_size=8, attn_dp_size=4, max_running_requests=400, schedule_conservativeness=0.5)
    engine: Any = plan.engine
    assert (engine.chunked_prefill_size, engine.max_running_requests) == (2048, 100)
    assert engine.schedule_conservativeness == 0.15
    assert (plan.gpus, plan.tensor_parallel_size, plan.data_parallel_size, plan.ranks_in_step) == (8, 2, 4, 4)
    pool = plan.fleet(2, None).pools[0]
    assert (pool.num_servers, pool.data_parallel_size, pool.num_engines) == (2, 4, 8)
    assert "--tp-size 8 --attn-dp-size 4" in plan.serve_line


def test_replicas_of_a_mixture_share_nothing() -> None:
    """Whatever the GPU count, an engine of one is as an engine alone."""
    alone, both = deployed(tensor_parallel_size=8), deployed(tensor_parallel_size=8, dp_size=2)
    assert both.engine == alone.engine
    assert (both.gpus, both.ranks_in_step, both.fleet(1, None).pools[0].num_servers) == (16, 1, 2)


def test_attention_is_whole_where_each_gpu_is_a_group_and_all_else_is_split() -> None:
    """Embedding and attention are replicated; experts, MLPs and the head are not."""

    def parameters(parallelism: Parallelism) -> dict[str, int]:
        found: dict[str, int] = {}
        for tensor in stage_tensors(DEEPSEEK, parallelism, 0):
            found[tensor.component] = found.get(tensor.component, 0) + tensor.parameters
        return found

    whole = parameters(Parallelism())
    over_groups = {f"splits_{what}_over_groups": True for what in ("dense", "shared", "head")}
    grouped = parameters(Parallelism(data_parallel_size=8, **over_groups))
    assert {name for name in whole if whole[name] == grouped[name]} == {"attention", "embedding", "norms", "router"}
    for name in ("experts", "shared_experts", "mlp", "lm_head"):
        assert grouped[name] == whole[name] / 8, name
    # vLLM holds MLPs and shared experts whole beside experts that are split.
    assert parameters(Parallelism(data_parallel_size=8))["shared_experts"] == whole["shared_experts"]


def test_a_whole_head_in_each_group_takes_its_memory() -> None:
    settings = {"tensor_parallel_size": 8, "attn_dp_size": 8}
    split, whole = deployed(**settings).budget, deployed(**settings, enable_dp_lm_head=True).budget
    head = 129_280 * 7168 * 2
    assert whole.weights_bytes - split.weights_bytes == pytest.approx(head * 7 / 8, rel=0.001)


def test_latents_are_held_once_where_each_gpu_is_a_group() -> None:
    """With TP alone, every GPU keeps the same; so eight groups hold about five times as many tokens together."""
    share = {"mem_fraction_static": 0.88}
    tp, groups = deployed(tensor_parallel_size=8, **share), deployed(tensor_parallel_size=8, attn_dp_size=8, **share)
    assert groups.budget.kv_cache_tokens < tp.budget.kv_cache_tokens < 8 * groups.budget.kv_cache_tokens
    assert groups.budget.kv_bytes_per_token_per_gpu == tp.budget.kv_bytes_per_token_per_gpu


def test_layouts_are_tried_in_multiples_of_the_groups() -> None:
    args = SGLangArgs(attn_dp_size=8)
    found = layouts(DEEPSEEK, resolve("llama-3.1-8b", "h200-sxm").gpu, args, num_gpus=16)
    plans = {size: plan for size, plan in found.items() if isinstance(plan, Deployment)}
    assert {size: (plan.gpus, plan.data_parallel_size) for size, plan in plans.items()} == {1: (8, 8), 2: (16, 8)}
    assert layouts(DEEPSEEK, resolve("llama-3.1-8b", "h200-sxm").gpu, args, num_gpus=4) == {
        1: "--attn-dp-size 8 does not divide 4 GPUs"
    }


def test_experts_that_are_dealt_out_are_whole() -> None:
    split, dealt = deployed(tensor_parallel_size=8), deployed(tensor_parallel_size=8, ep_size=8)
    assert dealt.budget.weights_bytes == pytest.approx(split.budget.weights_bytes, rel=0.001)
    assert dealt.latency.step_times.decode[16] != split.latency.step_times.decode[16]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tensor_parallel_size": 8, "attn_dp_size": 3}, "attn_dp_size is 3; it must divide tp-size"),
        ({"attn_dp_size": 2, "dp_size": 2}, "are not combined by SGLang"),
        ({"tensor_parallel_size": 8, "ep_size": 4}, "ep_size is 4; 1 and all of tp-size"),
        ({"tensor_parallel_size": 8, "attn_dp_size": 8, "chunked_prefill_size": 4}, "must be a multiple of the page"),
        (
            {
                "tensor_parallel_size": 8,
                "attn_dp_size": 8,
                "speculation": {
                    "method": "draft_model", "model": "llama-3.2-1b", "num_speculative_tokens": 2,
                    "acceptance_rate": 0.7,
                },
            },
            "SGLang refuses a draft model with --attn-dp-size",
        ),
    ],
)  # fmt: skip
def test_what_sglang_refuses_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        deployed(**settings)


def test_groups_serve_more_of_what_latents_leave_no_room_for() -> None:
    """Where the KV cache binds, eight groups hold five times the tokens of eight copies."""
    asked = {"engine": "sglang", "input_len": 8000, "output_len": 500, "concurrency": 256, "num_requests": 512}
    tp = hc.simulate("deepseek-v3", "h200-sxm", tensor_parallel_size=8, mem_fraction_static=0.85, **asked).to_json()
    groups = hc.simulate(
        "deepseek-v3", "h200-sxm", tensor_parallel_size=8, attn_dp_size=8, mem_fraction_static=0.85, **asked
    ).to_json()
    assert groups["output_tokens_per_s"] > tp["output_tokens_per_s"]
    assert math.isfinite(groups["ttft_s"]["mean"])


def test_deepep_s_ranks_hold_whole_experts_and_whole_shared_ones() -> None:
    """SGLang 0.5.23 `models/deepseek_v2.py`: DeepSeek-V3 has 256 experts, and one that all tokens take."""
    asked: dict[str, Any] = {"attn_dp_size": 8, "mem_fraction_static": 0.9}
    gathered, sent = (deployed(**asked, **more) for more in ({}, {"moe_a2a_backend": "deepep"}))
    shared = 3 * 7168 * 2048 * 58  # in FP8, of which the first has an eighth
    scales = sent.budget.weights_bytes - gathered.budget.weights_bytes - shared * 7 / 8
    assert 0 <= scales < 0.01 * shared
    assert sent.budget.enable_expert_parallel
    dense = deployed(**asked, moe_a2a_backend="deepep", moe_dense_tp_size=1).budget.weights_bytes
    assert dense - sent.budget.weights_bytes == pytest.approx(3 * 7168 * 18432 * 3 * 7 / 8, rel=0.01)


def test_deepep_takes_its_kernels_for_decodes_up_to_the_tokens_that_they_take() -> None:
    """128 of a GPU, unless a variable of the server says otherwise."""
    asked: dict[str, Any] = {"attn_dp_size": 8, "mem_fraction_static": 0.9, "moe_a2a_backend": "deepep"}
    auto, low, normal = (deployed(**asked, deepep_mode=mode) for mode in ("auto", "low_latency", "normal"))
    tokens = np.array([8 * 128.0, 8 * 129.0])

    def shared_s(plan: Deployment, tokens: Any) -> list[float]:
        return list(map(float, plan.latency.step_times.shared(tokens)))

    few, many = shared_s(auto, tokens)
    assert few == shared_s(low, tokens)[0] != shared_s(normal, tokens)[0]
    assert many == shared_s(normal, tokens)[1] != shared_s(low, tokens)[1]
    more = deployed(**asked, environment=("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256",))
    assert shared_s(more, tokens)[1] == shared_s(low, tokens)[1]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"moe_a2a_backend": "deepep"}, "give --attn-dp-size"),
        ({"moe_a2a_backend": "mori", "attn_dp_size": 8}, "moe_a2a_backend simulated"),
        ({"moe_dense_tp_size": 4, "attn_dp_size": 8}, "takes 1 or tp-size"),
        ({"moe_dense_tp_size": 1, "tensor_parallel_size": 8, "attn_dp_size": 4}, "give --attn-dp-size 8"),
        ({"deepep_mode": "fast", "attn_dp_size": 8}, "deepep_mode"),
        (
            {
                "moe_a2a_backend": "deepep", "attn_dp_size": 8,
                "environment": ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=0",),
            },
            "give 1 to 1,024 tokens",
        ),
    ],
)  # fmt: skip
def test_exchanges_that_are_not_simulated_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(HeadcountError, match=says):
        deployed(**asked)
