"""Answers that were saved as JSON, or inside a report."""

import re
from pathlib import Path
from typing import Any

from files.documents import ReadJson, parse_json
from files.names import shortened
from files.reading import InputError, read_text

_INSIDE = re.compile(r'<script type="application/json" id="answer">(.*?)</script>', re.DOTALL)


_SCHEMA_1 = {  # keys of answers by 0.1, which 0.2 still reads, and what they are called since
    "first_page": "summary",
    "notes": "diagnostics",
    "lifts": "suggestions",
    "estimated_lifts": "estimated_suggestions",
    "users_if_slower": "users_at_step_time_error_high",
    "users_if_faster": "users_at_step_time_error_low",
    "users_if_ttft_longer": "users_at_ttft_error_high",
    "users_if_ttft_shorter": "users_at_ttft_error_low",
    "users_if_pool_smaller": "users_at_kv_cache_low",
    "users_if_pool_larger": "users_at_kv_cache_high",
}


_SHARES = ("kv_usage", "kv_cached", "attainment", "prefix_hit_rate", "host_hit_rate")
_MOST_SHARE = 1.000001  # rounded sums
_MOST_NUMBER = 1e30  # no figure of an answer comes near


_KINDS_1 = {"apart": "disaggregation", "over time": "autoscaling"}  # kinds of questions in 0.1


def _in_today_s_words(answer: object) -> Any:
    """An answer of schema 1 under the keys of today; any other as it is."""
    if not isinstance(answer, dict) or answer.get("schema_version") != 1:
        return answer
    found = _renamed(answer)
    if isinstance(report := found.get("report"), dict) and report.get("kind") in _KINDS_1:
        report["kind"] = _KINDS_1[report["kind"]]
    return found


def _renamed(value: object) -> Any:
    if isinstance(value, dict):
        return {_SCHEMA_1.get(key, key): _renamed(each) for key, each in value.items()}
    return [_renamed(each) for each in value] if isinstance(value, list) else value


def read_answer(path: Path) -> ReadJson:
    """Of a file that --json or --report wrote: .json, or an .html report. Raises InputError."""
    text = read_text(path)
    if text.lstrip().startswith("<"):
        found = _INSIDE.search(text)
        if found is None:
            raise InputError(f"{path}: not a Headcount report with a saved answer; give an answer's .json")
        text = found[1]
    answer = _in_today_s_words(parse_json(text, str(path)))
    report = answer.get("report") if isinstance(answer, dict) else None
    if not isinstance(report, dict) or not isinstance(report.get("summary"), dict):
        raise InputError(f"{path}: not a saved answer with a report; write one with --json, or with --report FILE.json")
    _check_numbers(answer, str(path), "")
    checked: ReadJson = answer
    return checked


def was_changed(where: str, error: Exception) -> InputError:
    """What to say of an answer that cannot be used although it was read."""
    return InputError(
        f"{where}: it was changed, or another version of headcount wrote it ({type(error).__name__}: {error}); ask "
        "the question again"
    )


def _check_numbers(value: object, where: str, key: str) -> None:
    """Raises InputError for a number that no answer has."""
    if isinstance(value, dict):
        for name, each in value.items():
            _check_numbers(each, where, name)
    elif isinstance(value, list):
        for each in value:
            _check_numbers(each, where, key)
    elif isinstance(value, int | float):
        low, high = (0.0, _MOST_SHARE) if key in _SHARES else (-_MOST_NUMBER, _MOST_NUMBER)
        if not low <= value <= high:
            told = shortened(str(value) if isinstance(value, float) else f"{str(value)[:20]}…")
            raise InputError(f"{where}: {shortened(key)} is {told}, which no answer says; ask the question again")
