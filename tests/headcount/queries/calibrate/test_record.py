"""What `headcount calibrate record` says, writes and ends with."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import calibrate.record.recorder
from calibrate.record.record_model import TINY_CONFIG
from calibrate.record.recording_files import read_recording
from headcount.cli.commands import calibrate_record

FAKE = Path(__file__).parents[3] / "calibrate" / "record" / "fake_engine.py"
OUT = "recording"


@pytest.fixture
def wishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake engine instead of vLLM; the folder with what is to go wrong in it."""
    folder = tmp_path / "wishes"
    folder.mkdir()
    monkeypatch.setenv("FAKE_ENGINE", str(folder))
    monkeypatch.setattr(calibrate_record, "interpreter_for", lambda version, python, infers: Path(sys.executable))
    monkeypatch.setattr(calibrate.record.recorder, "record", partial(calibrate.record.recorder.record, probe=FAKE))
    return folder


@pytest.mark.usefixtures("wishes")
def test_a_recording_is_made_and_told(headcount: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / OUT
    ran = headcount("calibrate", "record", "--model", "tiny", "-tp", "1", "--out", out)
    assert ran.code == 0, ran.err
    assert "plan: " in ran.err and "standard error" in ran.out
    assert f"{len(read_recording(out).steps):,} steps" in ran.out
    asked = json.loads((out / "recording.json").read_text(encoding="utf-8"))["asked"]
    assert asked == {"model": "tiny", "engine": {"tensor_parallel_size": 1}, "temperature": 0.0}


@pytest.mark.usefixtures("wishes")
def test_a_recording_as_json_says_what_is_left(headcount: Callable[..., Any], tmp_path: Path) -> None:
    ran = headcount(
        "calibrate", "record", "--model", "tiny", "--out", tmp_path / OUT, "--max-seconds", 0.001, "--json"
    )  # fmt: skip
    assert ran.code == 3
    found = json.loads(ran.out)
    assert (found["schema_version"], found["is_complete"], found["loads"]) == (2, False, 1)
    assert found["steps"] == len(read_recording(tmp_path / OUT).steps)


@pytest.mark.usefixtures("wishes")
def test_weights_need_a_folder(headcount: Callable[..., Any], tmp_path: Path) -> None:
    arguments = ["calibrate", "record", "--load-format", "auto", "--out", tmp_path / OUT]
    ran = headcount(*arguments, "--model", "tiny")
    assert ran.code == 2 and "--load-format auto loads weights; give --model a folder" in ran.err
    assert not (tmp_path / OUT).exists()
    model = tmp_path / "model"
    model.mkdir()
    config = json.dumps({**TINY_CONFIG, "architectures": None})
    (model / "config.json").write_text(config, encoding="utf-8")
    assert headcount(*arguments, "--model", model).code == 0
    assert (model / "config.json").read_text(encoding="utf-8") == config


def test_an_engine_that_ends_is_told_in_one_line(headcount: Callable[..., Any], wishes: Path, tmp_path: Path) -> None:
    (wishes / "no_start").write_text("1", encoding="utf-8")
    ran = headcount("calibrate", "record", "--model", "tiny", "--out", tmp_path / OUT)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "the engine: no such argument" in ran.err


def test_a_plan_needs_no_engine(headcount: Callable[..., Any]) -> None:
    ran = headcount("calibrate", "record", "--model", "llama-3.1-8b", "--plan-only", "--precision", 0.1)
    assert ran.code == 0
    assert ran.out.startswith("plan: ") and "its speed is a guess" in ran.out
    as_json = headcount("calibrate", "record", "--model", "tiny", "--plan-only", "--json", "--max-num-seqs", 8)
    plan = json.loads(as_json.out)
    assert plan["relative_standard_error"] <= 0.03 and plan["assumed"]["max_num_seqs"] == 8
    assert sum(load["expected_s"] for load in plan["loads"]) == pytest.approx(plan["expected_s"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give either --model, to run an engine here, or --url"),
        (["--model", "tiny", "--url", "http://h"], "give either --model"),
        (["--model", "tiny"], "--out is missing"),
        (["--model", "lama-3.1", "--out", OUT], "no model 'lama-3.1'"),
        (["--model", "tiny", "--out", OUT, "--precision", "3"], "--precision is 3; give a share above 0 and below 1"),
        (["--model", "tiny", "--out", OUT, "--max-seconds", "0"], "--max-seconds is 0"),
        (["--model", "tiny", "--out", OUT, "--temperature", "-1"], "--temperature is -1"),
        (["--model", "tiny", "--out", OUT, "-tp", "0"], "'0' is not a whole number of at least 1"),
        (["--model", "tiny", "--out", OUT, "--python", "/nowhere/python"], "/nowhere/python"),
        (["--model", "llama-3.1-8b", "--plan-only", "-tp", "3"], "tensor_parallel_size 3"),
        (["--model", "llama-3.1-8b", "--plan-only", "-pp", "33"], "pipeline_parallel_size 33 exceeds"),
        (["--model", "llama-3.1-8b", "--plan-only", "--max-model-len", "1"], "--max-model-len is 1"),
        (
            ["--model", "llama-3.1-8b", "--plan-only", "--max-num-seqs", "64000", "--max-model-len", "4K"],
            "max_num_seqs is 64,000, above max_num_batched_tokens 8,192",
        ),
        (["--url", "http://h", "--out", OUT, "--plan-only"], "--plan-only needs --model"),
        (["--url", "host:8000", "--out", OUT], "'host:8000' is not the address of a server"),
        (["--url", "http://127.0.0.1:1", "--out", OUT], "cannot be reached (Connection refused)"),
        (["--url", "http://h", "--out", OUT, "--interval", "0"], "--interval is 0 s"),
        (["--url", "http://h", "--out", OUT, "--interval", "9", "--seconds", "5"], "--interval is 9 s"),
    ],
)
def test_a_wrong_argument_is_told_and_nothing_is_written(
    headcount: Callable[..., Any],
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = headcount("calibrate", "record", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err
    assert not any(tmp_path.iterdir())
