"""Groups of packed weights that tensor parallelism would cut."""

from dataclasses import replace

import pytest

from kvcache.catalog import find_gpu, load_model
from kvcache.memory import memory_budget

QWEN = load_model("qwen2.5-72b")  # MLP width 29,568 = 231 groups of 128


def test_an_awq_checkpoint_whose_groups_would_be_cut_is_refused() -> None:
    own = replace(QWEN, native_quantization="awq")
    assert memory_budget(own, find_gpu("h100-sxm")).fits
    with pytest.raises(ValueError, match=r"'awq' at tensor_parallel_size 2 leaves 14784 mlp inputs per rank"):
        memory_budget(own, find_gpu("h100-sxm"), tensor_parallel_size=2)


def test_of_another_checkpoint_it_is_assumed_that_it_is_padded() -> None:
    names = [
        row[0]
        for row in memory_budget(QWEN, find_gpu("h100-sxm"), tensor_parallel_size=2, quantization="awq").assumptions
    ]
    assert "awq checkpoint" in names


@pytest.mark.parametrize("quantization", [None, "fp8", "gptq"])
def test_other_formats_are_not_asked(quantization: str | None) -> None:
    found = memory_budget(QWEN, find_gpu("h100-sxm"), tensor_parallel_size=8, quantization=quantization)
    assert not [row for row in found.assumptions if row[1] == "padded"]


def test_groups_that_stay_whole_need_no_assumption() -> None:
    found = memory_budget(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), tensor_parallel_size=8, quantization="awq")
    assert not [row for row in found.assumptions if row[1] == "padded"]
