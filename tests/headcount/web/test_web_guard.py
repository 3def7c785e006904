"""Who may ask the page, and from where."""

import pytest
from fastapi.testclient import TestClient

from tests.headcount.web.conftest import CAPACITY, TOKEN, scenario


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8600", "127.0.0.1:9999", "", "127.0.0.1.evil.example"])
def test_another_name_than_this_machine_s_own_is_refused(page: TestClient, host: str) -> None:
    assert page.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8600", "localhost:8600", "[::1]:8600"])
def test_this_machine_s_own_names_are_let_in(page: TestClient, host: str) -> None:
    assert page.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_website_is_refused(page: TestClient, headers: dict[str, str]) -> None:
    assert page.post("/plan", data={"model": "x"}, headers=headers).status_code == 403


def test_to_look_begins_no_job(page: TestClient) -> None:
    page.get(f"/capacity?{CAPACITY}")
    assert page.get(f"/live/{scenario(gpus='1,2').key}").json()["html"] == ""


def test_without_the_token_nothing_is_shown(guarded: TestClient) -> None:
    for wrong in ({}, {"authorization": "Bearer wrong"}, {"cookie": "headcount-token=wrong"}):
        assert guarded.get("/", headers=wrong).status_code == 401
    assert guarded.get("/?token=wrong").status_code == 401
    assert guarded.post(f"/plan?token={TOKEN}").status_code == 401


def test_the_token_moves_from_the_link_into_a_cookie(guarded: TestClient) -> None:
    first = guarded.get(f"/plan?users=5&token={TOKEN}")
    assert (first.status_code, first.headers["location"]) == (303, "/plan?users=5")
    assert "HttpOnly" in first.headers["set-cookie"] and "SameSite=Strict" in first.headers["set-cookie"]
    assert guarded.get("/").status_code == 200
    assert guarded.get("/", headers={"authorization": f"Bearer {TOKEN}", "cookie": ""}).status_code == 200


def test_the_token_s_link_leads_to_no_other_server(guarded: TestClient) -> None:
    found = guarded.get(f"http://10.0.0.5:8600//evil.example/%0d%0ax:y?token={TOKEN}")
    assert found.headers["location"] == "/evil.example/%0D%0Ax%3Ay"


def test_no_page_runs_script_of_others_or_is_framed(page: TestClient) -> None:
    headers = page.get("/").headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
