"""Servers that vLLM refuses to start for want of a KV block for each sequence's state."""

from dataclasses import replace
from typing import Any

import pytest

from kvcache.errors import DoesNotFitError
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import layouts, resolve
from simulator.engines.memory import memory_budget, remedies, require_fit, startable
from simulator.engines.vllm.arguments import EngineArgs

WITH_STATES, GPU = load_model("qwen3.6-27b"), find_gpu("h100-sxm")
FP8 = EngineArgs(quantization="fp8", max_model_len=32768)


def budget(**changed: Any) -> MemoryBudget:
    return memory_budget(WITH_STATES, GPU, replace(FP8, **changed))


def test_as_many_sequences_as_blocks_start_and_one_more_does_not() -> None:
    blocks = 900
    starts, stops = (budget(num_gpu_blocks_override=blocks, max_num_seqs=blocks + more) for more in (0, 1))
    assert (starts.fits, starts.missing_blocks) == (True, 0)
    assert (stops.fits, stops.missing_blocks, stops.missing_bytes) == (False, 1, 0)


@pytest.mark.parametrize(
    ("changed", "starts"),
    [
        ({}, False),
        ({"vllm_version": "0.33.0"}, False),
        ({"vllm_version": "0.20.0"}, False),
        ({"vllm_version": "0.19.1"}, True),
        ({"enforce_eager": True}, True),
        ({"compilation": {"cudagraph_mode": "PIECEWISE"}}, True),
        ({"compilation": {"cudagraph_mode": "NONE"}}, True),
        ({"compilation": {"cudagraph_mode": "FULL_DECODE_ONLY"}}, False),
        ({"enable_prefix_caching": False}, False),
    ],
)
def test_only_full_graphs_of_later_releases_need_the_blocks(changed: dict[str, Any], starts: bool) -> None:
    assert budget(num_gpu_blocks_override=900, max_num_seqs=1024, **changed).fits == starts


def test_a_model_without_states_needs_no_block_for_each_sequence() -> None:
    args = EngineArgs(num_gpu_blocks_override=900, max_num_seqs=1024, max_model_len=1024)
    assert memory_budget(load_model("llama-3.1-8b"), GPU, args).fits


def test_every_remedy_starts() -> None:
    with pytest.raises(DoesNotFitError, match=r"it starts with --max-num-seqs \d+ or --compilation-config '\{"):
        require_fit(WITH_STATES, GPU, FP8)
    found = remedies(WITH_STATES, GPU, budget(), FP8)
    most = int(found[0]["--max-num-seqs"])
    assert most == budget().num_gpu_blocks_low
    assert budget(max_num_seqs=most).surely_fits
    assert budget(compilation={"cudagraph_mode": "PIECEWISE"}).fits


def test_a_remedy_for_memory_has_sequences_that_start_too() -> None:
    args = EngineArgs(max_model_len=131072)
    l40s = find_gpu("l40s")
    found = remedies(WITH_STATES, l40s, memory_budget(WITH_STATES, l40s, args), args)
    assert found
    for remedy in found:
        given: dict[str, Any] = {flag[2:].replace("-", "_"): value for flag, value in remedy.items()}
        numbers = {name: int(value) if value.isdigit() else value for name, value in given.items()}
        assert memory_budget(WITH_STATES, l40s, replace(args, **numbers)).fits


def test_a_search_sets_what_nobody_gave_and_keeps_what_was_given() -> None:
    (found,) = layouts(WITH_STATES, GPU, FP8, num_gpus=1).values()
    assert not isinstance(found, str)
    assert f"--max-num-seqs {budget().num_gpu_blocks_low}" in found.serve_line
    (refused,) = layouts(WITH_STATES, GPU, replace(FP8, max_num_seqs=1024), num_gpus=1).values()
    assert "does not start" in str(refused)
    assert startable(WITH_STATES, GPU, replace(FP8, enforce_eager=True)).max_num_seqs is None
    with pytest.raises(DoesNotFitError, match="does not start"):
        resolve(WITH_STATES, GPU, FP8)


def test_gpus_without_bfloat16_start_in_float16_alone() -> None:
    small, t4 = load_model("qwen3-0.6b"), find_gpu("t4")
    with pytest.raises(ValueError, match="has no bfloat16, and vLLM does not start with it; give --dtype float16"):
        memory_budget(small, t4, EngineArgs(dtype="bfloat16", max_model_len=8192))
    assert memory_budget(small, t4, EngineArgs(dtype="float16", max_model_len=8192)).fits
    assert memory_budget(small, t4, EngineArgs(max_model_len=8192)).fits


@pytest.mark.parametrize(("release", "tokens", "sequences"), [("0.32.0", 8192, 1024), ("0.33.0", 2048, 256)])
def test_gb10_takes_the_batches_of_small_gpus_since_0_33(release: str, tokens: int, sequences: int) -> None:
    args = EngineArgs(vllm_version=release).filled(load_model("qwen3-8b"), find_gpu("gb10"))
    assert (args.max_num_batched_tokens, args.max_num_seqs) == (tokens, sequences)
