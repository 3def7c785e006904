"""Reports as files: their formats, and what happens where none can be made."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jinja2", reason="the report needs the extra 'report'")

import headcount as hc
from files.reading import InputError
from headcount.views.report import document
from headcount.views.report.formats import html as html_format
from headcount.views.report.source import report_file
from tests.headcount.report.test_report import answered


@pytest.fixture
def memory() -> dict[str, Any]:
    """As the command prints it with --json."""
    return hc.memory("qwen3-0.6b", "h100-sxm").to_json(report=True)


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "json", "svg"])
def test_the_end_of_the_name_says_the_format(memory: dict[str, Any], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report.{suffix.upper()}"
    document.write(path, memory)
    begins = {
        "html": "<!doctype html>",
        "md": "# Does",
        "csv": "question,",
        "json": "{",
        "svg": "<svg xmlns=",
    }
    assert path.read_text("utf-8").startswith(begins[suffix])
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
def test_a_pdf_is_made_where_its_library_is(memory: dict[str, Any]) -> None:
    pytest.importorskip("weasyprint", reason="a PDF needs the extra 'pdf'")
    assert document.FORMATS.load("pdf").made(document.report_of(memory)).startswith(b"%PDF-")


@pytest.mark.parametrize("name", ["report.docx", "report", "report.html.gz"])
def test_an_unknown_format_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.csv or \.html or \.json or \.md or \.pdf or \.svg"):
        document.check_report("--report", tmp_path / name)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_format, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=re.escape("needs jinja2; install headcount[report]")):
        document.check_report("--report", tmp_path / "report.html")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "not a saved answer with a report"),
        ("[1, 2]", "not a saved answer"),
        ("<html></html>", "not a Headcount report with a saved answer"),
        ("{", "a.json"),
        ('{"diagnostics": [], "report": {"summary": {}}}', "was changed, or another version"),
        ('{"diagnostics": 3, "report": {"summary": {"question": 1}, "body": {}}}', "was changed, or another version"),
        ('{"diagnostics": [], "report": {"summary": {}, "body": [{"line": {"colour": 1}}]}}', "was changed"),
    ],
)
def test_what_is_no_answer_is_told_in_a_line(
    text: str, told: str, tmp_path: Path, headcount: Callable[..., Any]
) -> None:
    (tmp_path / "a.json").write_text(text)
    ran = headcount("report", tmp_path / "a.json", "-o", tmp_path / "r.html")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.err
    assert not (tmp_path / "r.html").exists()


def test_an_answer_without_a_chart_is_not_called_damaged(
    memory: dict[str, Any], tmp_path: Path, headcount: Callable[..., Any]
) -> None:
    del memory["report"]["memory"]
    (tmp_path / "a.json").write_text(json.dumps(memory))
    ran = headcount("report", tmp_path / "a.json", "-o", tmp_path / "a.svg")
    assert (ran.code, ran.err) == (2, "headcount: this answer has no chart; write .html, .md, .pdf, .csv or .json\n")


def test_a_failed_report_leaves_the_old_one(
    tmp_path: Path, memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(Path, "replace", _full_disk)
    with pytest.raises(ValueError, match="cannot be written: disk is full"):
        document.write(path, memory)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def _full_disk(*_: object) -> None:
    raise OSError("disk is full")


@pytest.mark.slow
def test_asking_from_python_loads_no_jinja2() -> None:
    code = (
        "import sys, headcount.views.report.document, headcount.queries.capacity; print({'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("memory", "hold the KV cache"),
        ("simulate", "TTFT: share of requests"),
        ("capacity", "Users at 95 % confidence by number"),
    ],
)
def test_the_drawing_is_the_chart_that_answers(question: str, title: str) -> None:
    drawn = document.made(Path("a.svg"), answered(question).to_json(report=True))
    assert isinstance(drawn, str)
    assert title in drawn.partition("</title>")[0]


def places(value: Any, *way: Any) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON document; of a list the first two."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, *way, key)


WRONG = (5, None, "x", [], {}, [5], {"a": 5}, True, 10**400, 1e308, math.nan)


@settings(max_examples=150)
@given(st.data())
def test_a_saved_answer_that_was_changed_anywhere_ends_in_a_report_or_one_clear_error(data: st.DataObject) -> None:
    answer = json.loads(json.dumps(answered("capacity").to_json(report=True)))
    *way, last = data.draw(st.sampled_from([place for place in places(answer) if place]))
    inner = answer
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(st.sampled_from(WRONG))
    with TemporaryDirectory() as folder:
        kept = Path(folder, "kept.json")
        kept.write_text(json.dumps(answer), "utf-8")
        for name in ("out.html", "out.md", "out.csv", "out.svg"):
            with suppress(InputError):
                report_file(kept, Path(folder, name))
        with suppress(InputError):
            str(hc.diff(kept, kept))


@pytest.mark.parametrize(
    ("key", "value"), [("kv_usage", 1e308), ("kv_usage", -0.1), ("users", 1e308), ("users", math.inf)]
)
def test_a_saved_answer_with_a_number_that_cannot_be_is_refused(tmp_path: Path, key: str, value: float) -> None:
    answer = answered("capacity").to_json(report=True)
    (tmp_path / "kept.json").write_text(json.dumps({**answer, key: value}), "utf-8")
    with pytest.raises(InputError, match=rf"kept\.json: {key} is .*, which no answer says; ask the question again"):
        report_file(tmp_path / "kept.json", tmp_path / "out.md")
