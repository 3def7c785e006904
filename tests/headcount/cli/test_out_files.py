"""A file that cannot be written is told before the long work, and nothing half-written is left."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from files.outputs import check_out_file, whole_file, write_whole

ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
LOAD = ("--input-len", "100", "--output-len", "10", "--concurrency", "2")
RESULT = Path(__file__)  # no result of anything: read only after the name of the output was tried

WRITERS = {
    "--report OF memory": ("memory", *ON, "--report", "{}.svg"),
    "--report": ("capacity", *ON, "--report", "{}.html"),
    "--requests-out": ("simulate", *ON, *LOAD, "--requests-out", "{}.csv"),
    "--steps-out": ("simulate", *ON, *LOAD, "--steps-out", "{}.jsonl"),
    "--out OF read": ("calibrate", "read", RESULT, "--out", "{}.csv"),
    "--out OF fit": ("calibrate", "fit", RESULT, *ON, "--out", "{}.toml"),
    "--report OF check": ("calibrate", "check", RESULT, *ON, "--report", "{}.html"),
}
every_writer = pytest.mark.parametrize("writer", WRITERS)


def ran(headcount: Callable[..., Any], writer: str, name: object) -> Any:
    *arguments, pattern = WRITERS[writer]
    return headcount(*arguments, str(pattern).format(name) if name else "")


def told(found: Any, writer: str) -> str:
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    assert writer.partition(" OF ")[0] in found.err
    return str(found.err)


@every_writer
def test_an_empty_name_is_refused(headcount: Callable[..., Any], writer: str) -> None:
    assert "'' names no file" in told(ran(headcount, writer, ""), writer)


@every_writer
def test_a_place_where_nothing_can_be_made_is_told(headcount: Callable[..., Any], writer: str) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    assert "cannot be written" in told(ran(headcount, writer, "/proc/page"), writer)


@every_writer
def test_a_folder_is_told(headcount: Callable[..., Any], writer: str, tmp_path: Path) -> None:
    suffix = str(WRITERS[writer][-1]).removeprefix("{}")
    (tmp_path / f"folder{suffix}").mkdir()
    assert "is a folder; name a file" in told(ran(headcount, writer, tmp_path / "folder"), writer)
    assert [path.name for path in tmp_path.rglob("*")] == [f"folder{suffix}"]


@every_writer
def test_what_makes_no_file_is_told(headcount: Callable[..., Any], writer: str, tmp_path: Path) -> None:
    suffix = str(WRITERS[writer][-1]).removeprefix("{}")
    (tmp_path / f"loop{suffix}").symlink_to(tmp_path / f"loop{suffix}")
    (tmp_path / f"lost{suffix}").symlink_to(tmp_path / "nowhere" / "page")
    before = sorted(tmp_path.iterdir())
    assert "a link that leads to itself" in told(ran(headcount, writer, tmp_path / "loop"), writer)
    assert "there is no folder" in told(ran(headcount, writer, tmp_path / "lost"), writer)
    assert "there is no folder" in told(ran(headcount, writer, tmp_path / "nowhere" / "page"), writer)
    assert "too long" in told(ran(headcount, writer, tmp_path / ("x" * 300)), writer)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("option", ["--config", "--startup-log", "--latency-profile"])
def test_an_empty_name_to_read_is_refused(headcount: Callable[..., Any], option: str) -> None:
    assert f"'{option}': '' names no file" in told(headcount("simulate", *ON, *LOAD, option, ""), option)


def test_a_write_protected_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.md"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # for root, too
    with pytest.raises(ValueError, match=r"--out .*page\.md is write-protected; name another file"):
        check_out_file("--out", path)
    assert path.read_text() == "old"


def test_a_try_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("old")
    for name in ("old.md", "new.md", f"{'x' * 251}.md", "é" * 100):
        check_out_file("--out", tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.md", "old")]


def test_a_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_whole(path, "new")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [(path.name, "new")]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link.md"
    link.symlink_to(tmp_path / "real.md")
    write_whole(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_what_fails_midway_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "page.md"
    path.write_text("old")
    expected = ValueError if error is OSError else error
    with pytest.raises(expected), whole_file(path) as temporary:
        temporary.write_text("half")
        raise error("the disk is full")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("page.md", "old")]
