"""Questions that wait, in turn; no process begins."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headcount.web.jobs import BusyError
from tests.headcount.web.conftest import idle, scenario


def test_to_ask_makes_a_job_that_waits_and_can_be_cancelled(page: TestClient) -> None:
    found = page.post("/capacity", data={"model": "llama-3.1-8b", "gpu": "h100-sxm"})
    assert (found.status_code, found.headers["location"]) == (303, scenario().path)
    assert "It begins at once" in page.get(scenario().path).text
    assert page.post(f"/cancel/{scenario().key}").headers["location"] == scenario().path
    assert "Cancelled" in page.get(scenario().path).text


def test_one_question_asked_twice_is_one_job(tmp_path: Path) -> None:
    jobs = idle(tmp_path)
    assert jobs.ask(scenario(), "k") is jobs.ask(scenario(), "k")


def test_a_hundred_jobs_are_bounded(page: TestClient) -> None:
    codes = [
        page.post("/capacity", data={"model": "llama-3.1-8b", "gpu": "h100-sxm", "seed": str(seed)}).status_code
        for seed in range(100)
    ]
    assert codes == [303] * 20 + [503] * 80
    assert page.get("/").status_code == 200


def test_jobs_of_sliders_are_few_and_the_newest_count(tmp_path: Path) -> None:
    jobs = idle(tmp_path)
    made = [jobs.ask(scenario(seed=str(seed)), str(seed), is_background=True) for seed in range(6)]
    assert [job.is_over for job in made] == [True, True, False, False, False, False]


def test_a_question_of_a_person_goes_before_those_of_sliders(tmp_path: Path) -> None:
    jobs = idle(tmp_path)
    jobs.ask(scenario(seed="1"), "slider", is_background=True)
    jobs.ask(scenario(seed="2"), "person")
    assert jobs._next().key == "person"  # type: ignore[union-attr]
    for seed in range(19):
        jobs.ask(scenario(seed=str(100 + seed)), f"more {seed}")
    jobs.ask(scenario(seed="999"), "the twentieth that waits")
    with pytest.raises(BusyError, match="20 questions wait"):
        jobs.ask(scenario(seed="1000"), "one too many")
