"""What two kept answers differ by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.text.words import SAFE

Run = Callable[..., Any]
ON = ("qwen3-0.6b", "h100-sxm")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for name, settings in (("a", {}), ("b", {"kv_cache_dtype": "fp8"})):
        hc.memory(*ON, **settings).report(folder / f"{name}.json")
    return folder


def test_the_same_answer_differs_in_nothing(kept: Path) -> None:
    found = hc.diff(kept / "a.json", kept / "a.json")
    assert (found.asked_changes, found.answer_changes) == ((), ())
    assert "the same question, and the same answer" in str(found)


def test_what_changed_in_the_question_and_what_it_did(kept: Path) -> None:
    found = hc.diff(kept / "a.json", kept / "b.json")
    tokens = next(each for each in found.answer_changes if each.name == "KV cache")
    before, after = (int(str(value).split()[0].replace(",", "")) for value in (tokens.before, tokens.after))
    assert after == pytest.approx(2 * before, rel=1e-3)
    assert any("KV blocks" in each.name for each in found.asked_changes)


def test_the_other_way_round_the_changes_are_turned(kept: Path) -> None:
    there, back = hc.diff(kept / "a.json", kept / "b.json"), hc.diff(kept / "b.json", kept / "a.json")
    turned = {(each.name, each.after, each.before) for each in back.answer_changes}
    assert {(each.name, each.before, each.after) for each in there.answer_changes} == turned


def test_a_change_is_relative(kept: Path) -> None:
    for each in hc.diff(kept / "a.json", kept / "b.json").answer_changes:
        if each.change is not None:
            assert each.after == pytest.approx(each.before * (1 + each.change))


def test_a_row_that_does_not_lead_is_laid_beside_its_own(kept: Path, tmp_path: Path) -> None:
    columns, first = ("GPUs", SAFE, "$ a month"), json.loads((kept / "a.json").read_text("utf-8"))
    for name, few in (("c", "435"), ("d", "400")):
        first["report"]["summary"]["options"] = {"columns": columns, "rows": [("1", few, "2"), ("8", "3,836", "9")]}
        (tmp_path / f"{name}.json").write_text(json.dumps(first), encoding="utf-8")
    (changed,) = hc.diff(tmp_path / "c.json", tmp_path / "d.json").answer_changes
    assert (changed.name, changed.before, changed.after) == (f"{SAFE}: 1 (GPUs)", "435", "400")


def test_the_command_prints_and_reports_it(kept: Path, headcount: Run, tmp_path: Path) -> None:
    ran = headcount("diff", kept / "a.json", kept / "b.json", "--json", "--report", tmp_path / "diff.md")
    assert ran.code == 0
    assert {each["name"] for each in json.loads(ran.out)["answer_changes"]} >= {"KV cache"}
    assert "What changed between" in (tmp_path / "diff.md").read_text("utf-8")


@pytest.mark.parametrize("text", ["{}", "3", '{"report": {"summary": {}}, "diagnostics": []}', "no json"])
def test_what_is_no_answer_is_told_in_a_line(text: str, kept: Path, headcount: Run, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    ran = headcount("diff", kept / "a.json", tmp_path / "x.json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "x.json" in ran.err


def test_no_report_replaces_an_answer_that_it_reads(kept: Path, headcount: Run) -> None:
    ran = headcount("diff", kept / "a.json", kept / "b.json", "--report", kept / "a.json")
    assert ran.code == 2
    assert "is an input as well" in ran.err
