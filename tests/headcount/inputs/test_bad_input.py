"""Every mistake is told in one line that says what was given and what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from tests.headcount.conftest import SHORT_ANSWERS
from tests.headcount.told import CAPACITY, LENGTHS, MEMORY, ON, OPEN, SERVE, SIMULATE, assert_told

FORM = """
from dataclasses import replace
from simulator.latency.forms import physical

def latency_model(served):
    found = physical.latency_model(served)
    times = found.step_times
    return replace(found, step_times={})
"""
ROUTER = "SEES = ()\nclass Router:\n  def __init__(self, seed): pass\n  def choose(self, view): {}"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["zzzz"], "no command 'zzzz'; known: cache, calibrate, capacity"),
        (["capacit"], "no command 'capacit'; did you mean 'capacity'?"),
        (["--nope"], "No such option '--nope'"),
        (["capacity", "--model"], "'--model' requires an argument"),
        (["capacity"], "Missing option '--model'"),
        (["models", "x"], "unexpected extra argument (x)"),
        (["memory", "--model", "llama-3.1-9b", "--gpu", "l4"], "did you mean 'llama-3.1-8b'"),
        (["memory", "--model", "", "--gpu", "l4"], "no model ''; known: "),
        (
            ["memory", "--model", "/nowhere/config.json", "--gpu", "l4"],
            "no file '/nowhere/config.json'; give a mode",
        ),
        (["memory", "--model", "x" * 5000, "--gpu", "l4"], f"no model '{'x' * 79}…'; "),
        (["memory", "--model", "a\n\x1b[31m", "--gpu", "l4"], "no model 'a\\n\\x1b[31m'; known"),
        (
            ["memory", "--model", "llama-3.1-8b", "--gpu", "h10"],
            "no GPU 'h10'; did you mean 'h100-nvl' or 'h100-pcie' or 'h100-sxm'",
        ),
        (
            ["memory", "--model", "llama-3.1-8b", "--gpu", "h100:4"],
            "no GPU 'h100:4'; did you mean 'h100-nvl' or 'h100-pcie' or 'h100-sxm'? Give the name alone",
        ),
        (
            ["memory", "--model", "llama-3.1-8b", "--gpu", "4xH100"],
            "no GPU '4xH100'; did you mean 'h100-nvl' or 'h100-pcie' or 'h100-sxm'? Give the name alone",
        ),
        (
            ["memory", "--model", "llama-3.1-8b", "--gpu", "h100 x 4"],
            "no GPU 'h100 x 4'; did you mean 'h100-nvl' or 'h100-pcie' or 'h100-sxm'? Give the name alone",
        ),
        (["memory", "--model", "llama-3.1-8b", "--gpu", "../gpus/l4"], "no GPU '../gpus/l4'"),
        ([*MEMORY, "-pp", "33"], "pipeline_parallel_size 33 exceeds the model's 32 layers"),
        ([*MEMORY, "-pp", "0"], "'0' is not a whole number of at least 1"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_wrong_name_is_told_with_the_nearest(headcount: Callable[..., Any], arguments: list[str], part: str) -> None:
    ran = headcount(*arguments)
    assert_told(ran, part)
    assert ran.out == ""


APART = ("--pools", "prefill=1,decode=1")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([*SERVE, *APART, "--kv-transfer", ""], "no KV transfer ''; known: pull, push"),
        (["capacity", *ON, *APART, "--kv-transfer", ""], "no KV transfer ''"),
        (["compare", *ON, *APART, "--kv-transfer", ""], "no KV transfer ''"),
        (["plan", *ON[:2], "--users", "5", "--pools", "prefill,decode", "--kv-transfer", ""], "no KV transfer ''"),
        ([*SERVE, *APART, "--decider", ""], "no decider ''; known: isl_bounding"),
        (["compare", *ON, *APART, "--decider", ""], "no decider ''"),
        ([*SERVE, "--decider", ""], "--decider needs two pools; give --pools"),
        ([*CAPACITY, "--decider", ""], "--decider needs two pools; give --pools"),
        (["calibrate", "read", "pyproject.toml", "--format", ""], "no format ''"),
        ([*SERVE, "--engine", ""], "no engine ''; known: sglang, vllm"),
    ],
)
def test_an_empty_name_is_no_name(headcount: Callable[..., Any], arguments: list[str], part: str) -> None:
    """As an unset shell variable leaves it."""
    assert_told(headcount(*arguments), part)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["-tp", "3"], "tensor_parallel_size 3 neither divides nor is a multiple of the 8 KV heads; take 1, 2, 4 or 8"),
        (["-tp", "0"], "'0' is not a whole number of at least 1"),
        (["-tp", "64"], "tensor_parallel_size 64 does not divide the attention heads 32"),
        (["--block-size", "0"], "'0' is not a whole number above 0"),
        (["--block-size", "7"], "block_size is 7; vLLM takes a multiple of 16"),
        (["--gpu-memory-utilization", "0"], "gpu_memory_utilization is 0.0, must lie in (0, 1]"),
        (["--gpu-memory-utilization", "1.5"], "gpu_memory_utilization is 1.5, must lie in (0, 1]"),
        (["--gpu-memory-utilization", "nan"], "'nan' is not a number; give a share above 0, at most 1"),
        (["--gpu-memory-utilization", "90%"], "'90%' is not a number; give a share above 0, at most 1"),
        (["--gpu-memory-utilization", "0.1"], "GiB short per GPU; fits with"),
        (["--max-num-seqs", "0"], "'0' is not a whole number above 0"),
        (["--max-num-seqs", "-1"], "'-1' is not a whole number above 0"),
        (
            ["--max-num-seqs", "600", "--max-num-batched-tokens", "512"],
            "max_num_seqs is 600, above max_num_bat",
        ),
        (["--max-num-seqs", "200k", "--max-num-batched-tokens", "200k"], "--max-num-seqs 1024"),
        (["--max-num-batched-tokens", "0"], "'0' is not a whole number above 0"),
        (["--max-model-len", "0"], "'0' is not a whole number above 0"),
        (["--max-model-len", "100"], "20 of 20 prompts do not fit max_model_len 100: request 0 has 100 tokens"),
        (["--max-model-len", "1G"], "fits with --max-model-len"),
        (["--num-gpu-blocks-override", "3", "--max-model-len", "128"], "raise --num-gpu-blocks-override to"),
        (["--num-gpu-blocks-override", "9G"], "'9G' is too large; give at most 2,147,483,647"),
        (
            ["--num-gpu-blocks-override", "2000m", "--replicas", "2"],
            "KV blocks over 2 replicas are more than one run can hold",
        ),
        (["--length-spread", "0"], "length_spread is 0.0; it must be above 0, at most 1"),
        (["--length-spread", "2"], "length_spread is 2.0; it must be above 0, at most 1"),
        (["--num-requests", "0"], "'0' is not a whole number above 0"),
        (
            ["--num-requests", "4M"],
            "4,194,304 requests are more than 2,000,000 (limit requests; --limit requests=N raises",
        ),
        (["--prefix-cache-retention-interval", "2147483648"], "of at least 0, at most 2,147,483,647"),
        (["--requests-out", " "], "' ' names no file"),
        (["--num-requests", "100G"], "'100G' is too large; give at most 2,147,483,647"),
        (["--num-requests", "2000m"], "num_requests is 2,000,000,000; it must be at least 1, below 1,073,741,824"),
        (["--concurrency", "0"], "'0' is not a whole number of at least 1"),
        (["--rate", "1"], "--rate cannot go with --concurrency"),
        (["--users", "5", "--think-time", "1s"], "--concurrency cannot go with --users"),
        (["--burstiness", "1"], "--burstiness cannot go with --concurrency"),
        (["--think-time", "3s"], "--think-time cannot go with --concurrency"),
        (["--workload", "chat"], "--workload cannot go with --concurrency"),
        (["--latency-model", "nope"], "no latency model 'nope'; known: constant, physical"),
        (["--latency-model", "nowhere:model"], "no latency model 'nowhere:model': No module named 'nowhere'"),
        (["--latency-model", "_terms"], "no latency model '_terms'"),
        (["--step-s", "0.01"], "--step-s needs --latency-model constant"),
        (["--latency-model", "constant", "--step-s", "0"], "step_s is 0.0; a constant step time must be a finite"),
        (["--latency-model", "constant", "--step-s", "1e300"], "at least 0.0001, at most 3,600"),
        (["--latency-model", "constant", "--step-s", "nan"], "'nan' is not a number; give seconds, such as 0.01"),
        (["--vllm-version", "abc"], "vllm_version 'abc' is not a release number; give one such as '0.33.0'"),
        (["--vllm-version", "0.²"], "is not a release number"),
        (["--quantization", "nope"], "no quantization 'nope'; did you mean 'none'?"),
        (["--quantization", "../gpus/l4"], "no quantization '../gpus/l4'; known: "),
        (
            ["--quantization", "mxfp4"],
            "quantization 'mxfp4' packs experts only, and the model has none",
        ),
        (["--kv-cache-dtype", "nope"], "no kv_cache_dtype 'nope'; allowed: auto,"),
        (["--kv-cache-dtype", "fp8_ds_mla"], "needs latent attention"),
        (["--router", "nope"], "no router 'nope'; known: aibrix-prefix-cache, "),
        (["--replicas", "0"], "'0' is not a whole number of at least 1"),
        (["--replicas", "1000000"], "more than one run can hold"),
        (["--seed", "-1"], "'-1' is not a whole number of at least 0"),
        (["--seed", "9" * 20], "is not a whole number of at least 0, at most 999,999,999,999,999,999"),
        (["--seed", "x"], "'x' is not a whole number of at least 0"),
        (["--steps-out", "steps.jsonl", "--replicas", "2"], "use it with --replicas 1"),
        (["--requests-out", "/nowhere/x.csv"], "there is no folder /nowhere; create it or name another"),
        (["--requests-out", "/"], "--requests-out / is a folder; name a file"),
        (["--requests-out", "/dev/null"], "is not an ordinary file; name one"),
        (["--requests-out", "both", "--steps-out", "both"], "give each its own file"),
        (["--config", "/nowhere.yaml"], "--config /nowhere.yaml cannot be read: no such file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_wrong_setting_is_told_before_anything_is_written(
    headcount: Callable[..., Any], options: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = headcount(*SERVE, *options)
    assert_told(ran, part)
    assert ran.out == ""
    assert not list(tmp_path.iterdir())


def counting(gpus: str) -> list[str]:
    """The question about other GPU counts."""
    return [gpus if before == "--gpus" else word for before, word in zip(["", *CAPACITY], CAPACITY, strict=False)]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([*OPEN, "--rate", "0"], "the rate is 0.0 requests/s; it must be from 1e-09 to 1e+09"),
        ([*OPEN, "--rate", "-1"], "the rate is -1.0 requests/s"),
        ([*OPEN, "--rate", "nan"], "'nan' is not a number; give requests per second"),
        ([*OPEN, "--rate", "1", "--burstiness", "0"], "burstiness is 0.0; it must be a number from 0.01 to 1,000,000"),
        (
            [*OPEN, "--rate", "1", "--burstiness", "inf"],
            "burstiness is inf; it must be a number from 0.01 to 1,000,000",
        ),
        ([*SIMULATE, *LENGTHS, "--rate", "1"], "--rate needs --num-requests"),
        ([*SIMULATE, *LENGTHS], "no load; give --workload FILE, --users N"),
        ([*SIMULATE, "--input-len", "10", "--concurrency", "1"], "--concurrency needs --output-len"),
        (
            [*SIMULATE, "--input-len", "2G", "--output-len", "1", "--concurrency", "1"],
            "'2G' is too large; give at most",
        ),
        ([*SIMULATE, "--workload", "cht"], "no workload 'cht': neither a file nor a preset; did you mean 'chat'?"),
        ([*SIMULATE, "--workload", "chat"], "say how many with --users N"),
        ([*SIMULATE, "--workload", ""], "no workload ''"),
        ([*SIMULATE, "--workload", "/dev"], "is a folder; give an ordinary file"),
        ([*SIMULATE, "--users", "5", *LENGTHS], "--users needs --think-time, or a preset: --workload chat"),
        ([*SIMULATE, "--users", "5"], "--users needs --input-len and --output-len and --think-time, or a preset"),
        ([*SIMULATE, "--rate", "5"], "--rate needs --input-len and --output-len and --num-requests"),
        ([*SIMULATE, "--users", "2000000", "--workload", "chat"], "--users 2,000,000: at most 1,000,000 in one run"),
        ([*SIMULATE, "--users", "5", "--workload", "chat", "--input-len", "3"], "--input-len cannot go with --users"),
        ([*SIMULATE, "--users", "5", "--workload", "chat", "--max-model-len", "100"], "max_model_len is 100; workload"),
        (counting("0"), "'0' is not a list of GPU counts; give whole numbers from 1 to 100,000"),
        (counting("1,x"), "'1,x' is not a list of GPU counts"),
        (counting(""), "'' is not a list of GPU counts"),
        (counting("9" * 5000), "999… is not a list of GPU counts".replace("…", "…'")),
        ([*CAPACITY, "--replications", "1"], "'1' is not a whole number of at least 2"),
        ([*CAPACITY, "--attainment", "0"], "the attainment target is 0.0; it must lie between 0 and 1"),
        ([*CAPACITY, "--attainment", "1"], "the attainment target is 1.0; it must lie between 0 and 1"),
        ([*CAPACITY, "--attainment", "2"], "the attainment target is 2.0; it must lie between 0 and 1"),
        ([*CAPACITY, "--attainment", "95%"], "'95%' is not a number; give a share between 0 and 1"),
        ([*CAPACITY, "--ttft", "500"], "'500' is not a time; give a number with its unit, such as 500ms"),
        ([*CAPACITY, "--ttft", "0ms"], "the TTFT limit is 0.0 s; it must be a finite time above 0"),
        ([*CAPACITY, "--tpot", "1e400s"], "'1e400s' is too long; give at most 1,000h"),
        ([*CAPACITY, "--think-time", "5"], "'5' is not a time"),
        ([*CAPACITY, "--slo", "chta"], "no SLO 'chta'; did you mean 'chat'?"),
        ([*CAPACITY, "--router", "nope"], "no router 'nope'"),
        ([*CAPACITY, "--report", "/nowhere/report.html"], "--report /nowhere/report.html: there is no folder /nowhere"),
    ],
    ids=lambda value: " ".join(value[5:])[:60] if isinstance(value, list) else "",
)
def test_a_wrong_load_or_target_is_told(headcount: Callable[..., Any], arguments: list[str], part: str) -> None:
    ran = headcount(*arguments)
    assert_told(ran, part)
    assert ran.out == ""


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("x = 1", "it has no SEES and no Router, which a router needs; add it"),
        ("SEES = ()", "it has no Router, which a router needs; add it"),
        (ROUTER.replace("pass", "1 / 0").format("0"), "making it fails with ZeroDivisionError"),
        ("SEES = ()\nclass Router:\n  def __init__(self, seed): pass", "is no class with choose(view)"),
        (ROUTER.format("return 99"), "chose engine 99; choose(view) must return a number from 0 to 0"),
        (ROUTER.format("return 'x'"), "chose engine 'x'; choose(view) must return a number"),
        (ROUTER.format("1 / 0"), "choose(view) fails with ZeroDivisionError: division by zero"),
        (ROUTER.format("raise SystemExit"), "choose(view) fails with SystemExit"),
        (ROUTER.replace("pass", "raise SystemExit(0)"), "making it fails with SystemExit: 0"),
        (ROUTER.replace("pass", "raise ValueError('v')"), "making it fails with ValueError: v; correct it"),
        (ROUTER.replace("pass", "raise BaseException('b')"), "making it fails with BaseException: b; correct it"),
        (ROUTER.format("raise BaseException('b')"), "choose(view) fails with BaseException: b; correct it"),
        (ROUTER.replace("self, seed", "self"), "cannot be made from a seed, as Router(0): TypeError: "),
        (ROUTER.replace("()", "('outstandin',)", 1), "SEES: [1] is 'outstandin'; it must be a known name"),
        ("raise SystemExit(0)", "cannot be loaded, SystemExit: 0; correct or remove it"),
    ],
)
def test_a_broken_router_is_told(
    headcount: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, part: str
) -> None:
    (tmp_path / "routers").mkdir()
    (tmp_path / "routers/mine.py").write_text(code)
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    assert_told(headcount(*SERVE, "--num-requests", "3", "--router", "mine"), part)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "code", "part"),
    [
        ("sys:exit", "", "latency model 'sys:exit': function exit is no function latency_model(served)"),
        ("os:system", "", "is no function latency_model(served); give one"),
        ("shutil:rmtree", "", "is no function latency_model(served); give one"),
        ("mine", "def latency_model(served): raise SystemExit(0)", "mine.py: fails with SystemExit: 0; correct it"),
        ("mine", "def latency_model(served): 1 / 0", "mine.py: fails with ZeroDivisionError: division by zero"),
        ("mine", "def latency_model(served): return 3", "mine.py: fails with HeadcountError: it returned 3, not a Lat"),
        ("mine", FORM.format("replace(times, decode=times.decode[:3])"), "step_times.decode has the shape (3,); it ne"),
        ("mine", FORM.format("replace(times, decode='x')"), "mine.py: fails with "),
        ("mine", FORM.format("replace(times, gap_s=float('nan'))"), "gap_s is nan; it must be a number, at least 0"),
        ("mine", "x = 1", "mine.py: it has no latency_model, which a latency model needs; add it"),
    ],
)
def test_a_broken_latency_form_is_told(
    headcount: Callable[..., Any], mine: Path, name: str, code: str, part: str
) -> None:
    (mine / "latency_models").mkdir()
    (mine / "latency_models/mine.py").write_text(code)
    assert_told(headcount(*SERVE, "--num-requests", "3", "--latency-model", name), part)


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("1 / 0", "mine.py: fails with ZeroDivisionError: division by zero; correct it"),
        ("raise SystemExit(0)", "mine.py: fails with SystemExit: 0; correct it"),
        ("return [('a', 3)]", "mine.py: what find yields: [2] is 3; it must be text"),
        ("return 3", "mine.py: fails with TypeError"),
    ],
)
def test_a_broken_note_is_told(headcount: Callable[..., Any], mine: Path, code: str, part: str) -> None:
    (mine / "diagnostics").mkdir()
    (mine / "diagnostics/mine.py").write_text(f"SEVERITY = 'info'\ndef find(facts): {code}")
    assert_told(headcount(*MEMORY), part)


def test_an_unfinished_file_is_told(
    headcount: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    lacks = {
        "trace_formats": "no FORMAT, which a trace format needs",
        "diagnostics": "no SEVERITY and no find, which a diagnostic",
    }
    for section, part in lacks.items():
        (tmp_path / section).mkdir()
        (tmp_path / section / "mine.py").write_text("x = 1")
        assert_told(headcount(*SIMULATE, "--workload", __file__), f"mine.py: it has {part}")


def test_a_wrong_search_path_is_told(
    headcount: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_PATH", "/nowhere")
    assert_told(headcount(*MEMORY), "HEADCOUNT_PATH: /nowhere does not exist; give folders")
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus/mine.toml").write_text("memory_bytes = ")
    assert_told(headcount("memory", *ON[:3], "mine"), "mine.toml: is not readable as TOML: ")


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (lambda: hc.capacity("llama-3.1-8b", "h100-sxm", gpus=2), r"gpus is 2; it must be a list"),  # type: ignore[arg-type]
        (
            lambda: hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[1.5]),
            r"gpus is \[1\.5\]; it must be a list",
        ),  # type: ignore[list-item]
        (
            lambda: hc.memory("llama-3.1-8b", "h100-sxm", max_model_len="8K"),
            "max_model_len is '8K'; it must",
        ),
        (lambda: hc.memory("llama-3.1-8b", "h100-sxm", mean_context=-3), "mean_context has -3"),
        (lambda: hc.memory("llama-3.1-8b", 5), "gpu is 5; it must be text"),  # type: ignore[arg-type]
        (
            lambda: hc.memory("llama-3.1-8b", "h100-sxm", environment=3),
            "environment is 3; it must be a list",
        ),
        (lambda: hc.memory("llama-3.1-8b", "h100-sxm", startup_log="path"), "startup_log is 'path'; it must be a Star"),
        (lambda: hc.capacity("llama-3.1-8b", "h100-sxm", seed="x"), "seed is 'x'; it must be a whole number"),
        (lambda: hc.capacity("llama-3.1-8b", "h100-sxm", ttft_s="1"), "'1' is not a time; give a number with its unit"),
        (lambda: hc.capacity("llama-3.1-8b", "h100-sxm", ttft_s=float("nan")), "ttft_s is nan; it must be a number"),
        (lambda: hc.simulate("llama-3.1-8b", "h100-sxm", users=True), "users is True; it must be a whole number"),
        (lambda: hc.find_gpu(3), "name is 3; it must be text"),
        (lambda: hc.read("results.json"), r"paths is 'results\.json'; it must be a list"),
    ],
)
def test_wrong_python_arguments_are_told(ask: Callable[[], Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        ask()


def test_an_image_tag_is_the_release(headcount: Callable[..., Any]) -> None:
    line = "docker run --gpus all vllm/vllm-openai:v0.11.0 --model meta-llama/Llama-3.1-8B-Instruct"
    ran = headcount("memory", "--gpu", "h100-sxm", "--json", "--vllm-args", line)
    assert json.loads(ran.out)["vllm_version"] == "0.11.0"


def test_a_model_that_does_not_fit_says_by_how_much_and_what_would(headcount: Callable[..., Any]) -> None:
    large = ("--model", "llama-3.1-70b", "--gpu", "h100-sxm")
    for arguments in (
        ("memory", *large),
        ("simulate", *large, *LENGTHS, "--concurrency", "1"),
        ("capacity", *large, "--gpus", "1"),
    ):
        assert_told(headcount(*arguments), "GiB short per GPU; fits with --tensor-parallel-size 4")


def test_sizes_that_no_gpu_count_takes_are_told_once(headcount: Callable[..., Any]) -> None:
    for gpus, part in (
        ("1,2,4", "no GPU count runs it; 4 GPUs: tensor parallel size 3 does not divide 4 GPUs; leave it out"),
        ("4", "headcount: tensor parallel size 3 does not divide 4 GPUs; leave it out to try each that does"),
    ):
        ran = headcount("capacity", *ON, "--gpus", gpus, "-tp", "3")
        assert_told(ran, part)
        assert ran.out == ""


def test_an_slo_that_nothing_meets_is_exit_1_with_the_table(headcount: Callable[..., Any]) -> None:
    small = ("--max-num-seqs", "2", "--max-model-len", "2048", "--workload", SHORT_ANSWERS)
    ran = headcount(*CAPACITY, "--tpot", "0.001ms", "--json", *small)
    assert_told(ran, "no GPU count meets the SLO; not even 1 user meets the SLO: ", code=1)
    assert json.loads(ran.out)["capacity"][0]["users"] == 0


def test_the_bare_command_shows_its_help(headcount: Callable[..., Any]) -> None:
    ran = headcount()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: headcount")
    assert "capacity" in ran.err
