"""The page's API for programs: asked in JSON, described by OpenAPI, and by the client that a generator makes of it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headcount.web.fields import QUESTIONS, fields_of
from headcount.web.history import History
from tests.headcount.web.conftest import keep, scenario
from tests.headcount.web.test_web_browser import serving

ASKED = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}


def test_every_question_and_every_option_is_described(page: TestClient) -> None:
    described = page.get("/api/openapi.json").json()
    for question in QUESTIONS:
        body = described["paths"][f"/{question}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(body["properties"]) == {field.name for field in fields_of(question)}
    assert described["servers"] == [{"url": "/api"}]


def test_a_question_is_asked_once_and_read_by_its_key(page: TestClient, tmp_path: Path) -> None:
    asked = page.post("/api/capacity", json=ASKED)
    assert asked.status_code == 202 and asked.json()["state"] == "waiting"
    key = asked.json()["key"]
    assert key == scenario().key, "the page's form and the API ask the same"
    assert page.post("/api/capacity", json=ASKED).json()["key"] == key
    assert page.get(f"/api/answers/{key}").json()["link"] == scenario().path
    keep(History(tmp_path), scenario())
    done = page.get(f"/api/answers/{key}")
    assert (
        done.status_code == 200 and done.json()["state"] == "done" and done.json()["figures"] == {"schema_version": 2}
    )


def test_lists_switches_and_objects_are_given_as_json_has_them(page: TestClient) -> None:
    given = {"gpus": [1, 2], "enable-prefix-caching": False, "speculative-config": {"method": "ngram"}}
    link = page.post("/api/capacity", json={**ASKED, **given}).json()["link"]
    assert "gpus=1%2C2" in link and "enable-prefix-caching=off" in link and "%7B%22method%22" in link


def test_a_question_that_waits_can_be_cancelled(page: TestClient) -> None:
    key = page.post("/api/capacity", json=ASKED).json()["key"]
    assert page.delete(f"/api/answers/{key}").status_code == 204
    assert page.get(f"/api/answers/{key}").json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"modle": "x"}', "no option of capacity 'modle'; did you mean 'model'?"),
        ("[1]", "the request is no JSON object; give the options by their names"),
        ("{", "the request, column 2: is not JSON: it is empty or cut off; write or copy it again"),
        ('{"gpus": [1]}', "capacity needs model and gpu; give each by its name"),
        ('{"model": {"a": [1]}, "gpu": true}', "gpu is true; give text or a number, or a list of them"),
        (
            '{"model": "x", "gpu": "y", "enable-prefix-caching": "off"}',
            'is "off"; give true or false',
        ),
        ('{"model": "x", "gpu": "y", "workload": "../../etc/passwd"}', "'../../etc/passwd' is a path"),
    ],
)
def test_what_is_no_question_is_refused_in_a_line(page: TestClient, body: str, why: str) -> None:
    refused = page.post("/api/capacity", content=body)
    assert refused.status_code == 400 and why in refused.json()["error"]


def test_an_unknown_answer_and_too_long_a_wait_are_refused(page: TestClient) -> None:
    assert page.get("/api/answers/0").status_code == page.delete("/api/answers/0").status_code == 404
    refused = page.post("/api/capacity?wait_s=100", json=ASKED)
    assert refused.status_code == 422 and "less than or equal to 60" in refused.json()["error"]


def test_the_api_needs_the_token_of_the_page(guarded: TestClient) -> None:
    assert guarded.post("/api/memory", json=ASKED).status_code == 401


@pytest.mark.slow
def test_a_client_that_a_generator_makes_asks_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: TestClient
) -> None:
    described, made = tmp_path / "openapi.json", tmp_path / "generated_client"
    described.write_text(page.get("/api/openapi.json").text)
    line = ["openapi_python_client", "generate", "--path", described, "--output-path", made, "--meta", "none"]
    subprocess.run([sys.executable, "-m", *map(str, line)], check=True, timeout=300)
    monkeypatch.syspath_prepend(str(tmp_path))
    client, models = import_module("generated_client"), import_module("generated_client.models")
    memory = import_module("generated_client.api.default.memory")
    with serving(tmp_path / "cache") as address, client.Client(f"{address}/api", timeout=120.0) as asking:
        body = models.MemoryOptions(**ASKED)
        answer = memory.sync(client=asking, body=body, wait_s=60.0)
        assert isinstance(answer, models.Answer) and answer.state == "done" and answer.figures["fits"] is True
        refused = memory.sync(
            client=asking, body=models.MemoryOptions(model="no-such-model", gpu="h100-sxm"), wait_s=60.0
        )
        assert refused.state == "failed" and "no model 'no-such-model'" in refused.error
        assert isinstance(memory.sync(client=asking, body=models.MemoryOptions(gpu="a\0b", model="x")), models.Problem)
