"""Sliders: answered from what is finished."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headcount.web.history import History
from headcount.web.sliders import moved, slid, sliders_of
from tests.headcount.web.conftest import CAPACITY, keep, scenario


def test_sliders_move_a_scenario_and_back() -> None:
    asked = scenario(gpus="1,2", traffic="output=600")
    there = moved(asked, {"context": "x2", "gpus": "4", "users": "500"})
    assert (there.one("traffic"), there.one("gpus")) == ("output=600,context=x2", "4")
    assert moved(there, {"context": "x1", "gpus": "1,2"}) == asked
    with pytest.raises(ValueError, match="no slider replicas"):
        moved(asked, {"replicas": "2"})


def test_a_slider_s_place_is_checked_like_a_field(page: TestClient) -> None:
    for query in ("at.gpus=/etc/passwd", "at.gpus=1%00", "at.context=../x"):
        assert page.post(f"/slide/capacity?{CAPACITY}&{query}").status_code == 400


def test_a_slider_that_stands_where_it_stood_changes_nothing() -> None:
    asked = scenario("simulate", users="100", workload="chat")
    assert moved(asked, {"users": "100", "context": "x1", "replicas": "1"}) == asked


def test_a_context_in_tokens_has_no_slider(tmp_path: Path) -> None:
    history = History(tmp_path)
    asked = scenario(traffic="context=8K")
    keep(history, asked, {"gpus": 1, "users_low": 428})
    kept = history.find(asked.key)
    assert kept is not None and [slider.name for slider in sliders_of(asked, kept)] == ["users", "gpus"]


def test_a_slider_s_answer_comes_from_finished_answers(tmp_path: Path) -> None:
    history, asked = History(tmp_path), scenario(gpus="1,2")
    keep(history, asked, {"gpus": 2, "users_low": 903}, {"gpus": 1, "users_low": 428})
    keep(history, scenario(gpus="4"), {"gpus": 4, "users_low": 1819})
    served = [slid(history, asked, {"users": "500", "context": "x1", "gpus": gpus}) for gpus in ("1", "2", "4", "8")]
    assert [each.row and each.row["users_low"] for each in served] == [428, 903, 1819, None]
    assert served[0].serving == ((1, False), (2, True), (4, True))
    assert [each.headroom is not None and each.headroom >= 0 for each in served[:3]] == [False, True, True]
    assert slid(history, asked, {"context": "x2", "gpus": "1"}).row is None


def test_a_slider_that_rests_where_nothing_is_finished_makes_one_job(page: TestClient, tmp_path: Path) -> None:
    keep(History(tmp_path), scenario(gpus="1,2"), {"gpus": 2, "users_low": 903}, {"gpus": 1, "users_low": 428})
    places = f"/slide/capacity?{CAPACITY}&at.users=500&at.context=x1&at.gpus="
    known = page.get(f"{places}2").json()
    assert known["state"] == "known" and "served, with 81 % to spare" in known["html"]
    assert page.get(f"{places}4").json()["state"] == "missing"
    assert page.post(f"{places}4").status_code == 202
    assert page.get(f"{places}4").json()["state"] == "waiting"
