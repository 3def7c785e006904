"""Answers that were saved as JSON, or inside a report."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from files.documents import parse_json
from files.reading import InputError, read_text

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
