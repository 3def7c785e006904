"""The weekly comparison with the newest engines: every topic is asked, and what differs becomes an issue."""

import sys
from pathlib import Path

import pytest
import yaml

from conformance.checks import CHECKS
from simulator.engines.engines import ENGINES
from validation.engine_news import Comparison, commands, compared, issue

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_topic_of_an_engine_is_compared(engine: str) -> None:
    topics = [topic for topic, _ in commands(engine, "1.2.3", cases=7, seed=5)]
    assert {f"decisions: {about}" for about in CHECKS[engine]} - {"decisions: lmcache"} <= set(topics)
    assert "flags" in topics and len(topics) == len(set(topics))
    assert all(
        any("1.2.3" in word for word in line) or topic == "start-up rules"
        for topic, line in commands(engine, "1.2.3", 7, 5)
    )


@pytest.mark.parametrize(("code", "verdict"), [(0, "equal"), (1, "differs"), (2, "did not run")])
def test_a_comparison_s_exit_code_is_its_verdict(code: int, verdict: str) -> None:
    found = compared("x", [sys.executable, "-c", f"print('first'); raise SystemExit({code})"])
    assert found == Comparison(topic="x", verdict=verdict, text="first")


def test_tests_that_are_skipped_were_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    for body, verdict in (("import pytest; pytest.skip('other release')", "did not run"), ("pass", "equal")):
        path.write_text(f"def test_it():\n    {body}\n")
        (tmp_path / "none.ini").write_text("")
        line = [sys.executable, "-m", "pytest", "-c", str(tmp_path / "none.ini"), str(path)]
        assert compared("start-up rules", line).verdict == verdict


def test_an_issue_shows_what_is_not_equal_and_lists_the_rest() -> None:
    found = [
        Comparison(topic="flags", verdict="differs", text="\n".join(f"line {number}" for number in range(100))),
        Comparison(topic="weights", verdict="equal", text="all 50"),
    ]
    text = issue("vLLM 9.9", found)
    assert text.startswith("vLLM 9.9: 1 of 2 comparisons are not equal.")
    assert "| weights | equal |" in text and "line 39" in text and "line 40" not in text and "all 50" not in text


def test_the_hosted_job_compares_both_engines_every_week() -> None:
    hosted = yaml.safe_load((ROOT / ".github" / "workflows" / "engines.yml").read_text(encoding="utf-8"))
    job = hosted["jobs"]["newest"]
    assert job["strategy"]["matrix"]["engine"] == list(ENGINES)
    assert any("validation.engine_news" in step.get("run", "") for step in job["steps"])


@pytest.mark.slow
def test_a_real_release_is_compared_by_the_command_of_a_topic(sglang_python: Path) -> None:
    line = dict(commands("sglang", sglang_python.parents[1].name, cases=2, seed=1))["decisions: radix-tree"]
    assert compared("decisions: radix-tree", line).verdict == "equal"
