"""What the commands answer, as anybody sees it."""

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import click
import pytest

from files.compiling.kernels import IS_COMPILED
from headcount.cli.main import cli
from tests.headcount.conftest import SHORT_ANSWERS, figures

Run = Callable[..., Any]
ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
SERVE = ("simulate", *ON, "--input-len", "100", "--output-len", "10", "--concurrency", "2")
SMALL = (
    "capacity", *ON, "--gpus", "1", "--replications", "3", "--max-num-seqs", "2", "--max-model-len", "4096",
    "--workload", SHORT_ANSWERS,
)  # fmt: skip
DISTRIBUTION = {"mean", "p50", "p90", "p95", "p99"}


def answer(headcount: Run, *arguments: object) -> dict[str, Any]:
    ran = headcount(*arguments, "--json")
    assert (ran.code, [line for line in ran.err.splitlines() if " after " not in line]) == (0, [])
    found = json.loads(ran.out)
    assert found["schema_version"] == 2
    return dict(found)


# Start-up, help


def test_help_is_shown_without_loading_what_simulates() -> None:
    heavy = {"numpy", "numba", "pandas", "scipy", "matplotlib", "rich", "yaml"}
    program = (
        "import sys; from headcount.cli.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        f"print(*{heavy} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "capacity" in done.stdout
    assert done.stderr == "\n"


SIMULATED = ("simulate", "--model", "Qwen/Qwen3-8B", "--gpu", "h100-sxm", "--workload", "chat", "--users", "5")


@pytest.mark.skipif(not IS_COMPILED or which("ld") is None, reason="kernels are not loaded as shared objects")
def test_a_second_simulation_loads_no_compiler_and_little_else() -> None:
    heavy = {
        "numba", "llvmlite", "pandas", "simpy", "scipy.stats", "scipy.optimize",
        "simulator.core.fleet", "simulator.study.capacity", "simulator.study.over_time", "kvcache.training.plan",
        "headcount.views.report.document", "headcount.views.summary.summary", "workloads.formats.parsing.columns",
    }  # fmt: skip
    program = (
        "import sys; from headcount.cli.main import cli\n"
        f"cli({SIMULATED}, standalone_mode=False)\n"
        f"print(*{heavy} & set(sys.modules), len(sys.modules), file=sys.stderr)"
    )
    for _ in range(2):  # the first may compile
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *found, num_modules = done.stderr.split()
    assert not found
    assert int(num_modules) < 725  # 1,082 before kernels were loaded without numba


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, those inside groups too, by the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize(
    ("words", "command"), list(commands()), ids=lambda value: "-".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_and_option_says_what_it_is_for(
    headcount: Run, words: tuple[str, ...], command: click.Command
) -> None:
    ran = headcount(*words, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: headcount {' '.join(words)}")
    assert (command.help or "").strip()
    for option in command.params:
        assert not isinstance(option, click.Option) or (option.help or "").strip(), option.opts[0]


def test_the_old_name_of_suggest_still_works_and_says_the_new_one(caplog: pytest.LogCaptureFixture) -> None:
    command = cli.get_command(click.Context(cli), "capacity")
    assert command is not None
    context = command.make_context("capacity", ["--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--lifts"])
    assert context.params["suggest"] is True
    assert "--lifts is now called --suggest" in caplog.text
    assert "--lifts" not in command.get_help(context)


@pytest.mark.parametrize("command", ["capacity", "simulate", "memory", "models", "gpus"])
def test_every_answer_can_be_had_as_json(headcount: Run, command: str) -> None:
    assert "--json" in headcount(command, "--help").out


# JSON


def test_memory_answers_with_the_agreed_keys(headcount: Run) -> None:
    found = answer(headcount, "memory", *ON)
    keys = (
        "weights_bytes", "activation_peak_bytes", "non_torch_bytes", "cuda_graph_bytes", "available_kv_bytes",
        "num_gpu_blocks", "block_size", "kv_cache_tokens", "max_concurrency", "kv_bytes_per_token",
    )  # fmt: skip
    assert set(keys) <= set(found)
    parts = sum(found[key] for key in keys[:5])
    assert parts == found["requested_bytes"]
    assert found["kv_bytes_per_token"] == 32 * 8 * 128 * 2 * 2


def test_simulate_answers_with_the_agreed_keys(headcount: Run) -> None:
    found = answer(headcount, *SERVE)
    single = (
        "num_requests", "num_finished", "num_preemptions", "requests_per_s", "output_tokens_per_s", "users_mean",
        "in_flight_mean", "running_mean", "waiting_mean", "api_server_mean", "kv_usage_mean", "kv_usage_max",
        "prefix_hit_rate",
    )  # fmt: skip
    assert set(single) <= set(found)
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        assert set(found[name]) - {"mean_low", "mean_high", "p99_low", "p99_high", "p99_of_runs"} == DISTRIBUTION
        assert all(found[name][statistic] > 0 for statistic in DISTRIBUTION)
    assert found["e2e_s"]["p99_low"] is None, "of 20 requests nothing is said of the slowest 1 %"
    for name in ("ttft_s", "tpot_s"):
        assert (
            0.5 < found[name]["mean_low"] / found[name]["mean"] < 1 < found[name]["mean_high"] / found[name]["mean"] < 2
        )
    assert found["settings"]["kv_cache_dtype"] == "auto"
    assert found["num_requests"] == found["num_finished"] == 20  # 10 × concurrency
    assert found["in_flight_mean"] == pytest.approx(found["requests_per_s"] * found["e2e_s"]["mean"])  # Little's law
    assert found["in_flight_mean"] <= 2.0  # a closed load without think time; at its end one is alone
    assert found["users_mean"] is None


def test_an_older_release_schedules_synchronously_unless_told(headcount: Run) -> None:
    load = ("--input-len", "50", "--output-len", "5", "--concurrency", "2", "--vllm-version", "0.13.0")
    assert "vLLM 0.13.0, synchronous scheduling, " in headcount("simulate", *ON, *load).out
    assert "synchronous" not in headcount("simulate", *ON, *load, "--async-scheduling").out
    assert not answer(headcount, "simulate", *ON, *load)["settings"]["async_scheduling"]
    newer = answer(headcount, "simulate", *ON, *load[:-1], "0.14.0")
    assert newer["settings"]["async_scheduling"]
    older = answer(headcount, "simulate", *ON, *load)
    assert newer["tpot_s"]["mean"] < older["tpot_s"]["mean"]


def test_users_are_what_was_asked_for(headcount: Run) -> None:
    load = ("--input-len", "50", "--output-len", "5", "--users", "20", "--think-time", "30s")
    found = answer(headcount, "simulate", *ON, *load)
    assert found["users_mean"] == 20
    rate = 20 / (30 + found["e2e_s"]["mean"])
    assert found["requests_per_s"] == pytest.approx(rate, rel=0.1)  # λ = N / (Z + R)


@pytest.mark.slow
def test_capacity_answers_with_its_question_and_rows(headcount: Run) -> None:
    found = answer(headcount, *SMALL, "--think-time", "60s", "--ttft", "2s")
    assert found["slo"] == {"ttft_s": 2.0, "ttft_token_s": 0.0, "tpot_s": 0.05, "attainment": 0.95}
    assert (found["think_time_s"], found["seed"], found["replications"]) == (60.0, 0, 3)
    (row,) = found["capacity"]
    assert row["gpus"] == row["tp"] == row["replicas"] == 1
    assert 0 < row["users_low"] <= row["users"] <= row["users_high"]


@pytest.mark.parametrize("seed", ["0", "7", "9" * 15])
def test_the_same_seed_gives_the_same_json(headcount: Run, seed: str) -> None:
    load = ("simulate", *ON, "--input-len", "100", "--output-len", "10", "--rate", "5", "--num-requests", "50")
    once, again, other = (headcount(*load, "--json", "--seed", value).out for value in (seed, seed, "1"))
    assert once == again != other


def test_models_and_gpus_are_listed_with_their_sources(headcount: Run) -> None:
    models, gpus = answer(headcount, "models")["models"], answer(headcount, "gpus")["gpus"]
    assert all(model["source"] for model in models)
    assert all(gpu["source"] for gpu in gpus)


# Text


@pytest.mark.parametrize(
    ("command", "part"),
    [(("memory", *ON), "KV blocks of 16 tokens"), (SERVE, "every request counts"), (("models",), "max_model_len"),
     (("gpus",), "bandwidth"), ((*SMALL, "--ttft", "2s"), "95 % confidence")],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_without_json_the_answer_is_text(headcount: Run, command: tuple[str, ...], part: str) -> None:
    ran = headcount(*command)
    assert (ran.code, ran.err) == (0, "")
    assert part in ran.out


# Files


def test_a_request_is_a_line_with_its_times(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    found = answer(headcount, *SERVE, "--requests-out", path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == list(range(20))
    for row in rows:
        assert float(row["e2e_s"]) == pytest.approx(float(row["finish_s"]) - float(row["arrival_s"]))
        assert float(row["tpot_s"]) == pytest.approx((float(row["e2e_s"]) - float(row["ttft_s"])) / 9)
    assert sum(float(row["ttft_s"]) for row in rows) / 20 == pytest.approx(found["ttft_s"]["mean"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["requests.csv"]


def test_steps_are_shown_as_vllms_scheduler_would_decide_them(headcount: Run, tmp_path: Path) -> None:
    """Two requests share 32 tokens; the third arrives later; the ids are the lines' numbers."""
    lines = [
        {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]},
        {"timestamp": 0, "input_length": 48, "output_length": 1, "hash_ids": [1, 2, 4]},
        {"timestamp": 25, "input_length": 20, "output_length": 2, "hash_ids": [9, 10]},
    ]
    trace, out = tmp_path / "trace.jsonl", tmp_path / "steps.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    constant = ("--latency-model", "constant", "--step-s", "0.01", "--no-async-scheduling")
    found = answer(
        headcount, "simulate", *ON, "--workload", trace, "--trace-block-size", 16, *constant, "--steps-out", out
    )
    steps = [json.loads(line) for line in out.read_text().splitlines()]
    keys = ["step", "scheduled", "preempted", "finished", "free_blocks", "running", "waiting"]
    assert all(list(step) == keys for step in steps)
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["scheduled"] == {"0": 40, "1": 16}  # 32 of 48 tokens hit
    assert steps[0]["free_blocks"] == found["num_gpu_blocks"] - 1 - 3 - 1  # the null block, 3 blocks, 1 more
    assert steps[0]["finished"] == [1]
    assert [(step["running"], step["waiting"]) for step in steps[:2]] == [(2, 0), (1, 0)]
    assert sorted(request for step in steps for request in step["finished"]) == [0, 1, 2]
    tokens = {name: sum(step["scheduled"].get(name, 0) for step in steps) for name in "012"}
    assert tokens == {"0": 42, "1": 16, "2": 21}
    assert found["e2e_s"]["mean"] > 0


def test_a_trace_is_replayed_with_its_own_times(headcount: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"2023-11-16 10:00:{second:02},10,5" for second in (0, 7, 30)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    found = answer(headcount, "simulate", *ON, "--workload", trace)
    assert found["num_finished"] == 3
    assert math.floor(found["duration_s"]) == 30
    assert answer(headcount, "simulate", *ON, "--workload", trace, "--num-requests", 2)["num_finished"] == 2


# Options from elsewhere


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", "max-model-len: 8k\nblock_size: 32\nenable-prefix-caching: false\njson: true\ntp: 2\n"),
        ("run.toml", 'max-model-len = "8k"\nblock_size = 32\nno-enable-prefix-caching = true\njson = true\ntp = 2\n'),
    ],
)
def test_options_can_come_from_a_file(headcount: Run, name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    direct = headcount(
        *SERVE, "--max-model-len", "8000", "--block-size", "32", "--no-enable-prefix-caching", "--json", "-tp", "2"
    )
    assert direct.code == 0
    assert figures(headcount(*SERVE, "--config", path).out) == figures(direct.out)


def test_a_list_in_a_config_is_a_list(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("gpus: [1, 2]\nmodel: llama-3.1-70b\ngpu: l4\n")
    ran = headcount("capacity", "--config", path)
    assert "no GPU count runs it; 2 GPUs: " in ran.err


def test_the_command_line_wins_over_the_config(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("max-model-len: 8192\ngpu: l4\nmodel: llama-3.1-8b\n")
    found = answer(headcount, "memory", "--config", path, "--gpu", "h100-sxm")
    assert (found["gpu"], found["max_model_len"]) == ("h100-sxm", 8192)


def test_a_folder_is_no_config(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--config", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "is a folder" in ran.err


@pytest.mark.slow
def test_a_router_in_python_answers_as_its_compiled_form(headcount: Run) -> None:
    """By `module:Name`, in `simulate` and in `capacity`: the core comes back at every arrival."""
    python = ("--router", "simulator.fleet.routers.round_robin:Router")
    constant = ("--latency-model", "constant", "--step-s", "0.01")
    for command in ((*SERVE, "--replicas", 3), (*SMALL[:6], 2, *SMALL[7:], "-tp", 1, *constant)):
        found = answer(headcount, *command, *python)
        expected = answer(headcount, *command, "--router", "round-robin")
        for each in (*found.get("capacity", ()), *expected.get("capacity", ())):
            assert "ound" in each.pop("router")
            del each["screened"]
        for name in ("ttft_s", "num_finished", "capacity"):
            assert found.get(name) == expected.get(name)


def test_no_more_requests_finish_than_are_counted(headcount: Run) -> None:
    """After a warm-up, what arrived in it and finished later counts for the rate alone."""
    load = ("--users", 40, "--think-time", "1s", "--input-len", 200, "--output-len", 200)
    found = answer(headcount, "simulate", *ON, *load)
    assert found["num_finished"] <= found["num_requests"]
    assert found["num_finished"] > 0.9 * found["num_requests"]


def test_requests_that_clients_cancel_are_told_and_each_attempt_is_listed(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "requests.csv"
    load = ("--rate", 20, "--num-requests", 60, "--input-len", 200, "--output-len", 40)
    step = ("--latency-model", "constant", "--step-s", "0.05", "--max-num-seqs", 8)
    clients = ("--patience", "5s", "--client-timeout", "2500ms", "--retries", 1)
    found = json.loads(headcount("simulate", *ON, *load, *step, *clients, "--requests-out", out, "--json").out)
    with out.open() as file:
        rows = [row for row in csv.DictReader(file) if row["arrival_s"]]
    retries, cancelled = [row for row in rows if row["retry_of"]], sum(int(row["cancelled"]) for row in rows)
    shares = found["cancelled"]
    assert shares["retries"] == pytest.approx(len(retries) / len(rows))
    assert shares["abandoned"] + shares["timed_out"] == pytest.approx(cancelled / len(rows))
    assert min(shares.values()) > 0
    assert found["num_requests"] == len(rows) == found["num_finished"] + cancelled
    assert {"requests-cancelled"} <= {note["code"] for note in found["diagnostics"]}
    assert "cancelled" not in answer(headcount, "simulate", *ON, *load, *step)


@pytest.mark.parametrize(
    "given",
    [
        ("plan", "--users", 500, "--price", "h200-sxm=2.5", "--price", "b200-sxm=5"),
        ("plan", "--users", 500, "--gpu", "h200-sxm", "--gpu", "b200-sxm"),
        ("compare", "--gpu", "h100-sxm", "--gpu", "l40s"),
    ],
)
def test_a_list_never_wins_over_another_in_silence(given: tuple[object, ...], headcount: Callable[..., Any]) -> None:
    done = headcount(*given, "--model", "llama-3.1-8b")
    assert done.code == 2
    assert "is given twice; give it once, its values separated by commas" in done.err


def test_a_later_value_overrides_that_of_an_alias(headcount: Callable[..., Any]) -> None:
    found = [headcount("memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", *tp) for tp in (
        ("-tp", 2, "--tensor-parallel-size", 1), ("-tp", 1),
    )]  # fmt: skip
    assert found[0].out == found[1].out
    assert found[0].code == 0
