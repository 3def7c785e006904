"""Answers that Headcount 0.1 saved are still reported and compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the report needs the extra 'report'")

from tests.headcount.report.test_report import answered

Run = Callable[..., Any]
OLD_NAMES = {  # by the names of today
    "diagnostics": "notes",
    "suggestions": "lifts",
    "estimated_suggestions": "estimated_lifts",
    "summary": "first_page",
    "users_at_step_time_error_high": "users_if_slower",
    "users_at_step_time_error_low": "users_if_faster",
    "users_at_ttft_error_high": "users_if_ttft_longer",
    "users_at_ttft_error_low": "users_if_ttft_shorter",
    "users_at_kv_cache_low": "users_if_pool_smaller",
    "users_at_kv_cache_high": "users_if_pool_larger",
}


def as_schema_1(value: Any) -> Any:
    """An answer as 0.1 wrote it: what is simulated with the expected users stood in the row itself."""
    if isinstance(value, dict):
        at_users = value.get("at_users") or {}
        kept = {name: item for name, item in value.items() if name != "at_users"} | at_users
        named = {OLD_NAMES.get(name, name): as_schema_1(item) for name, item in kept.items()}
        return named | ({"schema_version": 1} if "schema_version" in named else {})
    return [as_schema_1(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module", params=["memory", "simulate", "capacity"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same answer in both schemas."""
    folder, answer = (
        tmp_path_factory.mktemp("saved"),
        json.loads(json.dumps(answered(request.param).to_json(report=True))),
    )
    old = as_schema_1(answer)
    assert {"notes", "report"} <= set(old) and "first_page" in old["report"] and "diagnostics" not in old
    for name, written in (("old", old), ("new", answer)):
        (folder / f"{name}.json").write_text(json.dumps(written), encoding="utf-8")
    return folder


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_a_report_of_it_says_what_today_s_says(saved: Path, suffix: str, headcount: Run) -> None:
    for name in ("old", "new"):
        ran = headcount("report", saved / f"{name}.json", "-o", saved / f"{name}.{suffix}")
        assert ran.code == 0, ran.err
    old, new = ((saved / f"{name}.{suffix}").read_text("utf-8") for name in ("old", "new"))
    if suffix == "html":  # the answer inside keeps what was given
        old, new = (text.partition('<script type="application/json"')[0] for text in (old, new))
    assert old == new


def test_it_differs_in_nothing_from_today_s(saved: Path, headcount: Run) -> None:
    ran = headcount("diff", saved / "old.json", saved / "new.json", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["question_changes"], found["answer_changes"]) == ([], [])


def test_what_0_1_said_in_other_words_is_no_difference(saved: Path, headcount: Run) -> None:
    old = json.loads((saved / "old.json").read_text("utf-8"))
    old["report"]["first_page"]["figures"] = [["safe to promise", "up to 3 users at once"]]
    for row in old["report"].get("assumptions", ()):
        row["part"] = "in other words"
    (saved / "reworded.json").write_text(json.dumps(old), encoding="utf-8")
    found = json.loads(headcount("diff", saved / "reworded.json", saved / "new.json", "--json").out)
    assert (found["question_changes"], found["answer_changes"]) == ([], [])
