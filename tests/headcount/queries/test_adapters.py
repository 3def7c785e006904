"""What LoRA adapters cost, beside the same GPUs without them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import headcount as hc
from headcount.queries.capacity import CapacityResult
from tests.headcount.conftest import SHORT_ANSWERS

QUICK: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "replications": 2, "store": False, "precision": 0.9, "max_model_len": 4096,
}  # fmt: skip


def asked(**more: Any) -> CapacityResult:
    return hc.capacity("qwen3-0.6b", "h100-sxm", gpus=(1,), max_num_seqs=8, **QUICK, **more)


def test_capacity_says_what_adapters_take_and_who_would_be_served_without() -> None:
    answer, bare = asked(adapters=20), asked()
    cost = answer.adapters
    assert cost is not None and cost.without is not None
    assert (cost.without.users_low, cost.without.users) == (bare.best.users_low, bare.best.users)
    assert answer.best.users < bare.best.users
    assert 0 < cost.adapters_s < cost.step_s
    assert 0 < cost.in_step <= 20
    said = str(answer)
    assert "20 LoRA adapters of rank 16" in said
    assert f"without adapters: {bare.best.users_low:,} users at 95 % confidence" in said
    assert "--enable-lora --max-loras 20 --max-cpu-loras 20 --lora-modules NAME=PATH ..." in said
    assert max(len(line) for line in said.splitlines() if "adapters" in line and "vllm serve" not in line) <= 100
    assert "adapters" in answer.to_json() and "adapters" not in bare.to_json()
    assert bare.adapters is None and "LoRA" not in str(bare)


def test_fewer_slots_than_adapters_serve_fewer_and_are_the_bottleneck() -> None:
    one, all_of_them = (asked(adapters=20, max_loras=slots) for slots in (1, 20))
    assert one.best.users < all_of_them.best.users
    assert "LoRA slots (max_loras)" in (one.best.binding or "")
    assert ", 1 at once" in str(one)


@pytest.mark.slow
def test_slots_are_a_suggestion_where_they_are_the_bottleneck() -> None:
    answer = asked(adapters=8, max_loras=1, suggest=True)
    assert answer.suggestions is not None
    lifts = {(lift.argument, lift.value): lift.gains for lift in answer.suggestions}
    assert lifts["max_loras", 8] and lifts["max_loras", 2]


@pytest.mark.slow
def test_a_plan_says_it_too() -> None:
    answer = hc.plan("qwen3-0.6b", users=20, gpu="h100-sxm", adapters=4, max_num_seqs=8, **QUICK)
    assert answer.adapters is not None and answer.adapters.without is not None
    assert "4 LoRA adapters of rank 16" in str(answer)
    assert "adapters" in answer.to_json()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--engine", "sglang"), "--adapters is an argument of vLLM"),
        (("--kv-offloading-size", "4"), "LoRA adapters are not simulated with KV outside of the GPUs"),
        (("--model", "deepseek-v3"), "latent or sparse attention"),
        (("--vllm-version", "0.25.0"), "by the rules of vLLM 0.32 and later"),
        (("--max-lora-rank", "24"), "max_lora_rank is 24"),
    ],
)
def test_what_is_not_simulated_is_one_error(
    headcount: Callable[..., Any], arguments: tuple[str, ...], part: str
) -> None:
    given = () if "--model" in arguments else ("--model", "llama-3.1-8b")
    ran = headcount("memory", "--gpu", "h100-sxm", "--adapters", 4, *given, *arguments)
    if "--kv-offloading-size" in arguments:
        ran = headcount("capacity", "--gpu", "h100-sxm", "--gpus", 1, "--adapters", 4, *given, *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err


@pytest.mark.parametrize(
    ("modules", "count"),
    [
        ("--lora-modules a=x b=y c=z", 3),
        ("--lora_modules=a=x --port 8000", 1),
        ("""--lora-modules '{"name": "a", "path": "x"}' '{"name": "b", "path": "y"}'""", 2),
    ],
)
def test_a_pasted_line_s_modules_are_counted(headcount: Callable[..., Any], modules: str, count: int) -> None:
    line = f"vllm serve llama-3.1-8b --max-model-len 8192 {modules}"
    pasted = headcount("memory", "--gpu", "h100-sxm", "--json", "--vllm-args", line)
    direct = headcount(
        "memory", "--gpu", "h100-sxm", "--json", "--model", "llama-3.1-8b", "--max-model-len", 8192, "--adapters", count
    )
    found = json.loads(pasted.out)
    assert found["adapter_bytes"] == json.loads(direct.out)["adapter_bytes"] > 0
    own = headcount("memory", "--gpu", "h100-sxm", "--json", "--vllm-args", f"{line} --enable-lora")
    assert json.loads(own.out)["adapter_bytes"] * count == found["adapter_bytes"], "vLLM's default is one slot"


def test_memory_has_a_line_for_them(headcount: Callable[..., Any]) -> None:
    ran = headcount("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--adapters", 20)
    line = next(line for line in ran.out.splitlines() if line.startswith("LoRA slots"))
    assert line.split()[2] == "1.72"
    assert "LoRA slots: 20 of rank 16: 1.72 GiB" in ran.out
