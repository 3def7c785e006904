"""Answers that were kept as JSON, or inside a report."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from files.documents import parse_json
from files.outputs import write_whole
from files.reading import InputError, read_text
from headcount.views.report import document

_INSIDE = re.compile(r'<script type="application/json" id="answer">(.*?)</script>', re.DOTALL)


def read_answer(path: Path) -> Mapping[str, Any]:
    """Of a file that --json or --report wrote: .json, or an .html report. Raises InputError."""
    text = read_text(path)
    if text.lstrip().startswith("<"):
        found = _INSIDE.search(text)
        if found is None:
            raise InputError(f"{path}: it is no report of headcount with an answer inside; give an answer's .json")
        text = found[1]
    answer = parse_json(text, str(path))
    report = answer.get("report") if isinstance(answer, dict) else None
    if not isinstance(report, dict) or not isinstance(report.get("summary"), dict):
        raise InputError(
            f"{path}: it is no answer of headcount that a report can be made of; write one with --json, or with "
            "--report FILE.json"
        )
    found_answer: Mapping[str, Any] = answer
    return found_answer


def report_file(path: Path, out: Path) -> None:
    """Make a report of a kept answer. Raises InputError where the file is no such answer."""
    answer = read_answer(path)
    try:
        content = document.made(out, answer)
    except InputError:  # of the format: the answer is as it should be
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise InputError(
            f"{path}: it was changed, or another version of headcount wrote it ({type(error).__name__}: {error}); ask "
            "the question again"
        ) from None
    write_whole(out, content)
