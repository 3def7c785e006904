"""A server's start-up log as input."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.headcount.conftest import SHORT_ANSWERS

LOG = """
INFO Initializing a V1 LLM engine (v0.32.0) with config: model='x'
INFO non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, 'gpu_memory_utilization': 0.95}
INFO Model loading took 15.31 GiB memory and 7.798531 seconds
INFO GPU KV cache size: 418,688 tokens
INFO Maximum concurrency for 8,192 tokens per request: 51.11x
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "server.log"
    found.write_text(LOG, encoding="utf-8")
    return found


def test_the_command_line_takes_settings_and_blocks_from_it(headcount: Callable[..., Any], path: Path) -> None:
    ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["model"], found["max_model_len"], found["num_gpu_blocks"]) == ("Qwen/Qwen3-8B", 8192, 26_168)
    assert found["startup_log"]["weights_gib"]["logged"] == 15.31
    assert found["startup_log"]["num_gpu_blocks"]["modelled"] == pytest.approx(26_168, rel=0.02)
    beside = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--max-model-len", "4096", "--json")
    assert json.loads(beside.out)["max_model_len"] == 4096


def test_the_logged_tokens_are_blocks_of_the_cache_that_the_checkpoint_declares(
    headcount: Callable[..., Any], path: Path
) -> None:
    """NVIDIA's nvfp4 checkpoint has an FP8 cache: blocks of as many tokens, of half the bytes."""
    path.write_text(LOG.replace("0.95}", "0.95, 'quantization': 'nvfp4'}"), encoding="utf-8")
    ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["num_gpu_blocks"], found["kv_cache_dtype"]) == (26_168, "fp8_e4m3")
    assert found["available_kv_bytes"] == 26_168 * 16 * found["kv_bytes_per_token"]


def test_arguments_that_are_not_used_are_named(headcount: Callable[..., Any], path: Path) -> None:
    more = "0.95, 'host': '0.0.0.0', 'hf_overrides': {'a': 1}, 7: 8, 'speculative_config': {'method': 'ngram'}}"
    path.write_text(LOG.replace("0.95}", more), encoding="utf-8")
    ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--json")
    notes = {note["code"]: note["text"] for note in json.loads(ran.out)["diagnostics"]}
    told = "arguments of the start-up log that are not used: 7, hf_overrides, speculative_config"
    assert notes["logged-arguments-not-used"] == told


def test_what_does_not_fit_the_log_is_said_first(headcount: Callable[..., Any], path: Path) -> None:
    """Half the weights, and lines of a second rank: a server of two GPUs, whose size is not in its arguments."""
    path.write_text(LOG.replace("15.31", "7.65") + "(Worker_TP1) INFO Model loading took 7.65 GiB\n", encoding="utf-8")
    told = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path).out.splitlines()
    says = "The start-up log contradicts itself or this question: "
    assert told[1] == f"{says}it says tensor_parallel_size 1, and has lines of rank TP1"
    path.write_text(LOG.replace("15.31", "7.65"), encoding="utf-8")
    told = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path).out.splitlines()
    assert told[1].startswith(f"{says}its weights take 7.65 GiB per GPU, and those of Qwen/Qwen3-8B in 16-bit on 1 GPU")


def test_a_log_without_its_arguments_is_told(headcount: Callable[..., Any], path: Path) -> None:
    path.write_text(LOG.replace("non-default args", "?"), encoding="utf-8")
    ran = headcount("memory", "--model", "qwen3-8b", "--gpu", "h100-sxm", "--startup-log", path)
    assert "the start-up log lacks 'non-default args': arguments that are neither in it nor given here" in ran.err


LINES = {"version": 1, "concurrency": 5}


@pytest.mark.parametrize(
    ("lost", "given", "option"),
    [
        ("version", ("--vllm-version", "0.32.0"), "vLLM's version is missing; .*, or give --vllm-version$"),
        (
            "concurrency",
            ("--max-model-len", "8K"),
            "'Maximum concurrency for' is missing; .*, or give --max-model-len$",
        ),
    ],
)
def test_what_a_torn_log_lacks_is_taken_from_the_command_line(
    headcount: Callable[..., Any], path: Path, lost: str, given: tuple[str, ...], option: str
) -> None:
    whole = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--json")
    lines = LOG.splitlines()
    del lines[LINES[lost]]
    path.write_text("\n".join(lines), encoding="utf-8")
    ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path)
    assert ran.code == 2
    assert re.search(option, ran.err.strip())
    for words in ((*given, "--startup-log", path), ("--startup-log", path, *given)):
        torn = headcount("memory", "--gpu", "h100-sxm", *words, "--json")
        assert torn.code == 0, torn.err
        assert json.loads(torn.out)["num_gpu_blocks"] == json.loads(whole.out)["num_gpu_blocks"] == 26_168


