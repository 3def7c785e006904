"""No output replaces an input or another output, and none is written through a link without a word."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from files.outputs import check_out_file, write_whole
from headcount.queries.calibrate.read import ReadResult

ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,100,10\n"
LOG = (
    "vLLM API server version 0.12.0\nGPU KV cache size: 400,000 tokens\n"
    "Maximum concurrency for 131,072 tokens per request: 3.05x\n"
)
Run = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of every kind that a command reads, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "presets").mkdir(parents=True)
    (tmp_path / "mine" / "presets" / "ours.toml").write_text("x")
    (tmp_path / "runs").mkdir()
    for name in ("t.csv", "r.csv", "c.html", "p.toml", "runs/one.json", "l.csv"):
        (tmp_path / name).write_text(TRACE)
    (tmp_path / "c.yaml").write_text("seed: 3\n")
    (tmp_path / "s.log").write_text(LOG)
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "t.csv")
    (tmp_path / "soft.csv").symlink_to("t.csv")
    (tmp_path / "folder").symlink_to(".")
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path / "mine"))
    return tmp_path


SERVE = ("simulate", *ON)
LOAD = ("--input-len", "10", "--output-len", "2", "--concurrency", "1")
CASES: dict[str, tuple[str, ...]] = {
    "--workload": (*SERVE, "--workload", "t.csv", "--requests-out", "t.csv"),
    "--workload, another spelling": (*SERVE, "--workload", "t.csv", "--steps-out", "./folder/t.csv"),
    "--workload, a hard link": (*SERVE, "--workload", "t.csv", "--requests-out", "hard.csv"),
    "--workload, a link": (*SERVE, "--workload", "soft.csv", "--requests-out", "t.csv"),
    "FILES of read": ("calibrate", "read", "t.csv", "r.csv", "--out", "r.csv"),
    "--before of read": ("calibrate", "read", "t.csv", "--before", "r.csv", "--out", "r.csv"),
    "PATHS of fit": ("calibrate", "fit", "p.toml", *ON, "--out", "p.toml"),
    "a folder of fit": ("calibrate", "fit", "runs", *ON, "--out", "runs/one.json"),
    "--model": ("memory", "--model", "c.html", "--gpu", "h100-sxm", "--report", "c.html"),
    "--config": (*SERVE, *LOAD, "--config", "c.yaml", "--requests-out", "c.yaml"),
    "--latency-profile": (*SERVE, *LOAD, "--latency-profile", "p.toml", "--requests-out", "p.toml"),
    "--startup-log": (*SERVE, *LOAD, "--startup-log", "s.log", "--requests-out", "s.log"),
    "HEADCOUNT_PATH": (*SERVE, *LOAD, "--requests-out", "mine/presets/ours.toml"),
    "--report": ("capacity", *ON, "--workload", "c.html", "--report", "c.html"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_input_is_never_replaced(headcount: Run, case: str, place: Path, recwarn: pytest.WarningsRecorder) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    ran = headcount(*CASES[case])
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "is an input as well" in ran.err
    assert "name another file" in ran.err
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("other", ["a.csv", "./a.csv", "folder/a.csv"])
def test_two_outputs_are_two_files(headcount: Run, other: str, place: Path) -> None:
    ran = headcount(*SERVE, *LOAD, "--requests-out", "a.csv", "--steps-out", other)
    assert (ran.code, ran.out) == (2, "")
    assert "--requests-out and --steps-out both name" in ran.err
    assert not (place / "a.csv").exists()


def test_the_cache_is_no_place_for_outputs(headcount: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE_DIR", str(place / "runs"))
    (place / "runs" / "kernel.csv").write_text("x")
    ran = headcount("calibrate", "read", "t.csv", "--out", "runs/kernel.csv")
    assert ran.code == 2
    assert "is an input as well (the cache)" in ran.err


def test_python_keeps_inputs_too(place: Path) -> None:
    with pytest.raises(ValueError, match=r"requests_out t\.csv: is an input as well \(workload\)"):
        hc.simulate("llama-3.1-8b", "h100-sxm", workload="t.csv", requests_out=Path("t.csv"))
    read = ReadResult(diagnostics=(), files=(), inputs=(("paths", Path("t.csv")),))
    with pytest.raises(ValueError, match=r"is an input as well \(paths\)"):
        read.save_requests("t.csv")
    assert (place / "t.csv").read_text() == TRACE


def test_a_link_is_told_with_the_file_behind_it(place: Path) -> None:
    with pytest.warns(UserWarning, match=r"--requests-out l2\.csv is a link; .*l\.csv is written"):
        (place / "l2.csv").symlink_to("l.csv")
        check_out_file("--requests-out", Path("l2.csv"))


def test_a_half_written_file_has_a_name_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter([b"a" * 8, b"b" * 8])
    monkeypatch.setattr(os, "urandom", lambda _: next(names))
    victim = tmp_path / "victim"
    (tmp_path / f".page.md.{(b'a' * 8).hex()}.part").symlink_to(victim)
    with pytest.raises(ValueError, match="file exists"):
        write_whole(tmp_path / "page.md", "new")
    assert not victim.exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_file_has_the_mode_that_the_umask_says(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "page.md", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page.md").stat().st_mode) == mode


@pytest.mark.slow
def test_a_link_is_told_once_on_stderr(place: Path) -> None:
    (place / "new.csv").symlink_to("l.csv")
    words = [str(Path(sys.executable).with_name("headcount")), *SERVE, *LOAD, "--requests-out", "new.csv"]
    done = subprocess.run(words, env=os.environ, capture_output=True, text=True, check=True)
    told = f"headcount: warning: --requests-out new.csv is a link; {(place / 'l.csv').resolve()} is written\n"
    assert done.stderr.count(told) == 1
    assert "is a link" not in done.stderr.replace(told, "", 1)
    assert (place / "new.csv").is_symlink()
