"""What every command has: one line for a fault of ours, limits, help under headings, no code from files."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import headcount as hc
from files.limits import limits
from headcount.cli.command import Command
from headcount.cli.commands import memory
from headcount.cli.main import cli
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from tests.headcount.conftest import SHORT_ANSWERS

ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
LOAD = ("--input-len", "10", "--output-len", "2", "--concurrency", "1")
BOMB = "b0: &b0 [1]\n" + "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 10)}]\n" for i in range(1, 10))
Run = Callable[..., Any]


def commands(group: click.Group = cli) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found)
        elif found is not None:
            yield found


@pytest.mark.parametrize("error", [RecursionError, KeyError("x"), TypeError("no"), AssertionError, IndexError], ids=str)
def test_a_fault_of_ours_is_one_line(headcount: Run, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(memory.command, "callback", fails)
    ran = headcount("memory", *ON)
    assert (ran.code, ran.out, ran.err.count("\n")) == (70, "", 1)
    name = error.__name__ if isinstance(error, type) else type(error).__name__
    assert f"headcount: {name}" in ran.err
    assert "a bug in Headcount 0.2.0, not in your input: report it with the command" in ran.err
    monkeypatch.setenv("HEADCOUNT_DEBUG", "1")
    assert "Traceback (most recent call last)" in headcount("memory", *ON).err


def test_a_library_that_exits_is_a_fault(headcount: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.command, "callback", lambda _: sys.exit(0))
    ran = headcount("memory", *ON)
    assert (ran.code, ran.err.count("\n")) == (70, 1)
    assert "RuntimeError: the command left with SystemExit(0); this is a bug in Headcount" in ran.err


def test_an_error_that_no_line_raises_is_a_fault(headcount: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpacks(_: Any) -> None:
        exec(compile("a, b = 1, 2, 3", str(memory.__file__), "exec"))

    monkeypatch.setattr(memory.command, "callback", unpacks)
    assert headcount("memory", *ON).code == 70


@pytest.mark.parametrize("words", [("--debug", "memory", *ON), ("memory", *ON, "--debug")])
def test_debug_shows_where_an_error_arose(headcount: Run, words: tuple[str, ...]) -> None:
    assert headcount(*words).code == 0
    ran = headcount(*words, "--limit", "rows=x")
    assert (ran.code, ran.err.count("Traceback")) == (2, 1)
    assert "Traceback" not in headcount("memory", *ON, "--limit", "rows=x").err


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as soon as the first row is found."""

    find = CapacityTable.row

    def row(table: CapacityTable, gpus: int, *more: Any) -> CapacityRow:
        if gpus > 1:
            raise KeyboardInterrupt
        return find(table, gpus, *more)

    monkeypatch.setattr(CapacityTable, "row", row)


