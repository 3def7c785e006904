"""A question that was asked before is answered from the cache folder, and any change that could matter asks anew."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from files.dependencies import record_dependency
from headcount.cli import saved_answers as kept_answers
from headcount.diagnostics import Diagnostic, Severity
from headcount.inputs.run import RunInput
from headcount.queries import capacity as module
from headcount.queries.result import Progress, Result, Verdict
from headcount.text.blocks import Block, Line, Table
from simulator.study.store.origin import Origin

Run = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Small(Result):
    """Some of everything that an answer shows."""

    kind = "small"
    view = "small"
    number: int

    def figures(self) -> dict[str, Any]:
        return {"number": self.number, "share": 0.1 + 0.2, "nothing": None, "endless": float("inf")}

    def rows(self) -> list[dict[str, Any]]:
        return [self.figures()]


class SmallView(ModuleType):
    """Its words."""

    @staticmethod
    def head(result: Small) -> list[Block]:
        return [Line(f" of answer {result.number}: 95 % – ±3 ≤ 50", bold="users"), Line("quiet", dim=True)]

    @staticmethod
    def body(_: Small) -> list[Block]:
        table = Table(columns=("a", "b"), rows=[["x", "1"], ("y", "22")], bold_column=1, bars=[(0, 1), (0.5, 1)])
        return [Line(), table]


@dataclass(eq=False)
class Asked:
    """Answers, and counts how often."""

    times: int = 0
    outside: list[str] = field(default_factory=list)

    __name__ = "capacity"

    def __call__(self, *_: Any, run: RunInput, **__: Any) -> Result:
        self.times += 1
        for each in self.outside:
            record_dependency(each)
        run.progress(Progress(done=0, total=2, found="1 GPU: found"))
        diagnostics = (
            Diagnostic(code="a", severity=Severity.WARNING, text="take care"),
            Diagnostic(code="b", severity=Severity.INFO, text="so"),
        )
        return Small(number=7, diagnostics=diagnostics, verdict=Verdict.INCONCLUSIVE)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = wraps(module.capacity)(Asked())
    monkeypatch.setattr("headcount.cli.commands.capacity.capacity", found)
    monkeypatch.setitem(sys.modules, "headcount.views.of.small", SmallView("small"))
    return found


@pytest.fixture
def load(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text("turns = 1")
    return path


@pytest.fixture
def question(load: Path) -> tuple[object, ...]:
    return ("capacity", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--workload", load)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_repeated_question_shows_the_same_bytes_and_computes_nothing(
    form: tuple[str, ...], headcount: Run, asked: Asked, question: tuple[object, ...]
) -> None:
    first = headcount(*question, *form)
    assert (first.code, asked.times) == (3, 1)
    assert "1 GPU: found" in first.err
    assert "warning: take care" in first.err
    assert headcount(*question, *form) == first
    assert asked.times == 1


@pytest.mark.parametrize("first", ["json", "report"])
def test_an_answer_that_was_worked_out_whole_is_shown_in_every_form(
    first: str, headcount: Run, asked: Asked, question: tuple[object, ...], tmp_path: Path
) -> None:
    forms: dict[str, tuple[object, ...]] = {
        "json": ("--json",), "report": ("--report", tmp_path / "report.json"), "text": (),
    }  # fmt: skip
    shown = {form: headcount(*question, *forms[form]) for form in (first, *forms)}
    assert asked.times == 1
    assert "95 % – ±3 ≤ 50" in shown["text"].out
    printed, written = json.loads(shown["json"].out), json.loads((tmp_path / "report.json").read_text())
    assert printed | {"report": {}} == written | {"report": {}}
    assert str(tmp_path / "report.json") in written["report"]["asked"]  # its own command, whichever was first
    assert printed["report"]["asked"].endswith(" --json")


@pytest.mark.parametrize("changed", [
    ("--gpus", "1"), ("--seed", "1"), ("--json",), ("--limit", "rows=1G"), ("--no-store",), ("--slo", "voice"),
    ("--workers", "2"), ("--latency-model", "constant", "--step-s", "0.02"),
])  # fmt: skip
def test_another_option_asks_anew(
    changed: tuple[str, ...], headcount: Run, asked: Asked, question: tuple[object, ...]
) -> None:
    headcount(*question)
    headcount(*question, *changed)
    assert asked.times == 2


def write_it(load: Path) -> None:
    load.write_text("turns = 2")


def write_beside_it(load: Path) -> None:
    load.with_name("other.toml").write_text("turns = 2")


def replace_it_by_a_folder(load: Path) -> None:
    load.unlink()
    load.mkdir()


@pytest.mark.parametrize("change", [write_it, write_beside_it, Path.unlink, replace_it_by_a_folder])
def test_another_file_asks_anew(
    change: Callable[[Path], None], headcount: Run, asked: Asked, question: tuple[object, ...], load: Path
) -> None:
    headcount(*question)
    change(load)
    headcount(*question)
    assert asked.times == 2


def test_a_folder_of_the_models_name_asks_anew(
    headcount: Run, asked: Asked, question: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    headcount(*question)
    (tmp_path / "llama-3.1-8b").mkdir()
    (tmp_path / "llama-3.1-8b" / "config.json").write_text("{}")
    headcount(*question)
    assert asked.times == 2


@pytest.mark.parametrize("name", ["origin", "_distributions"])
def test_other_code_asks_anew(
    name: str, headcount: Run, asked: Asked, question: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    headcount(*question)
    other: Any = Origin(code="other", machine="") if name == "origin" else ["other-1.0.dist-info"]
    monkeypatch.setattr(kept_answers, name, lambda *_: other)
    headcount(*question)
    assert asked.times == 2


@pytest.mark.parametrize("outside", ["mine:Router", "/elsewhere/gpu.toml", "./code.py"])
def test_what_rests_on_more_than_its_options_say_is_not_kept(
    outside: str, headcount: Run, asked: Asked, question: tuple[object, ...]
) -> None:
    asked.outside = [outside]
    headcount(*question)
    headcount(*question)
    assert asked.times == 2


def test_with_things_of_ones_own_nothing_is_kept(
    headcount: Run, asked: Asked, question: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    headcount(*question)
    headcount(*question)
    assert asked.times == 2


def test_the_files_that_were_named_may_be_read(
    headcount: Run, asked: Asked, question: tuple[object, ...], load: Path
) -> None:
    asked.outside = [str(load), module.__file__]
    headcount(*question)
    headcount(*question)
    assert asked.times == 1


def test_a_damaged_answer_is_asked_anew(headcount: Run, asked: Asked, question: tuple[object, ...]) -> None:
    first = headcount(*question)
    path = kept_answers.kept_answers().path
    for file in path.parent.iterdir():
        file.write_bytes(file.read_bytes().replace(b"users", b"USERS"))
    assert headcount(*question).out == first.out
    assert asked.times == 2


def test_clearing_the_cache_forgets_answers(headcount: Run, asked: Asked, question: tuple[object, ...]) -> None:
    headcount(*question)
    headcount("cache", "clear")
    headcount(*question)
    assert asked.times == 2
