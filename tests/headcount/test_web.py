"""The page in the browser: what it shows, what it refuses; nothing is simulated here."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from boundary.files import InputError, read_text, reads_confined_to
from headcount.cli.main import cli
from headcount.web import app as web
from headcount.web.app import Settings, make_app
from headcount.web.fields import QUESTIONS, command_of, fields_of
from headcount.web.history import History
from headcount.web.jobs import BusyError, Jobs
from headcount.web.kept import Kept
from headcount.web.scenario import LONGEST_VALUE, Scenario, read_scenario
from headcount.web.sliders import moved, slid, sliders_of
from headcount.web.uploads import Uploads, safe_name
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
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(web, "Jobs", IdleJobs)
    made = make_app(Settings(port=PORT, most_upload_bytes=100_000), tmp_path)
    yield TestClient(made, base_url=HERE, follow_redirects=False)  # type: ignore[arg-type]


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(web, "Jobs", IdleJobs)
    made = make_app(Settings(port=PORT, token=TOKEN), tmp_path)
    return TestClient(made, base_url="http://10.0.0.5:8600", follow_redirects=False)  # type: ignore[arg-type]


def scenario(question: str = "capacity", **given: str) -> Scenario:
    values = {"model": "llama-3.1-8b", "gpu": "h100-sxm", **given}
    return read_scenario(question, [(name.replace("_", "-"), value) for name, value in values.items()])


def keep(history: History, asked: Scenario, *rows: dict[str, Any]) -> None:
    kept = Kept(
        scenario=asked, asked_at="2026-01-01 00:00", headline="<b>903 users</b>", verdict=0, alerts=(), rows=rows
    )
    history.keep(asked.key, Answered(kept, "<!doctype html><title>report</title>"))


# -- the form


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_form_asks_for_every_option_that_does_not_write_run_code_or_tune_the_server(question: str) -> None:
    asked = {field.parameter.name for field in fields_of(question)}
    every = {parameter.name for parameter in command_of(question).params}
    server_s = {"no_store", "executor", "workers", "as_json", "config", "limit", "debug"}
    outputs = {"report", "out", "requests_out", "steps_out"}
    assert every - asked <= server_s | outputs
    assert not asked & (server_s | outputs)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_field_of_a_form_has_a_label_and_a_help(page: TestClient, question: str) -> None:
    shown = page.get(f"/{question}").text
    for field in fields_of(question):
        assert f'for="f-{field.name}"' in shown
        assert field.help


def test_what_a_form_holds_are_the_words_of_the_command_line() -> None:
    asked = scenario(gpus="1,2", enable_prefix_caching="off", lifts="on", max_model_len="8K")
    command = command_of("capacity")
    with command.make_context("capacity", asked.words) as context:
        assert context.params["gpus"] == (1, 2)
        assert context.params["enable_prefix_caching"] is False
        assert context.params["lifts"] is True
        assert context.params["max_model_len"] == 8192


def test_a_link_holds_the_whole_scenario(page: TestClient) -> None:
    asked = scenario(gpus="1,2", traffic="context=x2", speculative_config='{"method": "ngram"}')
    again = read_scenario("capacity", [(name, each) for name, given in asked.values for each in given])
    assert again == asked and again.key == asked.key
    assert 'value="context=x2"' in page.get(asked.path).text


def test_scenarios_that_differ_have_other_keys() -> None:
    keys = [scenario().key, scenario(gpus="1").key, scenario(gpus="2").key, scenario("memory").key]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("modle=x", "did you mean"),
        ("model=/etc/passwd", "path"),
        ("model=../secret", "path"),
        ("model=~/secret", "path"),
        ("model=C:\\secret", "path"),
        ("workload=./chat.toml", "path"),
        ('speculative-config={"model": "/etc/passwd"}', "path"),
        ("startup-log=/etc/passwd", "not uploaded"),
        ("latency-profile=mine.toml", "not uploaded"),
        ("router=os:system", "run code"),
        ("latency-model=os:system", "run code"),
        ("model=a&model=b", "given twice"),
        ("lifts=maybe", "neither on nor off"),
        ("gpu=upload:0123456789abcdef0123456789abcdef/x.toml", "takes no file"),
        ("report=/tmp/x.html", "no field"),
        ("config=x.toml", "no field"),
        ("model=a%00b", "null character"),
        (f"model={'a' * (LONGEST_VALUE + 1)}", "characters"),
    ],
)
def test_a_link_reaches_no_file_of_the_server_and_runs_no_code(page: TestClient, query: str, told: str) -> None:
    found = page.get(f"/capacity?{query}")
    assert found.status_code == 400
    assert told in found.text


@pytest.mark.parametrize("question", QUESTIONS)
def test_script_in_every_field_is_shown_as_text(page: TestClient, question: str) -> None:
    script = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    for field in fields_of(question):
        found = page.get(f"/{question}", params={field.name: script})
        assert "<script>alert" not in found.text and "<img" not in found.text


# -- who may ask


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


# -- files


def test_an_upload_is_named_by_its_content_and_its_own_name(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    name = uploads.keep("../../my trace.csv", io.BytesIO(b"a,b\n"))
    assert name == uploads.keep("my trace.csv", io.BytesIO(b"a,b\n"))
    asked = scenario(workload=name)
    assert "--workload=./my_trace.csv" in asked.words
    with uploads.folder_of(asked) as folder:
        assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("my_trace.csv", b"a,b\n")]
    assert not folder.exists()


@pytest.mark.parametrize(
    "given",
    ["../../etc/passwd", "C:\\x\\y", ".bashrc", "-rf", "a" * 300 + ".csv", "<script>.csv", "", "日本.csv", "\0"],
)
def test_the_name_of_an_upload_is_a_plain_one(given: str) -> None:
    name = safe_name(given)
    assert 0 < len(name) <= 90 and not name.startswith((".", "-")) and not set(name) & set("/\\<>\0 ")


def test_an_upload_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    asked = scenario(workload=f"upload:{'0' * 32}/mine.csv")
    with pytest.raises(ValueError, match="choose the file again"), Uploads(tmp_path).folder_of(asked):
        pass


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two different files are called a"):
        scenario(workload=f"upload:{'0' * 32}/a", startup_log=f"upload:{'1' * 32}/a")


def test_a_file_that_is_too_large_is_refused_however_its_size_is_told(page: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file.workload"; filename="a"\r\n\r\n'
        yield from [b"0" * 50_000] * 4

    form = {"content-type": "multipart/form-data; boundary=x"}
    assert page.post("/capacity", content=pieces(), headers=form).status_code == 413
    assert page.post("/capacity", files={"file.workload": ("a", b"0" * 200_000)}).status_code == 413
    assert page.get("/").status_code == 200


@pytest.mark.parametrize("body", [b"garbage", b"--x\r\n\r\n", b'--x\r\nContent-Disposition: form-data; name="a"\r\n'])
def test_a_malformed_form_is_refused(page: TestClient, body: bytes) -> None:
    found = page.post("/capacity", content=body, headers={"content-type": "multipart/form-data; boundary=x"})
    assert found.status_code in (303, 400)
    assert page.get("/").status_code == 200


def test_a_full_disk_is_told(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Uploads, "keep", full)
    found = page.post("/capacity", files={"file.workload": ("a", b"0")})
    assert found.status_code == 507 and "No space left on device" in found.text


def test_an_uploaded_file_is_named_in_the_link(page: TestClient) -> None:
    found = page.post("/capacity", data={"model": "llama-3.1-8b"}, files={"file.workload": ("t.csv", b"a,b")})
    assert found.status_code == 303
    assert "workload=upload%3A" in found.headers["location"]
    assert "t.csv" in page.get(found.headers["location"]).text


def test_confined_reads_stay_in_their_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out.txt"
    inside.mkdir()
    (inside / "a.txt").write_text("mine")
    outside.write_text("secret")
    (inside / "link.txt").symlink_to(outside)
    with reads_confined_to(inside):
        assert read_text(inside / "a.txt") == "mine"
        for path in (outside, inside / "link.txt", inside / ".." / "out.txt", tmp_path / "none"):
            with pytest.raises(InputError, match="may be read here"):
                read_text(path)
    assert read_text(outside) == "secret"


# -- jobs


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


def idle(base: Path) -> Jobs:
    return Jobs(web.Bounds(), Uploads(base).folder_of, lambda _: None)


# -- answers


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
    assert page.get("/side-by-side", params={"answer": [one.key, "0" * 32]}).status_code == 404


# -- sliders


def test_sliders_move_a_scenario_and_back() -> None:
    asked = scenario(gpus="1,2", traffic="output=600")
    there = moved(asked, {"context": "x2", "gpus": "4", "users": "500"})
    assert (there.one("traffic"), there.one("gpus")) == ("output=600,context=x2", "4")
    assert moved(there, {"context": "x1", "gpus": "1,2"}) == asked
    with pytest.raises(ValueError, match="no slider replicas"):
        moved(asked, {"replicas": "2"})


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


def test_every_question_of_the_page_is_a_command() -> None:
    assert {words[0] for words in QUESTIONS.values()} <= set(cli.commands or cli.list_commands(None))  # type: ignore[arg-type]
