"""Decode context parallelism: ranks that held copies of the same KV heads hold different tokens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.errors import HeadcountError
from kvcache.errors import SplitError
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.memory import memory_budget

OVER_EIGHT: dict[str, Any] = {"tensor_parallel_size": 8, "max_model_len": 32_768}


def budget(model: str, gpu: str = "h200-sxm", **settings: Any) -> MemoryBudget:
    return memory_budget(load_model(model), find_gpu(gpu), None, **{**OVER_EIGHT, **settings})


@pytest.mark.parametrize(("ranks", "logged"), [(1, 715_072), (8, 5_721_088)])
def test_kv_cache_of_kimi_k2_thinking_on_eight_h200_is_what_its_recipe_says(ranks: int, logged: int) -> None:
    # vllm-project/recipes, models/moonshotai/Kimi-K2-Thinking.yaml, read 2026-11; TP8 and TP8+DCP8 of vLLM 0.11
    found = budget(
        "moonshotai/Kimi-K2-Thinking",
        vllm_version="0.11.2",
        max_model_len=262_144,
        decode_context_parallel_size=ranks,
    )
    assert found.kv_cache_tokens == pytest.approx(logged, rel=0.005)


@given(ranks=st.sampled_from([1, 2, 4, 8]), model=st.sampled_from(["deepseek-v2-lite", "moonshotai/Kimi-K2-Instruct"]))
def test_as_many_blocks_hold_so_many_times_the_tokens(ranks: int, model: str) -> None:
    whole, split = budget(model, "b300-sxm"), budget(model, "b300-sxm", decode_context_parallel_size=ranks)
    assert split.num_gpu_blocks == whole.num_gpu_blocks
    assert split.block_size == ranks * whole.block_size
    assert split.max_concurrency >= 0.99 * ranks * whole.max_concurrency  # a request's last block may be half empty
    assert split.kv_bytes_per_token_per_gpu == -(-whole.kv_bytes_per_token_per_gpu // ranks)


def test_a_model_with_kv_heads_is_split_over_the_copies_of_a_head() -> None:
    whole, split = budget("qwen3-30b-a3b"), budget("qwen3-30b-a3b", decode_context_parallel_size=2)
    assert split.block_size * split.num_gpu_blocks == 2 * whole.block_size * whole.num_gpu_blocks
    assert split.split == "TP 8, DCP 2"


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("qwen3-30b-a3b", {"decode_context_parallel_size": 4}, "each of the 4 KV heads is on 2 ranks.*take 2"),
        ("llama-3.1-8b", {"decode_context_parallel_size": 2}, "is on one rank alone.*leave it out"),
        ("llama-3.1-8b", {"tensor_parallel_size": 4, "decode_context_parallel_size": 2}, "is on one rank alone"),
        ("deepseek-v2-lite", {"decode_context_parallel_size": 3}, "3 does not divide tensor_parallel_size 8"),
    ],
)  # fmt: skip
def test_ranks_that_vllm_refuses_are_a_split_error(model: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SplitError, match=message):
        budget(model, **settings)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("gpt-oss-120b", {"tensor_parallel_size": 16}, "all attend to the whole context"),
        ("deepseek-v3.2", {}, "with one cache each"),
        ("deepseek-v2-lite", {"vllm_version": "0.10.1"}, "from 0.10.2 on"),
        ("qwen3-30b-a3b", {"vllm_version": "0.11.0"}, "from 0.11.1 on"),
        ("deepseek-v2-lite", {"kv_offloading_size": 10.0}, "KV outside the GPUs"),
    ],
)
def test_what_is_not_simulated_with_it_is_refused(model: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadcountError, match=message):
        budget(model, **{"decode_context_parallel_size": 2, **settings})
