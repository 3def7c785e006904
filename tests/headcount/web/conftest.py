"""The page without a browser; nothing is simulated here."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headcount.web import app as web
from headcount.web.app import Settings, make_app
from headcount.web.history import History
from headcount.web.jobs import Jobs
from headcount.web.saved_jobs import SavedJob
from headcount.web.scenario import Scenario, read_scenario
from headcount.web.uploads import Uploads
from headcount.web.worker import Answered

PORT = 8600
HERE = f"http://127.0.0.1:{PORT}"
TOKEN = "0123456789abcdef0123"
CAPACITY = "model=llama-3.1-8b&gpu=h100-sxm&gpus=1%2C2"


class IdleJobs(Jobs):
    """Jobs that wait: no process begins."""

    def start(self) -> None:
        pass


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(web, "Jobs", IdleJobs)
    made = make_app(Settings(port=PORT, most_upload_bytes=100_000), tmp_path)
    return TestClient(made, base_url=HERE, follow_redirects=False)


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(web, "Jobs", IdleJobs)
    made = make_app(Settings(port=PORT, token=TOKEN), tmp_path)
    return TestClient(made, base_url="http://10.0.0.5:8600", follow_redirects=False)


def scenario(question: str = "capacity", **given: str) -> Scenario:
    values = {"model": "llama-3.1-8b", "gpu": "h100-sxm", **given}
    return read_scenario(question, [(name.replace("_", "-"), value) for name, value in values.items()])


def keep(history: History, asked: Scenario, *rows: dict[str, Any]) -> None:
    kept = SavedJob(
        scenario=asked, asked_at="2026-01-01 00:00", headline="<b>903 users</b>", verdict=0, alerts=(), rows=rows
    )
    history.keep(asked.key, Answered(kept, "<!doctype html><title>report</title>", '{"schema_version": 2}'))


def idle(base: Path) -> Jobs:
    return Jobs(web.Bounds(), Uploads(base).folder_of, lambda _: None)
