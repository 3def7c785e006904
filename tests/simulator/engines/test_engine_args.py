"""The engine's arguments: each is said once, and everything that takes arguments follows."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount as hc
from files.errors import HeadcountError
from headcount.cli.commands.simulate import command as simulate_command
from headcount.cli.engine_command_parser.vllm_args import read_vllm_args
from kvcache.errors import SplitError
from kvcache.memory.settings import max_in_flight_tokens
from kvcache.models.catalog import find_gpu, load_model
from simulator.deployment import layouts, resolve
from simulator.engines.argument import arguments_of
from simulator.engines.values import Duration, DurationOrAuto
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.engine import engine_config
from validation.pages.options import reference_rows

LLAMA, GEMMA, H100 = load_model("llama-3.1-8b"), load_model("gemma-3-12b"), find_gpu("h100-sxm")
ADDED = """
from dataclasses import dataclass
from simulator.engines.argument import MEMORY, argument
from simulator.engines.values import WholeNumber
from simulator.engines.vllm import arguments

@dataclass(frozen=True, kw_only=True)
class More(arguments.EngineArgs):
    swap_space: int = argument(WholeNumber(0), "Host memory for swapped blocks, GiB.", decides=MEMORY, default=0)

arguments.EngineArgs = More

import json, sys
import headcount as hc
from validation.pages.options import reference_rows
from click.testing import CliRunner
from headcount.cli.main import cli
from headcount.cli.options import deployment_options
from simulator.engines.memory import memory_budget
import click

seen = []

@click.command("memory")
@deployment_options()
def command(**values):
    seen.append(values["swap_space"])

