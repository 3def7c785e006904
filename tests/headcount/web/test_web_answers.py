"""Finished answers: kept, shown, side by side."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headcount.web.history import History
from tests.headcount.web.conftest import keep, scenario


def test_an_answer_is_found_by_the_next_server(tmp_path: Path) -> None:
    keep(History(tmp_path), scenario(), {"gpus": 1, "users_low": 903})
    again = History(tmp_path)
    found = again.find(scenario().key)
    assert found is not None and found.rows[0]["users_low"] == 903 and found.scenario == scenario()
    assert again.report(scenario().key) == "<!doctype html><title>report</title>"


def test_a_damaged_answer_is_forgotten(tmp_path: Path) -> None:
    keep(History(tmp_path), scenario())
    (tmp_path / "web" / "answers" / f"{scenario().key}.json").write_text("{")
    assert History(tmp_path).find(scenario().key) is None


def test_an_answer_that_no_disk_holds_is_shown_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise ValueError("no space left on device")

    monkeypatch.setattr("headcount.web.history.write_whole", full)
    history = History(tmp_path)
    keep(history, scenario())
    assert history.find(scenario().key) is not None and history.report(scenario().key)


def test_a_finished_answer_is_shown_with_its_report_and_its_command(page: TestClient, tmp_path: Path) -> None:
    keep(History(tmp_path), scenario(gpus="1,2"), {"gpus": 1, "users_low": 903})
    shown = page.get(scenario(gpus="1,2").path).text
    assert "&lt;b&gt;903 users&lt;/b&gt;" in shown
    assert "headcount capacity --model=llama-3.1-8b --gpu=h100-sxm --gpus=1,2" in shown
    report = page.get(f"/report/{scenario(gpus='1,2').key}")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert page.get("/history").text.count("&lt;b&gt;903 users&lt;/b&gt;") == 2
    assert page.get("/report/../../x").status_code == page.get("/report/0").status_code == 404


def test_answers_stand_side_by_side_with_what_differs(page: TestClient, tmp_path: Path) -> None:
    one, two = scenario(gpus="1"), scenario(gpus="2")
    keep(History(tmp_path), one, {"gpus": 1, "users_low": 428})
    keep(History(tmp_path), two, {"gpus": 2, "users_low": 903})
    shown = page.get("/side-by-side", params={"answer": [one.key, two.key]}).text
    assert "428" in shown and "903" in shown
    assert 'class="differs"><th scope="row">gpus' in shown
    assert page.get("/side-by-side", params={"answer": [one.key]}).status_code == 400
    third = scenario(workload=f"upload:{'0f' * 16}/trace.csv")
    keep(History(tmp_path), third, {"gpus": 1})
    assert "trace.csv (0f0f0f)" in page.get("/side-by-side", params={"answer": [one.key, third.key]}).text
    assert page.get("/side-by-side", params={"answer": [one.key, "0" * 32]}).status_code == 404
