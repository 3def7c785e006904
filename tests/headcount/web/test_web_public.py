"""A page that anyone may ask: no token, no files, no list of others, few questions a minute."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from headcount.web import app as web
from headcount.web.app import Settings, make_app
from headcount.web.guard import MINUTE_S, MOST_CLIENTS, AskRate
from tests.headcount.web.conftest import CAPACITY, PORT, IdleJobs, keep, scenario

ELSEWHERE = "http://demo.example.org"
FORM = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(web, "Jobs", IdleJobs)
    made = make_app(Settings(port=PORT, is_public=True, asks_per_minute=3), tmp_path)
    return TestClient(made, base_url=ELSEWHERE, follow_redirects=False)


def test_anyone_can_open_it_under_any_name(public: TestClient, page: TestClient) -> None:
    assert public.get("/capacity").status_code == 200
    assert page.get("/capacity", headers={"host": "demo.example.org"}).status_code == 421


def test_there_is_no_way_to_give_it_a_file(public: TestClient, page: TestClient) -> None:
    for path in ("/", "/plan", "/capacity", f"/capacity?{CAPACITY}", "/check"):
        assert 'type="file"' not in public.get(path).text, path
    assert 'type="file"' in page.get("/capacity").text
    sent = public.post("/capacity", data=FORM, files={"file.model": ("config.json", b"{}")})
    assert sent.status_code == 403
    assert "takes no files" in sent.text


def test_what_others_asked_is_not_listed(public: TestClient, tmp_path: Path) -> None:
    asked = scenario()
    keep(web.History(tmp_path), asked, {"users": 1})
    home = public.get("/")
    assert asked.path not in home.text and "/history" not in home.text
    assert public.get("/history").status_code == 403
    assert "903 users" in public.get(asked.path).text, "the link of an answer shows it"


def test_each_client_asks_so_often_a_minute_and_no_more(public: TestClient) -> None:
    codes = [public.post("/capacity", data=FORM | {"seed": str(seed)}).status_code for seed in range(5)]
    assert codes == [303, 303, 303, 429, 429]
    refused = public.post("/capacity", data=FORM | {"seed": "9"})
    assert 1 <= int(refused.headers["retry-after"]) <= MINUTE_S
    assert "3 new questions a minute" in refused.text


def test_an_answer_that_exists_costs_nothing(public: TestClient, tmp_path: Path) -> None:
    asked = scenario()
    keep(web.History(tmp_path), asked, {"users": 1})
    codes = [public.post("/capacity", data=FORM).status_code for _ in range(6)]
    assert codes == [303] * 6


@given(gaps=st.lists(st.floats(0.0, 100.0), max_size=60), most=st.integers(1, 5))
def test_never_more_than_so_many_in_any_minute(gaps: list[float], most: int) -> None:
    rate, now_s, let_in = AskRate(most), 0.0, list[float]()
    for gap in gaps:
        now_s += gap
        within = [at_s for at_s in let_in if at_s > now_s - MINUTE_S]
        try:
            rate.check("a", now_s)
        except HTTPException:
            assert len(within) == most, "refused without need"
        else:
            let_in.append(now_s)
            assert len(within) < most


def test_clients_that_come_and_go_take_bounded_memory() -> None:
    rate = AskRate(1)
    for number in range(MOST_CLIENTS + 100):
        rate.check(str(number), 0.0)
    assert len(rate._asked) == MOST_CLIENTS