def test_a_torn_log_may_be_of_the_size_that_is_given(headcount: Callable[..., Any], path: Path) -> None:
    """Neither its arguments nor its engine say one; the size of a whole log stays the log's."""
    path.write_text("\n".join(LOG.splitlines()[3:]), encoding="utf-8")
    asked = ("--vllm-version", "0.32.0", "-tp", "2", "--startup-log", path, "--json")
    ran = headcount("memory", "--model", "qwen3-8b", "--gpu", "h100-sxm", *asked)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["tensor_parallel_size"], found["num_gpu_blocks"]) == (2, 26_168)


def test_a_log_without_its_pool_is_refused_with_the_option_that_gives_it(
    headcount: Callable[..., Any], path: Path
) -> None:
    path.write_text("\n".join(LOG.splitlines()[:4]), encoding="utf-8")
    ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--max-model-len", "8192")
    assert ran.code == 2
    assert "'GPU KV cache size' is missing; " in ran.err
    assert "or leave it out and give --num-gpu-blocks-override" in ran.err


def test_a_log_of_another_model_is_refused_and_one_of_an_unknown_name_is_not(
    headcount: Callable[..., Any], path: Path
) -> None:
    asked = ("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--startup-log", path)
    ran = headcount(*asked)
    assert ran.code == 2
    assert "server.log is of a server of Qwen/Qwen3-8B, not of meta-llama/Llama-3.1-8B-Instruct" in ran.err
    path.write_text(LOG.replace("Qwen/Qwen3-8B", "/models/ours"), encoding="utf-8")
    ran = headcount(*asked)
    assert ran.code == 0, ran.err
    assert "26,168 KV blocks of 16 tokens (as given)" in ran.out


def test_a_log_of_another_tensor_parallel_size_is_refused(headcount: Callable[..., Any], path: Path) -> None:
    ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "-tp", "2")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "is of a server with --tensor-parallel-size 1, not 2" in ran.err


def test_the_blocks_of_pipeline_stages_hold_the_layers_of_a_stage(headcount: Callable[..., Any], path: Path) -> None:
    """A hybrid model's blocks follow from the logged bytes: a stage of half the layers has twice as many."""
    log = LOG.replace("Qwen/Qwen3-8B", "google/gemma-3-12b-it") + "INFO Available KV cache memory: 50.0 GiB\n"
    found = []
    for stages in (1, 2):
        path.write_text(log.replace("0.95}", f"0.95, 'pipeline_parallel_size': {stages}}}"), encoding="utf-8")
        ran = headcount("memory", "--gpu", "h100-sxm", "--startup-log", path, "--json")
        assert ran.code == 0, ran.err
        found.append(json.loads(ran.out)["num_gpu_blocks"])
    assert found[1] == pytest.approx(2 * found[0], rel=0.01)


def test_a_simulation_runs_in_the_logged_pool(headcount: Callable[..., Any], path: Path) -> None:
    ran = headcount(
        "simulate", "--gpu", "h100-sxm", "--startup-log", path, "--concurrency", "2", "--input-len", "32",
        "--output-len", "4", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["num_gpu_blocks"] == 26_168


def test_a_capacity_is_searched_at_the_logged_tensor_parallel_size_alone(
    headcount: Callable[..., Any], path: Path
) -> None:
    """The logged blocks are those of one size; another would have others."""
    ran = headcount(
        "capacity", "--gpu", "h100-sxm", "--gpus", "2", "--startup-log", path, "--replications", "2",
        "--latency-model", "constant", "--step-s", "0.03", "--max-num-seqs", "4", "--workload", SHORT_ANSWERS, "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert [row["tp"] for row in json.loads(ran.out)["capacity"]] == [1]