SEARCH = (
    "capacity", *ON, "--gpus", "1,2,4", "--replications", "6", "--max-num-seqs", "2", "--workload", SHORT_ANSWERS,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_rows_found_before_ctrl_c_are_kept(headcount: Run) -> None:
    ran = headcount(*SEARCH, "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["interrupted"], [row["gpus"] for row in found["capacity"]]) == (130, True, [1])
    row = found["capacity"][0]
    low, mean, high = (f"{row[name]:,}" for name in ("users_low", "users", "users_high"))
    line = f"1 GPU: {low} users at 95 % confidence ({mean} expected, 90 % interval {low} to {high})"
    assert ran.err.splitlines()[-2:] == [line, "headcount: stopped"]
    ran = headcount(*SEARCH)
    assert ran.code == 130
    assert f"{low} users at 95 % confidence on 1 GPU" in ran.out
    assert "1 × TP1" in ran.out


def test_sizes_that_divide_no_gpu_count_make_no_table(headcount: Run) -> None:
    ran = headcount("capacity", *ON, "--gpus", "1", "-pp", "3")
    assert ran.code == 2
    assert "95 % conf" not in ran.out
    assert "0 × TP1" not in ran.out
    assert "--pipeline-parallel-size 3 does not divide 1 GPU" in ran.err


def test_every_command_is_one_of_ours() -> None:
    found = list(commands())
    assert len(found) >= 13
    assert all(isinstance(each, Command) for each in found)


def test_long_help_stands_under_headings() -> None:
    for command in commands():
        shown = command.get_help(click.Context(command, info_name=command.name))
        described = [line for line in shown.splitlines() if line.startswith("  -")]
        if len(described) > 15:
            assert re.search(r"\n(Deployment|Trace|Traffic):\n", shown), command.name
            assert "\nOutput:\n" in shown
            assert "\nOther options:\n" in shown


def test_tensor_parallel_sizes_are_tried_by_searches_alone(headcount: Run) -> None:
    for command in commands():
        shown = " ".join(command.get_help(click.Context(command)).split())
        assert ("[default: all that fit]" in shown) == (command.name in ("capacity", "plan"))
        assert "capacity tries all" not in shown


def test_a_limit_holds_for_one_command(headcount: Run, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("seed: 3\n")
    ran = headcount("memory", *ON, "--config", config, "--limit", "settings-bytes=4")
    assert (ran.code, ran.out) == (2, "")
    assert "is larger than 4 bytes (limit settings_bytes; --limit settings_bytes=N raises it)" in ran.err
    assert (
        headcount("memory", *ON, "--config", config, "--limit", "settings_bytes=64M", "--limit", "nesting=60").code == 0
    )
    assert limits().settings_bytes == 16e6


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("row=3", "no limit 'row'; did you mean 'rows'?"),
        ("rows", "--limit 'rows' has no value; give NAME=VALUE"),
        ("rows=", "has no value"),
        ("rows=many", "--limit rows: 'many' is not a number; give one such as 64M"),
        ("rows=nan", "'nan' is not a number"),
        ("rows=0", "limit rows is 0.0; give a number above 0"),
        ("rows=-1", "give a number above 0"),
    ],
)
def test_a_wrong_limit_is_told(headcount: Run, given: str, told: str) -> None:
    ran = headcount("memory", *ON, "--limit", given)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.err


def test_limits_are_raised_in_python() -> None:
    with hc.limits_raised(rows=3):
        assert limits().rows == 3
    for wrong in ("x", None, True):
        with pytest.raises(ValueError, match="give a number above 0"), hc.limits_raised(rows=wrong):  # type: ignore[arg-type]
            pass


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a file behind when it is imported."""
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w').close()\nclass Router: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("router", ("simulate", *ON, *LOAD)),
        ("latency-model", ("simulate", *ON, *LOAD)),
        ("latency_model", ("capacity", *ON)),
        ("format", ("calibrate", "fit", "x.json", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--out", "p.toml")),
    ],
)
def test_a_config_names_no_code(headcount: Run, key: str, words: tuple[str, ...], planted: Path) -> None:
    config = planted / "c.yaml"
    config.write_text(f"{key}: planted:Router\n")
    ran = headcount(*words, "--config", config)
    assert (ran.code, ran.out) == (2, "")
    assert "would run code that a file or a pasted line names; give it on the command line itself" in ran.err
    assert not (planted / "run").exists()


def test_a_pasted_line_names_no_code(headcount: Run, planted: Path) -> None:
    ran = headcount("simulate", *ON, *LOAD, "--vllm-args", "m --latency-model planted:Router")
    assert ran.code == 2
    assert not (planted / "run").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("model: [a, b]\n", "c.yaml: model: 'a, b' is a list; a run takes one value"),
        (BOMB, "aliases repeat"),
        ("gpus: " + "[" * 60 + "]" * 60, "levels within one another"),
        ("gpus: [[1], 2]\n", "is a list that holds a list"),
        ("- a\n", "it must hold option names with values"),
    ],
)
def test_a_config_is_read_within_bounds(headcount: Run, content: str, told: str, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(content)
    ran = headcount("capacity", "--gpu", "h100-sxm", "--config", config)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.err
    assert f"--config {config}" in ran.err


def test_lists_of_a_config_are_lists(headcount: Run, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("users: [1, 2]\nenvironment: [VLLM_USE_V1=1, CUDA_VISIBLE_DEVICES=0]\n")
    direct = headcount("memory", *ON, "--users", "1,2", "--environment", "VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0")
    assert headcount("memory", *ON, "--config", config) == direct
