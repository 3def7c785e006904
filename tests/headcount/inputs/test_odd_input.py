"""What is odd is honoured, refused or said, never ignored."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcache.releases import NEWEST_RELEASE
from tests.headcount.conftest import figures
from tests.headcount.told import assert_told

Run = Callable[..., Any]
ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
LOAD = ("--input-len", "100", "--output-len", "10", "--concurrency", "2")
RECORD = ("calibrate", "record", "--model", "tiny", "--plan-only")
WATCH = ("calibrate", "record", "--out", "nowhere", "--seconds", "1", "--interval", "1")


def test_a_release_of_engine_v0_is_not_simulated(headcount: Run) -> None:
    for command in (("simulate", *ON, *LOAD), ("capacity", *ON, "--gpus", "1")):
        assert_told(headcount(*command, "--vllm-version", "0.7.3"), "0.7.3, which schedules with engine V0")


def test_a_release_newer_than_any_is_said(headcount: Run) -> None:
    ran = headcount("simulate", *ON, *LOAD, "--json", "--vllm-version", "99.0")
    assert (ran.code, ran.err) == (
        0,
        "headcount: warning: --vllm-version 99.0.0 is newer than any known release: the rules of "
        f"{NEWEST_RELEASE} apply\n",
    )
    newest = headcount("simulate", *ON, *LOAD, "--json", "--vllm-version", NEWEST_RELEASE)
    newer, known = figures(ran.out), figures(newest.out)
    assert newer["settings"].pop("vllm_version") != known["settings"].pop("vllm_version")
    assert newer["diagnostics"].pop(0)["code"] == "newer-release"
    assert newer == known


@pytest.mark.parametrize("version", ["abc", "-1", "1", "", "1e9", "0.5.0.0.0", "９.０"])
def test_what_is_no_release_is_told(headcount: Run, version: str) -> None:
    for command in (("memory", *ON), ("simulate", *ON, *LOAD), ("capacity", *ON, "--gpus", "1")):
        assert_told(
            headcount(*command, "--vllm-version", version), "is not a release number; give one such as '0.33.0'"
        )


def test_users_are_not_ignored_by_a_comparison(headcount: Run, tmp_path: Path) -> None:
    compare = ("memory", *ON, "--compare", "-tp", "1", "--kv-cache-dtype", "fp8")
    config = tmp_path / "config.yaml"
    config.write_text("users: 7")
    for options in (("--users", "7"), ("--users", "7", "--report", tmp_path / "x.svg"), ("--config", config)):
        assert_told(headcount(*compare, *options), "--users does not go with --compare")
    assert headcount(*compare).code == 0
    assert [path.name for path in tmp_path.glob("*.svg")] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("llama-3.1-8b", "h100-sxm"), "128.0 KiB each 3.44 requests"),
        (("llama-3.1-8b", "h100-sxm", "-tp", "4"), "128.0 KiB each, over 4 GPUs together 16.09 requests"),
        (("llama-3.1-8b", "h100-sxm", "-tp", "2", "-pp", "4"), "128.0 KiB each, over 8 GPUs together 33.27 requests"),
        (
            ("qwen3-next-80b", "h100-sxm", "-tp", "4"),
            "48.0 KiB each and 135.0 MiB of state per request, over 4 GPUs together; 24.0 KiB without the copies "
            "that several GPUs keep",
        ),
        (
            ("deepseek-v3", "h200-sxm", "-tp", "8"),
            "549.0 KiB each, over 8 GPUs together; 68.6 KiB without the copies that several GPUs keep",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bytes_per_token_count_every_copy(headcount: Run, options: tuple[str, ...], said: str) -> None:
    model, gpu, *split = options
    ran = headcount("memory", "--model", model, "--gpu", gpu, *split)
    assert f" at {said}" in " ".join(ran.out.split())  # lines are wrapped
    found = json.loads(headcount("memory", "--model", model, "--gpu", gpu, *split, "--json").out)
    of_model = re.search(r"([\d.]+) KiB without", said) or re.search(r"([\d.]+) KiB each", said)
    assert of_model is not None
    assert found["kv_bytes_per_token"] / 1024 == pytest.approx(float(of_model[1]), abs=0.05)


def test_what_one_gpu_stores_is_its_stage_and_its_heads(headcount: Run) -> None:
    found = json.loads(headcount("memory", *ON, "-tp", "2", "-pp", "4", "--json").out)
    assert found["kv_bytes_per_token_per_gpu"] * 8 == found["kv_bytes_per_token"] == 128 * 1024


def test_counts_are_not_called_tokens(headcount: Run) -> None:
    for command in ("simulate", "memory", "calibrate record"):
        metavars = dict(re.findall(r"(--[a-z-]+) ([A-Z]+)\b", headcount(*command.split(), "--help").out))
        assert {metavars[name] for name in ("--max-num-seqs", "--num-gpu-blocks-override")} == {"N"}
        assert {metavars[name] for name in ("--max-model-len", "--block-size")} == {"TOKENS"}


@pytest.mark.parametrize(
    "line",
    [
        "docker run --gpus all -e 'A=b c' vllm/vllm-openai:v0.11.0 --model llama-3.1-8b --max-model-len 8K",
        "docker run registry.example/vllm/vllm-openai@sha256:00 llama-3.1-8b --max-model-len 8K",
        "A=1 python3 -m vllm.entrypoints.openai.api_server --model llama-3.1-8b --max-model-len 8K",
    ],
)
def test_lines_of_docker_and_python_are_read_from_the_server_on(headcount: Run, line: str) -> None:
    ran = headcount("memory", "--gpu", "h100-sxm", "--json", "--vllm-args", line)
    assert (ran.code, json.loads(ran.out)["max_model_len"]) == (0, 8192)


def test_an_empty_line_is_refused(headcount: Run) -> None:
    assert_told(headcount("memory", *ON, "--vllm-args", ""), "--vllm-args is empty; paste a")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("calibrate", "chek"), "no command 'chek'; did you mean 'check'?"),
        (("vllm", "instal"), "no command 'instal'; did you mean 'install'?"),
        ((*WATCH, "--url", "http://[::1"), "'http://[::1' is not the address of a server"),
        ((*WATCH, "--url", "http://localhost:99999"), "is not the address of a server"),
        ((*WATCH, "--url", "http://localhost", "--seconds", "inf"), "--seconds is inf; give a time that ends"),
        ((*RECORD, "--temperature", "inf"), "--temperature is inf; give 0 or more"),
        ((*RECORD, "--max-num-seqs", "2k", "--max-num-batched-tokens", "1k"), "--max-num-seqs is 2,000, above"),
        (("training-memory", *ON, "--seq-len", "1G"), "4,990,000.4 GiB short per GPU"),
        (("memory", *ON, "--num-gpu-blocks-override", "1000"), "1,000 KV blocks of 16 tokens do not hold"),
        (("memory", *ON, "--max-num-seqs", "9000"), "max_num_seqs is 9,000, above max_num_batched_tokens 8,192"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_it_is_told(headcount: Run, arguments: tuple[str, ...], part: str) -> None:
    assert_told(headcount(*arguments), part)


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"", "is not a latency profile: it has no schema_version"), (b"\xff\x00", "not a text file in UTF-8")],
)
def test_what_is_no_latency_profile_is_told(headcount: Run, content: bytes, part: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_bytes(content)
    assert_told(headcount("simulate", *ON, *LOAD, "--latency-profile", path), part)


@pytest.mark.slow
def test_a_terminal_without_bars_shows_the_rest() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("headcount")), "memory", *ON],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "KV cache         55.00  " in done.stdout


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--concurrency", "2", "--latency-model", "constant", "--step-s", "1e300"), "at least 0.0001, at most 3,600"),
        (("--rate", "1e-300", "--num-requests", "5"), "the rate is 1e-300 requests/s; it must be from 1e-09 to 1e+09"),
        (("--users", "5", "--think-time", "99999999h"), "'99999999h' is too long; give at most 1,000h"),
        (("--users", "5", "--think-time", "1s", "--max-model-len", "105"), "takes more than max_model_len 105; raise"),
    ],
)
def test_a_run_beyond_its_clock_or_its_context_is_refused(
    headcount: Run, options: tuple[str, ...], part: str, tmp_path: Path
) -> None:
    load = ("--input-len", "100", "--output-len", "10", *options)
    assert_told(headcount("simulate", *ON, *load, "--requests-out", tmp_path / "requests.csv"), part)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_in_unix_time_is_served(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 1.7e12 + 5000 * row, "input_length": 100, "output_length": 10} for row in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    late = json.loads(headcount("simulate", *ON, "--workload", path, "--json").out)
    path.write_text("\n".join(json.dumps(line | {"timestamp": line["timestamp"] - 1.7e12}) for line in lines))
    early = json.loads(headcount("simulate", *ON, "--workload", path, "--json").out)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert late[name]["mean"] == pytest.approx(early[name]["mean"], rel=1e-4)


@pytest.mark.slow
def test_answers_that_are_cut_at_max_model_len_are_told(headcount: Run, tmp_path: Path) -> None:
    load = ("--input-len", "100", "--output-len", "50", "--concurrency", "2", "--max-model-len", "110")
    ran = headcount("simulate", *ON, *load, "--json")
    told = "headcount: warning: 100 % of answers are cut at max_model_len 110; the model takes --max-model-len 131072\n"
    assert (ran.code, ran.err) == (0, told)
    path = tmp_path / "trace.jsonl"
    lengths = ((50, 10), (100, 50), (50, 70))
    path.write_text(
        "\n".join(
            json.dumps({"timestamp": 9000 * row, "input_length": prompt, "output_length": answer})
            for row, (prompt, answer) in enumerate(lengths)
        )
    )
    for command in (("simulate", *ON), ("capacity", *ON, "--gpus", "1", "--replications", "2")):
        ran = headcount(*command, "--workload", path, "--max-model-len", "110", "--max-num-seqs", "2")
        assert "warning: 66.7 % of answers are cut at max_model_len 110" in ran.err


@pytest.mark.parametrize("method", [["ngram"], {"a": 1}, None, 3])
def test_a_speculative_method_that_is_no_name_is_told(headcount: Run, method: object) -> None:
    config = json.dumps({"method": method, "num_speculative_tokens": 2, "acceptance_rate": 0.5})
    ran = headcount("simulate", *ON, *LOAD, "--latency-model", "constant", "--speculative-config", config)
    assert (ran.code, ran.out) == (2, "")
    assert "it must be one of draft_model, eagle" in ran.err


@pytest.mark.slow
def test_times_in_a_config_are_read(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "load.yaml"
    path.write_text("users: 2\nthink-time: 500ms\ninput-len: 100\noutput-len: 10\n")
    given = ("--users", "2", "--think-time", "500ms", "--input-len", "100", "--output-len", "10")
    ran = headcount("simulate", *ON, "--json", "--config", path)
    assert (ran.code, ran.err) == (0, "")
    assert figures(ran.out) == figures(headcount("simulate", *ON, "--json", *given).out)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("block-size: 16\nblock-size: 32\n", "block-size"),
        ("block-size: 16\nblock_size: 32\n", "block_size"),
        ("enforce-eager: true\nno-enforce-eager: true\n", "no-enforce-eager"),
    ],
)
def test_a_config_gives_an_option_once(headcount: Run, content: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(content)
    assert_told(headcount("memory", *ON, "--config", path), f"'{name}' is given twice; leave out one of them")


@pytest.mark.slow
def test_what_is_no_text_is_not_read_to_its_end() -> None:
    if not Path("/dev/zero").is_char_device():
        pytest.skip("this system has no /dev/zero")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("headcount")), "calibrate", "read", "/dev/zero"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "/dev/zero is a pipe or a device" in done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning")  # of charts that leave no room for what they show
def test_brackets_in_names_are_printed(headcount: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("[red]", "d["):
        Path(folder).mkdir()
    trace, other, page = "d[/b].csv", "[red].csv", "d[/i].html"
    for path in (trace, other):
        Path(path).write_text(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 10:00:00,9,5\n2023-11-16 10:00:01,9,5\n"
        )
    source = Path(__file__).parents[3] / "kvcache" / "models" / "meta-llama--llama-3.1-8b-instruct.json"
    found = json.loads(source.read_text(encoding="utf-8"))
    Path("[red]/config.json").write_text(json.dumps(found.get("config", found)))
    model = ("--model", "[red]", "--gpu", "h100-sxm")
    for command in (("memory",), ("training-memory",), ("simulate", *LOAD), ("memory", "--compare", "-tp", "1")):
        assert headcount(command[0], *model, *command[1:]).out.startswith("[red] ")
    assert "[red].csv, 2 requests replayed" in headcount("simulate", *ON, "--workload", other).out
    small = ("--gpus", "1", "--replications", "2", "--max-num-seqs", "2", "--max-model-len", "512")
    ran = headcount("capacity", *model, *small, "--workload", trace, "--report", page)
    assert ran.code in (0, 1)
    assert ran.out.startswith(f"[red] on h100-sxm, workload {trace}: ")
    assert f"report: {page}" in ran.out
    ran = headcount("calibrate", "read", other)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
