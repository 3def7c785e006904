"""A pasted `vllm serve` line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.headcount.conftest import figures

Run = Callable[..., Any]
ON_GPU = ("memory", "--gpu", "h100-sxm", "--json")


def settings(headcount: Run, *arguments: object) -> dict[str, Any]:
    ran = headcount(*ON_GPU, *arguments)
    assert (ran.code, ran.err) == (0, "")
    return figures(ran.out)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve llama-3.1-8b --max-model-len 8192 --gpu-memory-utilization 0.8 -tp 2 --quantization fp8",
        "llama-3.1-8b --max_model_len 8K --gpu_memory_utilization=0.8 --tensor-parallel-size=2 -q fp8",
        "--model llama-3.1-8b --max-model-len=8192 --gpu-memory-utilization 0.8 -tp 2 -q=fp8",
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve 'llama-3.1-8b' \\\n  --max-model-len 8192 \\\n"
        "  --gpu-memory-utilization 0.8 --tensor_parallel_size 2 --quantization fp8 \\\n",
    ],
)
def test_a_line_is_read_as_vllm_reads_it(headcount: Run, text: str) -> None:
    direct = ("--max-model-len", 8192, "--gpu-memory-utilization", 0.8, "-tp", 2, "-q", "fp8")
    assert settings(headcount, "--vllm-args", text) == settings(headcount, "--model", "llama-3.1-8b", *direct)


def test_both_halves_of_a_pair_are_taken(headcount: Run) -> None:
    model = ("--model", "llama-3.1-8b")
    eager, graphs = (settings(headcount, *model, "--vllm-args", f"--{flag}enforce-eager") for flag in ("", "no-"))
    assert eager["cuda_graph_bytes"] == 0 < graphs["cuda_graph_bytes"]


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("-cc.cudagraph_mode=PIECEWISE", {"cudagraph_mode": "PIECEWISE"}),
        ("--compilation_config.pass_config.fuse_allreduce_rms true", {"pass_config": {"fuse_allreduce_rms": True}}),
        ("""-cc '{"cudagraph_mode": "piecewise", "level": 3}' -O3""", {"cudagraph_mode": "PIECEWISE"}),
        ("-O 1", {"cudagraph_mode": "PIECEWISE", "pass_config": {"fuse_allreduce_rms": False}}),
        ("-cc.cudagraph_mode FULL -O0", {"cudagraph_mode": "FULL", "pass_config": {"fuse_allreduce_rms": False}}),
        (
            """-O '{"pass_config": {"enable_fi_allreduce_fusion": true}}' -O.cudagraph_mode=NONE""",
            {"cudagraph_mode": "NONE", "pass_config": {"fuse_allreduce_rms": True}},
        ),
    ],
)
def test_every_way_to_write_a_compilation_config_is_read(headcount: Run, flags: str, asked: dict[str, Any]) -> None:
    load = ("--gpu", "h100-sxm", "--concurrency", 1, "--num-requests", 2, "--input-len", 8, "--output-len", 4, "--json")
    pasted = headcount("simulate", *load, "--vllm-args", f"llama-3.1-8b {flags}")
    direct = headcount("simulate", *load, "--model", "llama-3.1-8b", "--compilation-config", json.dumps(asked))
    assert (pasted.code, pasted.err) == (direct.code, direct.err) == (0, direct.err)
    assert json.loads(pasted.out)["ttft_s"] == json.loads(direct.out)["ttft_s"]


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("-O5", "optimization level '5'; vLLM has 0, 1, 2, 3"),
        ("-cc", "-cc takes one value"),
        ("-cc.cudagraph_mode=SOME", "it must be one of FULL"),
        ("--compilation-config '[1]'", "give a JSON object"),
        ("-cc.nonsense=1", "no key 'nonsense'"),
    ],
)
def test_a_compilation_config_that_vllm_lacks_is_refused(headcount: Run, flags: str, part: str) -> None:
    ran = headcount("simulate", "--gpu", "h100-sxm", "--vllm-args", f"llama-3.1-8b {flags}")
    assert ran.code == 2
    assert part in ran.err


def test_an_option_given_beside_it_wins(headcount: Run) -> None:
    found = settings(headcount, "--vllm-args", "llama-3.1-8b --max-model-len 8192", "--max-model-len", "4096")
    assert found["max_model_len"] == 4096


@pytest.mark.parametrize("config_first", [True, False])
def test_it_wins_over_a_config(headcount: Run, config_first: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: llama-3.1-70b\nmax-model-len: 2048\nblock-size: 32\n")
    sources = [("--config", path), ("--vllm-args", "llama-3.1-8b --max-model-len 8192")]
    ordered = sources if config_first else sources[::-1]
    found = settings(headcount, *ordered[0], *ordered[1])
    assert (found["model"], found["max_model_len"], found["block_size"]) == (
        "meta-llama/Llama-3.1-8B-Instruct", 8192, 32,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "llama-3.1-8b --port 8000 --enable-lora --max-loras 2",
            "--max-loras needs --adapters: how many LoRA adapters the requests use",
        ),
        (
            "llama-3.1-8b --max-modle-len 5",
            "--max-modle-len: vLLM has no such flag; leave it out; did you mean 'max-model",
        ),
        ("llama-3.1-8b --replicas 2", "--replicas: vLLM has no such flag"),
        ("llama-3.1-8b --gpu l4", "--gpu: vLLM has no such flag"),
        ("llama-3.1-8b --max-model-len", "--max-model-len takes one value; it was given none"),
        ("llama-3.1-8b --max-model-len 8192 9", "--max-model-len takes one value; it was given '8192 9'"),
        ("llama-3.1-8b --max-model-len -2", "--max-model-len: '-2' is not a whole number above 0"),
        ("llama-3.1-8b --enforce-eager maybe", "--enforce-eager takes no value; it was given 'maybe'"),
        ("llama-3.1-8b again", "again: neither a flag of vLLM nor the value of one; leave it out"),
        ("llama-3.1-8b 'x", "a quote is left open"),
        ("", "--vllm-args is empty; paste a"),
    ],
)
def test_what_is_no_flag_or_value_is_named(headcount: Run, text: str, part: str) -> None:
    ran = headcount(*ON_GPU, "--vllm-args", text)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err


def test_flags_that_decide_no_capacity_are_passed_over(headcount: Run) -> None:
    line = "vllm serve llama-3.1-8b --port 8000 --host=0.0.0.0 --trust-remote-code --max-model-len 8192"
    assert settings(headcount, "--vllm-args", line)["max_model_len"] == 8192


@pytest.mark.parametrize("command", ["memory", "simulate"])
def test_one_pipeline_stage_is_as_none(headcount: Run, command: str) -> None:
    load = () if command == "memory" else ("--input-len", 64, "--output-len", 8, "--concurrency", 1)
    line = "vllm serve llama-3.1-8b --max-model-len 8192"
    plain, one = (
        headcount(command, "--gpu", "h100-sxm", "--json", *load, "--vllm-args", line + more)
        for more in ("", " --pipeline-parallel-size 1")
    )
    assert (plain.code, plain.err) == (0, "")
    assert figures(one.out) == figures(plain.out)


@pytest.mark.parametrize(
    "line",
    [
        "VLLM_ATTENTION_BACKEND=FLASHINFER HF_TOKEN=x vllm serve llama-3.1-8b",
        "docker run --gpus all -e VLLM_ATTENTION_BACKEND=FLASHINFER -e HF_TOKEN=x -p 8000:8000 "
        "vllm/vllm-openai:latest --model llama-3.1-8b",
        "docker run --env=VLLM_ATTENTION_BACKEND=FLASHINFER vllm/vllm-openai --model llama-3.1-8b",
    ],
)
def test_a_variable_that_is_not_modelled_is_named(headcount: Run, line: str) -> None:
    ran = headcount(*ON_GPU, "--vllm-args", line)
    assert ran.code == 0
    assert ran.err == "headcount: warning: VLLM_ATTENTION_BACKEND=FLASHINFER is not modelled: the answer ignores it\n"
    (note,) = [note for note in json.loads(ran.out)["diagnostics"] if note["code"] == "environment-not-modelled"]
    assert note["severity"] == "warning"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("VLLM_USE_V1=0 vllm serve llama-3.1-8b", "asks for engine V0, which is not simulated"),
        ("CUDA_VISIBLE_DEVICES=1 vllm serve llama-3.1-8b -tp 2", "CUDA_VISIBLE_DEVICES=1 shows 1 of the 2 GPUs"),
        ('vllm serve llama-3.1-8b --speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'',
         "acceptance_rate is missing: the share of draft tokens that your server accepts"),
        ("vllm serve llama-3.1-8b --max-num-seqs 64,128", "a run takes one value; 'headcount compare' takes lists"),
    ],
)  # fmt: skip
def test_what_a_pasted_line_lacks_is_said(headcount: Run, line: str, part: str) -> None:
    load = ("--input-len", 64, "--output-len", 8, "--concurrency", 1)
    ran = headcount("simulate", "--gpu", "h100-sxm", *load, "--vllm-args", line)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err
