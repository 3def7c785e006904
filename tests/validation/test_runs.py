"""Runs that others measured are compared, and refused where they cannot be what they say."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from files.errors import HeadcountError
from validation.runs.compared import FOLDER, compared, find_runs, least_tpot_s, read_run, refusals
from validation.scoreboard import entries, results

GOOD: dict[str, Any] = {
    "errors": {"tpot_s.mean": 3.0},
    "least_tpot_s": 0.005,
    "least_possible_tpot_s": 0.001,
    "why": "",
}


@pytest.mark.parametrize("path", find_runs(), ids=lambda path: path.stem)
def test_every_run_is_plausible_and_stored(path: Path) -> None:
    figures = compared(path)
    assert refusals(figures) == []
    assert results("runs")[path.stem]["errors"] == pytest.approx(figures["errors"], abs=0.1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"least_tpot_s": 0.0009}, "TPOT of 0.90 ms: reading the weights takes at least 1.00 ms"),
        ({"errors": {}}, "no run of it can be compared"),
        ({"errors": {"ttft_s.mean": 500.0}}, "ttft_s.mean: simulated at 6 times the measured one"),
        ({"errors": {"ttft_s.mean": -90.0}}, "ttft_s.mean: simulated at 0.1 times the measured one"),
        ({"errors": {"ttft_s.mean": -90.0}, "why": "its disk was slow"}, ""),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], why: str) -> None:
    found = refusals(GOOD | change)
    assert found[0].startswith(why) if why else found == []


@pytest.mark.parametrize(
    ("arguments", "gpus"),
    [
        ("--max-model-len 16384", 1),
        ("-tp 4", 4),
        ("--tensor-parallel-size=2 --pipeline-parallel-size 2", 4),
        ("--vllm-args 'serve llama -tp 2'", 2),
        ("--sglang-args '--model-path llama --tp-size 8'", 8),
    ],
)
def test_gpus_that_share_the_weights_read_them_sooner(arguments: str, gpus: int) -> None:
    run = replace(read_run(FOLDER / "h200-llama-3.1-8b.toml"), arguments="")
    assert least_tpot_s(replace(run, arguments=arguments)) == pytest.approx(least_tpot_s(run) / gpus)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("2026-11-27", "2926-11-27"), "a day to come"),
        (('license = "as this repository"', ""), "license"),
        (('"the authors of Headcount"', '" "'), "measured_by is empty"),
        (("gpu =", "gpus ="), "gpus"),
        (("../recordings/h200-llama-3.1-8b-served", "../recordings/none"), "no file is at"),
    ],
)
def test_a_file_that_does_not_say_enough_is_one_clear_error(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    text = (FOLDER / "h200-llama-3.1-8b.toml").read_text(encoding="utf-8")
    path = tmp_path / "run.toml"
    path.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(HeadcountError, match=why):
        read_run(path)
        compared(path)


def test_the_worst_group_of_each_kind_is_shown() -> None:
    found = list(entries())
    assert len(found) >= 9
    for entry in found:
        assert abs(entry.worst[1]) == max(map(abs, entry.errors.values())) >= entry.median >= 0
