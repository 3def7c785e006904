"""Memory for LoRA adapters: laws of the slots, and what servers logged."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.errors import HeadcountError
from kvcache.memory.adapters import adapter_bytes, check_split, graph_cases, slots_bytes
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from simulator.engines.memory import memory_budget, require_fit

QWEN, LLAMA, MIXTRAL = load_model("qwen2.5-7b"), load_model("llama-3.1-8b"), load_model("mixtral-8x7b")
H100 = find_gpu("h100-sxm")
ONE = Parallelism()


@dataclass(frozen=True)
class Slots:
    max_loras: int = 1
    max_lora_rank: int = 16
    lora_dtype: str = "auto"
    fully_sharded_loras: bool = False
    specialize_active_lora: bool = False


@given(st.integers(1, 200), st.sampled_from([8, 16, 64, 256]))
def test_every_slot_takes_as_much_and_twice_the_rank_twice(max_loras: int, rank: int) -> None:
    one = adapter_bytes(LLAMA, ONE, 0, Slots(max_lora_rank=rank))
    assert slots_bytes(LLAMA, ONE, 0, Slots(max_loras, rank)) == max_loras * one
    assert adapter_bytes(LLAMA, ONE, 0, Slots(max_lora_rank=2 * rank)) == 2 * one


@pytest.mark.parametrize("tp", [2, 4])
def test_ranks_hold_the_whole_adapter_together_where_it_is_fully_sharded_and_more_where_it_is_not(tp: int) -> None:
    split, whole = Parallelism(tensor_parallel_size=tp), adapter_bytes(QWEN, ONE, 0, Slots())
    assert tp * adapter_bytes(QWEN, split, 0, Slots(fully_sharded_loras=True)) == whole
    assert whole < tp * adapter_bytes(QWEN, split, 0, Slots()) < tp * whole


def test_stages_of_a_pipeline_hold_it_together() -> None:
    stages = Parallelism(pipeline_parallel_size=2)
    assert sum(adapter_bytes(LLAMA, stages, stage, Slots()) for stage in (0, 1)) == adapter_bytes(
        LLAMA, ONE, 0, Slots()
    )


@pytest.mark.parametrize(("rank", "logged_mb", "within"), [(8, 41.31, 0.03), (16, 80.74, 0.001), (32, 161.4, 0.001)])
def test_slots_take_what_servers_logged(rank: int, logged_mb: float, within: float) -> None:
    """Source: vLLM 0.8.5 with 8 and 384 slots, "Model loading took"; docs/measurements/adapters.md."""
    assert adapter_bytes(QWEN, ONE, 0, Slots(max_lora_rank=rank)) / 1e6 == pytest.approx(logged_mb, rel=within)


def test_experts_have_adapters_of_their_own() -> None:
    dense, experts = (adapter_bytes(each, ONE, 0, Slots()) for each in (LLAMA, MIXTRAL))
    assert experts > 4 * dense
    by_experts = Parallelism(tensor_parallel_size=8, enable_expert_parallel=True)
    assert adapter_bytes(MIXTRAL, by_experts, 0, Slots()) < experts / 4


def test_a_budget_has_that_much_less_for_kv_and_nothing_without_adapters() -> None:
    settings: dict[str, Any] = {"enforce_eager": True, "max_model_len": 4096}
    bare, ten = (memory_budget(LLAMA, H100, **settings, **more) for more in ({}, {"adapters": 10}))
    assert bare.adapter_bytes == 0
    assert ten.adapter_bytes == 10 * adapter_bytes(LLAMA, ONE, 0, Slots())
    assert bare.available_kv_bytes - ten.available_kv_bytes == ten.adapter_bytes


@given(st.integers(1, 1000), st.booleans())
def test_graphs_are_captured_once_more_or_for_each_power_of_two(max_loras: int, specialized: bool) -> None:
    cases = graph_cases(Slots(max_loras, specialize_active_lora=specialized))
    assert graph_cases(None) == 1
    assert cases == 2 + (max_loras.bit_length() if specialized else 0)


def test_what_is_not_known_or_refused_by_vllm_is_refused() -> None:
    with pytest.raises(HeadcountError, match="latent or sparse attention"):
        check_split(load_model("deepseek-v3"), ONE, Slots())
    with pytest.raises(HeadcountError, match="MoE with data parallelism"):
        check_split(MIXTRAL, Parallelism(data_parallel_size=2), Slots())
    with pytest.raises(HeadcountError, match="must be a multiple of tensor_parallel_size, 4"):
        check_split(LLAMA, Parallelism(tensor_parallel_size=4), Slots(max_lora_rank=1, fully_sharded_loras=True))
    with pytest.raises(HeadcountError, match="serves no LoRA adapters of"):
        check_split(replace(LLAMA, model_type="falcon"), ONE, Slots())
    with pytest.raises(HeadcountError, match=r"by the rules of vLLM 0\.32 and later"):
        memory_budget(LLAMA, H100, adapters=4, vllm_version="0.25.0")


def test_slots_that_do_not_fit_are_told_with_how_many_would() -> None:
    with pytest.raises(HeadcountError, match=r"fits with .*--max-loras 16"):
        require_fit(LLAMA, H100, adapters=20, max_loras=200, max_lora_rank=256)
