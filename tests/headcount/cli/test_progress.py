"""Progress where stderr is no terminal."""

import re
import time

import pytest

from headcount.cli import progress
from headcount.cli.progress import Bar, progress_bar, watched
from headcount.queries.result import Progress


def test_a_line_says_what_is_done_and_what_is_left() -> None:
    lines = Bar("users per GPU count", 4, _began_s=100.0)
    assert lines.line(110.0) == "users per GPU count: 0 of 4 after 10 s"
    lines.show(done=1, total=4, note="512 users → 96.2% × 10")
    assert lines.line(160.0) == "users per GPU count: 1 of 4 after 60 s, about 3 min left; 512 users → 96.2% × 10"


def test_a_line_names_what_is_counted_at_that_stage_and_its_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Bar("users per GPU count", 4, _began_s=100.0)
    lines.show(done=4, total=4, note="")
    monkeypatch.setattr(progress, "monotonic", lambda: 700.0)
    lines.show(done=0, total=3, note="", what="changes of one setting tried")
    assert lines.line(710.0) == "changes of one setting tried: 0 of 3 after 10 min"
    lines.show(done=1, total=3, note="--kv-offloading-size 256", what="changes of one setting tried")
    said = "changes of one setting tried: 1 of 3 after 11 min, about 80 s left; --kv-offloading-size 256"
    assert lines.line(740.0) == said


def test_until_a_question_tells_its_progress_nothing_is_said_to_be_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.02)
    said, gives_up_s = "", time.monotonic() + 60
    with watched("fleets simulated") as watch:
        while "reading the question: 0 of 1 after" not in said:
            assert time.monotonic() < gives_up_s
            time.sleep(0.01)
            said += capsys.readouterr().err
        assert "fleets" not in said
        watch(Progress(done=0, total=8))
        while "fleets simulated: 0 of 8 after" not in said:
            assert time.monotonic() < gives_up_s
            time.sleep(0.01)
            said += capsys.readouterr().err


def test_lines_come_at_even_times_and_end_with_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.02)
    said, gives_up_s = "", time.monotonic() + 60  # a busy machine may stop every thread for a while
    with progress_bar("loads", total=2) as bar:
        bar.advance()
        while len(re.findall(r"loads: 1 of 2 after (\d+) s, about \1 s left\n", said)) < 2:
            assert time.monotonic() < gives_up_s
            time.sleep(0.01)
            said += capsys.readouterr().err
        bar.say("found")
    said += capsys.readouterr().err
    assert said.endswith("found\n")
    time.sleep(0.06)
    assert capsys.readouterr().err == ""


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("loads", total=1) as bar:
        bar.show(done=1, total=1, note="")
    assert capsys.readouterr() == ("", "")