from headcount.cli.options import output_options
command = output_options(command)
ON = ["--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
runner = CliRunner()
pasted = "llama-3.1-8b --swap_space=4"
for words in (["--swap-space", "3"], ["--vllm-args", pasted], ["--config", sys.argv[1]]):
    done = runner.invoke(command, ON + words, standalone_mode=False)
    assert done.exception is None, done.exception
help = runner.invoke(command, ["--help"]).output
deployment = hc.resolve("llama-3.1-8b", "h100-sxm", swap_space=6)
print(json.dumps({
    "seen": seen, "help": "--swap-space N" in help,
    "table": [row for row in reference_rows(More) if "swap" in row[0]],
    "resolved": deployment.args.swap_space, "line": deployment.serve_line,
    "python": hc.memory("llama-3.1-8b", "h100-sxm", swap_space=7).fits,
}))
"""


@pytest.mark.slow
def test_an_added_argument_is_one_field(tmp_path: Path) -> None:
    """It is an option, a key of --config, a flag of --vllm-args, a row of the table, and in what is resolved."""
    config, script = tmp_path / "run.toml", tmp_path / "added.py"
    config.write_text("swap-space = 5\n")
    script.write_text(ADDED)
    done = subprocess.run([sys.executable, script, config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["seen"] == [3, 4, 5]
    assert found["help"] and found["python"]
    assert found["table"] == [["--swap-space", "N", "0", "Host memory for swapped blocks, GiB."]]
    assert found["resolved"] == 6
    assert found["line"].endswith("--swap-space 6")


def test_every_option_of_the_engine_is_an_argument_with_help() -> None:
    named = arguments_of(EngineArgs)
    assert {item.name for item in fields(EngineArgs)} - set(named) == {"max_cudagraph_capture_size"}
    assert all(described.help for described in named.values())
    flags = {flag for row in reference_rows(EngineArgs) for flag in row[0].split("/")}
    assert flags >= {"--max-num-batched-tokens", "-tp", "--no-async-scheduling", "--speculative-config"}
    options = {name for option in simulate_command.params for name in (*option.opts, *option.secondary_opts)}
    assert flags <= options


@pytest.mark.parametrize("version", ["0.6.5", "0.13.0", "0.19.0", "0.28.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("gpu", ["l4", "a100-80gb", "h100-sxm", "b200-sxm"])
def test_what_is_not_given_is_filled_in_once(version: str, gpu: str) -> None:
    filled = EngineArgs(vllm_version=version).filled(LLAMA, find_gpu(gpu))
    depends = [name for name, described in arguments_of(EngineArgs).items() if described.default_of is not None]
    of_a_use = {"prefix_cache_retention_interval", "max_loras", "max_cpu_loras"}  # without which they say nothing
    assert None not in [getattr(filled, name) for name in depends if name not in of_a_use]
    assert filled.filled(LLAMA, find_gpu(gpu)) == filled


def test_a_count_out_of_range_is_told_with_its_name() -> None:
    for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size"):
        with pytest.raises(ValueError, match=f"{name} is 0, must be at least 1"):
            EngineArgs(**{name: 0})


GIVEN: dict[str, Any] = {
    "tensor_parallel_size": st.sampled_from([1, 2, 4]),
    "quantization": st.sampled_from([None, "fp8"]),
    "max_model_len": st.sampled_from([2048, 8192]),
    "max_num_seqs": st.sampled_from([None, 64]),
    "gpu_memory_utilization": st.sampled_from([None, 0.8]),
    "enforce_eager": st.booleans(),
    "async_scheduling": st.sampled_from([None, True, False]),
    "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
    "watermark": st.sampled_from([0.0, 0.01]),
}


@pytest.mark.slow
@given(given_=st.fixed_dictionaries(GIVEN))
@settings(max_examples=20)
def test_the_line_to_paste_says_what_was_asked(given_: dict[str, Any]) -> None:
    deployment = resolve(LLAMA, H100, EngineArgs(**given_))
    context = click.Context(simulate_command)
    read = read_vllm_args(deployment.serve_line, context)
    assert load_model(read.pop("model")) == LLAMA
    assert EngineArgs(**read) == deployment.given


@pytest.mark.slow
@given(
    asynchronous=st.booleans(),
    stages=st.integers(1, 4),
    version=st.sampled_from(["0.19.0", "0.23.0", "0.24.0", "0.32.0"]),
)
def test_memory_and_scheduler_count_the_same_tokens_in_flight(asynchronous: bool, stages: int, version: str) -> None:
    args = EngineArgs(
        async_scheduling=asynchronous, pipeline_parallel_size=stages, vllm_version=version, max_model_len=8192
    )
    deployment = resolve(GEMMA, H100, args)
    assert max_in_flight_tokens(deployment.args) == deployment.engine.max_in_flight_tokens
    per_request = deployment.budget.layout.blocks_per_request(8192, deployment.engine.max_in_flight_tokens)
    assert deployment.budget.max_concurrency == pytest.approx(deployment.budget.num_gpu_blocks / per_request)


def test_scheduling_synchronously_counts_one_batch_less() -> None:
    on, off = (resolve(GEMMA, H100, async_scheduling=given, max_num_batched_tokens=2048) for given in (True, False))
    assert (on.engine.max_in_flight_tokens, off.engine.max_in_flight_tokens) == (4096, 2048)
    assert off.budget.max_concurrency > on.budget.max_concurrency


def test_pipeline_stages_have_no_buffers_of_all_reduces() -> None:
    alone, staged, split = (
        resolve(LLAMA, H100, pipeline_parallel_size=pp, tensor_parallel_size=tp).budget.non_torch_bytes
        for pp, tp in ((1, 1), (2, 1), (1, 2))
    )
    assert alone == staged < split - 2**30


def test_a_pipeline_takes_its_stages_of_the_gpus() -> None:
    args = EngineArgs(pipeline_parallel_size=2, max_model_len=4096)
    found = layouts(LLAMA, H100, args, num_gpus=8)
    assert {size: found[size].args.num_gpus for size in found} == {1: 2, 2: 4, 4: 8}  # type: ignore[union-attr]
    assert layouts(LLAMA, H100, args, num_gpus=3) == {1: "--pipeline-parallel-size 2 does not divide 3 GPUs"}
    asked = layouts(LLAMA, H100, replace(args, tensor_parallel_size=2), num_gpus=2)
    assert "tensor parallel size 2 × pipeline parallel size 2 does not divide 2 GPUs" in str(asked[2])


def test_variables_of_the_environment_are_heeded_refused_or_named() -> None:
    assert EngineArgs(environment=("CUDA_VISIBLE_DEVICES=0,1", "HF_HOME=/x", "VLLM_USE_V1=1")).ignored_environment == ()
    assert EngineArgs(environment=("VLLM_ATTENTION_BACKEND=X",)).ignored_environment == ("VLLM_ATTENTION_BACKEND=X",)
    with pytest.raises(ValueError, match="engine V0, which is not simulated"):
        resolve(LLAMA, H100, environment=("VLLM_USE_V1=0",))
    with pytest.raises(ValueError, match="VLLM_FLOAT32_MATMUL_PRECISION is 'hi', must be one of highest, high, medium"):
        resolve(LLAMA, H100, environment=("VLLM_FLOAT32_MATMUL_PRECISION=hi",))
    with pytest.raises(ValueError, match="NCCL_P2P_LEVEL is 'near', must be one of LOC, NVL, PIX, PXB, PHB, SYS"):
        resolve(LLAMA, H100, environment=("NCCL_P2P_LEVEL=near",))
    with pytest.raises(SplitError, match="shows 1 of the 2 GPUs"):
        resolve(LLAMA, H100, environment=("CUDA_VISIBLE_DEVICES=3",), tensor_parallel_size=2)
    found = layouts(LLAMA, H100, EngineArgs(environment=("CUDA_VISIBLE_DEVICES=3",), max_model_len=4096), num_gpus=2)
    assert "shows 1 of the 2" in str(found[2])


def test_the_scheduler_takes_every_argument_that_it_has_under_its_name() -> None:
    args = replace(EngineArgs(), long_prefill_token_threshold=512, scheduling_policy="priority", watermark=0.1)
    deployment = resolve(LLAMA, H100, args)
    again = engine_config(deployment.args, deployment.budget)
    assert deployment.engine == again
    assert (again.long_prefill_token_threshold, again.scheduling_policy, again.watermark) == (512, "priority", 0.1)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cold_start_s", float("inf"), "cold_start_s is inf, must be at least 0"),
        ("cold_start_s", -1.0, r"cold_start_s is -1.0, must be at least 0"),
        ("watermark", 10**400, "watermark holds a whole number of too many digits"),
        ("max_model_len", -(10**1000), "max_model_len holds a whole number of too many digits"),
        ("pipeline_parallel_size", None, "pipeline_parallel_size is None; it must be a whole number"),
        ("vllm_version", None, "vllm_version is None; it must be text"),
    ],
)
def test_a_value_that_no_engine_takes_is_told_at_once(name: str, value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EngineArgs(**{name: value})


def test_an_argument_has_the_engine_s_name_too_as_an_object_or_its_json() -> None:
    drafts = {"method": "eagle3", "num_speculative_tokens": 3, "acceptance_rate": 0.7}
    ours, *others = (
        hc.memory("llama-3.1-8b", "h100-sxm", **given).budget
        for given in (
            {"speculation": drafts},
            {"speculative_config": drafts},
            {"speculative_config": json.dumps(drafts)},
            {"engine": hc.EngineInput(arguments={"speculative_config": drafts})},
        )
    )
    assert [other == ours for other in others] == [True] * 3
    assert resolve(LLAMA, H100, speculative_config=drafts).args.decode_width == 4
    assert resolve(LLAMA, H100, engine="sglang", tp_size=2).args.tensor_parallel_size == 2
    with pytest.raises(ValueError, match="speculative_config and speculation are the same argument; give one"):
        hc.memory("llama-3.1-8b", "h100-sxm", speculation=drafts, speculative_config=drafts)
    with pytest.raises(ValueError, match="did you mean 'speculative_config'"):
        hc.memory("llama-3.1-8b", "h100-sxm", speculative_confg=drafts)


def test_minutes_are_read_as_people_and_as_manifests_write_them() -> None:
    assert Duration().read("20min") == Duration().read("20m") == Duration().read("1200 s") == 1200


def test_a_cold_start_is_a_time_or_that_of_measured_servers() -> None:
    kind = DurationOrAuto()
    assert (kind.read("auto"), kind.read("700ms")) == ("auto", pytest.approx(0.7))
    with pytest.raises(HeadcountError, match=r"'soon' is not a time; give a number .* or auto$"):
        kind.read("soon")
