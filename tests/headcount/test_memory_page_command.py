"""`headcount calibrate memory-page` writes the page anew, or says what it lacks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "memory.md"


def test_claims_are_kept_from_the_page(headcount: Callable[..., Any], tmp_path: Path) -> None:
    page, copy = PAGE.read_text(encoding="utf-8"), tmp_path / "memory.md"
    copy.write_text(page.replace("GiB", "MiB").replace("right", "left"), encoding="utf-8")
    assert headcount("calibrate", "memory-page", "--out", copy).code == 0
    assert copy.read_text(encoding="utf-8") == page


def test_claims_come_from_somewhere(headcount: Callable[..., Any], tmp_path: Path) -> None:
    out, empty = tmp_path / "page.md", tmp_path / "empty.csv"
    empty.write_text("id\n", encoding="utf-8")
    for options, told in (
        ([], "give the file as --examples"),
        (["--examples", tmp_path / "none.csv"], "no file"),
        (["--examples", empty], "no columns id, line"),
    ):
        ran = headcount("calibrate", "memory-page", *options, "--out", out)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert told in ran.err
    assert not out.exists()


def test_examples_that_are_no_text_are_named(headcount: Callable[..., Any], tmp_path: Path) -> None:
    examples = tmp_path / "examples.csv"
    examples.write_bytes(b"\xff\xfe\x00")
    ran = headcount("calibrate", "memory-page", "--examples", examples, "--out", tmp_path / "page.md")
    assert (ran.code, ran.out) == (2, "")
    assert "examples.csv is no text" in ran.err
    assert not (tmp_path / "page.md").exists()
