"""What a reader of a report can rely on."""

import csv
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the report needs the extra 'report'")

import headcount as hc
from headcount.queries.result import Result
from headcount.queries.saved_answer import read_answer
from headcount.views.report import document
from headcount.views.report.formats import csv as csv_format
from headcount.views.report.source import report_file
from headcount.views.report_data.study import Study, staircase_json
from simulator.study import loads
from tests.headcount.conftest import SHORT_ANSWERS

ON = ("qwen3-0.6b", "h100-sxm")
SMALL: dict[str, Any] = {
    "max_num_seqs": 2, "max_model_len": 4096, "latency_model": "constant", "step_s": 0.03, "workload": SHORT_ANSWERS,
    "replications": 2, "store": False,
}  # fmt: skip
COMMAND = "headcount capacity --report 'my report.html'"
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


ASKED: dict[str, Callable[[], Result]] = {
    "memory": lambda: hc.memory(*ON),
    "memory --compare": lambda: hc.memory_comparison(*ON, quantization="none"),
    "training-memory": lambda: hc.training_memory(*ON),
    "simulate": lambda: hc.simulate(*ON, input_len=100, output_len=10, concurrency=2),
    "describe": lambda: hc.describe("chat", users=20),
    "capacity": lambda: hc.capacity(*ON, gpus=[1, 2], **SMALL),
    "compare": lambda: hc.compare(*ON, gpus=1, precision=0.9, **SMALL | {"max_num_seqs": [2, 4]}),
    "whatif": lambda: hc.whatif(*ON, gpus=1, vary={"output": ["x1", "x2"]}, precision=0.9, **SMALL),
}
QUESTIONS = [pytest.param(name, marks=[pytest.mark.slow] * (name in ("compare", "whatif"))) for name in ASKED]


@cache
def answered(question: str) -> Result:
    """With what its report shows, worked out on few requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "REQUESTS_PER_REPLICATION", 300)
        answer = ASKED[question]()
        assert isinstance(answer.complete().evidence, dict)
    return answer


@pytest.fixture(scope="module")
def capacity() -> dict[str, Any]:
    """As the command prints it with --json."""
    written: dict[str, Any] = json.loads(json.dumps(_whole(answered("capacity")), allow_nan=False))
    return written


def _whole(answer: Result) -> dict[str, Any]:
    return answer.to_json(report=True)


class Page(HTMLParser):
    """Text, open tags, ids, everything that a browser would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.mistakes: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.texts: list[str] = []
        self.is_inline = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_inline = tag == "span"
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "srcset", "xlink:href", "data", "action"):
                self.loaded.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self.is_inline = tag == "span"  # what follows goes on in the same word
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.is_inline and self.texts:
            self.texts[-1] += data
        elif not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_section_is_in_the_report_of_every_question(question: str) -> None:
    """Filled, or with the command that fills it."""
    report = document.report_of(_whole(answered(question)))
    page = Page(document.render(_whole(answered(question))))
    names = {name.replace("_", "-") for name in document.sections()}
    assert {section.name for section in report.sections} == names
    assert names <= set(page.ids)
    for section in report.absent:
        assert f"{section.title}: {section.shown_by}" in page.text.replace(" :", ":")
    assert {"figures", "rerun", "limits"} <= {section.name for section in report.shown}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_report_is_one_sound_file_that_loads_nothing(question: str) -> None:
    html = document.render(_whole(answered(question)))
    page = Page(html)
    assert (page.mistakes, page.open) == ([], [])
    assert len(page.ids) == len(set(page.ids))
    assert [link for link in page.loaded if not link.startswith(("#", "data:"))] == []
    assert {link[1:] for link in page.loaded if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"@import|url\((?!#)|\son\w+=", html)
    assert len(html.encode()) < 2_000_000


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_first_page_asks_the_question_and_answers_it(question: str) -> None:
    first = _whole(answered(question))["report"]["summary"]
    text = Page(document.render(_whole(answered(question)))).text
    assert first["question"].endswith("?")
    assert first["answer"]
    assert first["risk"]
    for told in (
        first["question"],
        first["answer"],
        first["risk"],
        *first["confirm"],
        *(word for pair in first["figures"] for word in pair),
    ):
        assert _spaced(told) in text


def _spaced(text: str) -> str:
    return re.sub(r"(?<=\d) ?%", " %", " ".join(text.split()))


def test_a_deployment_s_sections_are_all_filled(capacity: dict[str, Any]) -> None:
    shown = {section.name for section in document.report_of(capacity).shown}
    assert shown >= {
        "deployment", "memory", "capacity-curve", "latency", "over-time", "bottleneck", "staircase", "layouts",
        "contexts", "tornado", "assumptions", "traffic",
    }  # fmt: skip


def test_the_page_shows_the_answer_s_figures(capacity: dict[str, Any]) -> None:
    answer = answered("capacity")
    assert isinstance(answer, hc.CapacityResult)
    text = Page(document.render(capacity)).text
    assert 0 < answer.users_low <= answer.users <= answer.users_high
    assert f"{answer.users_low:,} users on {answer.best.gpus} × NVIDIA H100 SXM" in text
    assert f"at 95 % confidence: {answer.users_low:,}" in text
    for row in answer.capacity:
        assert f"{row.users:,}" in text
    assert all(_spaced(note.text) in text for note in answer.diagnostics)


def test_the_loads_are_shares_of_the_load_and_get_slower(capacity: dict[str, Any]) -> None:
    report = capacity["report"]
    assert [load["share"] for load in report["loads"]] == [0.5, 0.8, 1.0, 1.2]
    assert [load["users"] for load in report["loads"]] == pytest.approx(
        [share * report["load_users"] for share in (0.5, 0.8, 1.0, 1.2)]
    )
    reached = [load["attainment"] for load in report["loads"]]
    one_in_200 = 0.005  # requests of one replication that miss are chance
    assert all(after <= before + one_in_200 for before, after in itertools.pairwise(reached))
    for load in report["loads"]:
        assert load["ttft_s"] == sorted(load["ttft_s"])
        assert len(load["ttft_s"]) == len(report["percentiles"])


def test_more_servers_serve_more_users_and_more_users_take_more_gpus(capacity: dict[str, Any]) -> None:
    steps = capacity["report"]["staircase"]["steps"]
    for name in ("gpus", "users", "usd_per_month"):
        values = [step[name] for step in steps]
        assert values == sorted(values)
    for row in capacity["report"]["contexts"]["rows"]:
        assert row["gpus"] == sorted(row["gpus"])


def test_more_users_than_any_step_serves_take_another_server(capacity: dict[str, Any]) -> None:
    steps = capacity["report"]["staircase"]["steps"]
    (chart,) = document.sections()["staircase"].parts(capacity)
    (line,) = chart.series
    assert line.x == [0.0, *(step["users"] for step in steps)]
    assert line.y[:-1] == [step["gpus"] for step in steps]
    assert line.y[-1] > steps[-1]["gpus"]


def test_the_first_page_says_what_its_words_mean_and_what_else_there_is(capacity: dict[str, Any]) -> None:
    """In every format that is read."""
    first = capacity["report"]["summary"]
    words = dict(first["words"])
    assert words.keys() >= {"user", "95 % confidence", "weights", "token", "rent"}
    report = document.report_of(capacity)
    read = {
        "html": Page(document.render(capacity)).text,
        "md": document.FORMATS.load("md").made(report),
    }
    for text in read.values():
        for word, meaning in first["words"]:
            assert f"{word}: {meaning}".replace(" %", "%")[:60] in text.replace(" %", "%").replace(" :", ":")
    options = first["options"]
    assert len(options["rows"]) == len(capacity["capacity"])
    for text in (*read.values(), document.FORMATS.load("csv").made(report)):
        for row in options["rows"]:
            assert all(cell.strip('"') in text for cell in row)


def test_the_capacity_s_choices_are_its_rows(capacity: dict[str, Any]) -> None:
    options = capacity["report"]["summary"]["options"]
    found = {row[0]: row[1] for row in options["rows"]}
    assert found == {f"{row['gpus']:,}": f"{row['users_low']:,}" for row in capacity["capacity"]}
    best = max(capacity["capacity"], key=lambda row: row["users_low"])
    assert options["rows"][options["marked"]][0] == f"{best['gpus']:,}"


def test_the_warm_up_counts_in_no_figure_over_time(capacity: dict[str, Any]) -> None:
    line = {"time_s": [0.0, 60.0, 120.0], "kv_usage": [0.9, 0.5, 0.25], "kv_cached": [0.0] * 3, "warmup_s": 30.0,
            "waiting": [9.0, 4.0, 1.0], "running": [1.0] * 3, "preemptions": [0.0] * 3}  # fmt: skip
    page = Page(document.render(capacity | {"report": capacity["report"] | {"timeline": line}})).text
    assert "At the peak, 50 % of the KV cache is in use" in page
    assert "At most 4 requests at once in the queue" in page


@pytest.mark.parametrize(("users", "servers"), [(61, 7), (100, 3)])
def test_the_servers_that_are_bought_serve_the_users_safe_to_promise(users: int, servers: int) -> None:
    answer = answered("capacity")
    assert isinstance(answer, hc.CapacityResult)
    study = Study(question=answer.question, row=replace(answer.best, users_low=users), servers=servers)
    found = staircase_json(study)
    assert found is not None
    assert next(step["users"] for step in found["steps"] if step["servers"] == servers) == users


def test_the_parts_of_the_memory_add_up(capacity: dict[str, Any]) -> None:
    found = capacity["report"]["memory"]
    assert sum(part["bytes"] for part in found["parts"]) == found["total_bytes"]


def test_all_assumptions_stand_with_their_sources_and_kinds(capacity: dict[str, Any]) -> None:
    answer = answered("capacity")
    assert isinstance(answer, hc.CapacityResult)
    assert answer.best.plan is not None
    rows = capacity["report"]["assumptions"]
    assert {row["kind"] for row in rows} <= {"measured", "specified", "assumed"}
    told = {(row["name"], row["value"], row["source"]) for row in rows}
    assert told >= set(answer.best.plan.assumptions)
    assert "think time" in {name for name, _, _ in told}


def test_a_kept_answer_gives_the_same_report(tmp_path: Path) -> None:
    """From JSON, and from the report itself."""
    answer = replace(answered("capacity"), asked=COMMAND)
    answer.report(tmp_path / "a.html")
    answer.report(tmp_path / "a.json")
    for kept in ("a.json", "a.html"):
        report_file(tmp_path / kept, tmp_path / "b.html")
        assert (tmp_path / "b.html").read_text("utf-8") == (tmp_path / "a.html").read_text("utf-8")
    assert COMMAND.replace("'", "&#39;") in (tmp_path / "a.html").read_text("utf-8")


def test_the_files_of_a_question_are_inside(capacity: dict[str, Any]) -> None:
    item = next(item for item in capacity["report"]["inputs"] if item["name"] == "short_answers.toml")
    assert item["text"] == Path(SHORT_ANSWERS).read_text("utf-8")
    assert item["sha256"] in document.render(capacity)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&|`*\u2028"


def _poisoned(value: Any, text: str = HOSTILE) -> Any:
    """Every text replaced by one that breaks out wherever it can."""
    if isinstance(value, dict):
        return {key: each if key in ("kind", "severity") else _poisoned(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [_poisoned(each, text) for each in value]
    return text if isinstance(value, str) else value


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", " =", "-5%="])
def test_no_table_holds_a_spreadsheet_s_formula(capacity: dict[str, Any], begins: str) -> None:
    page = _poisoned(capacity, f"{begins}cmd|'/C calc'!A0")
    made = document.FORMATS.load("csv").made(document.report_of(page))
    cells = [cell for row in csv.reader(made.splitlines()) for cell in row]
    assert f"'{begins}cmd|'/C calc'!A0" in cells
    assert not any(cell.lstrip().startswith(("=", "+cmd", "-cmd", "@", "-5%=")) for cell in cells)


def test_numbers_stay_numbers_in_tables() -> None:
    for number in ("-5", "+8.5 %", "-41.4%", "-1,000 users", "5", ""):
        assert csv_format._safe(number) == number


def test_markdown_holds_no_links_and_no_control_characters(capacity: dict[str, Any]) -> None:
    page = _poisoned(capacity, "\\[x](javascript:alert(1)) ![y][z] \x1b[2J\x07")
    page["report"]["layouts"]["text"] = "count"
    made = document.FORMATS.load("md").made(document.report_of(page))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", made)
    outside_code = re.sub(r"^(`{3,})\n.*?^\1$", "", made, flags=re.DOTALL | re.MULTILINE)
    assert r"\\\[x\](javascript" in outside_code
    assert not re.search(r"(?<!\\)(\\\\)*[\[\]]", outside_code)


def test_hostile_text_stays_text(capacity: dict[str, Any]) -> None:
    page = _poisoned(capacity)
    for bars in page["report"]["layouts"]["bars"]:
        bars["kind"] = "plain"
    page["report"]["layouts"]["text"] = "count"
    html = document.render(page)
    assert "<script>alert" not in html
    assert "<img" not in html
    assert html.count("<script") == 2
    assert "</script><script>alert" not in html
    made = document.FORMATS.load("md").made(document.report_of(page))
    outside_code = re.sub(r"^(`{3,})\n.*?^\1$", "", made, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside_code
    assert "<img" not in outside_code


def test_a_readers_json_inside_the_page_is_the_answer(capacity: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(document.render(capacity), encoding="utf-8")
    assert read_answer(tmp_path / "a.html") == capacity


def test_a_report_of_a_kept_answer_loads_nothing_that_simulates(capacity: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(capacity), encoding="utf-8")
    code = (
        "import sys; sys.argv = ['headcount', 'report', 'a.json', '-o', 'a.html']\n"
        "from headcount.cli.main import main\n"
        "try: main()\n"
        "finally: print({'numba', 'pandas', 'scipy', 'matplotlib', 'headcount.queries.capacity'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": ""},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["report: a.html", "set()"]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[list[str]]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium to render the report with")
    yield [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=2000",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [420, 768, 1280, 1920])
def test_a_browser_renders_it_without_complaint_nor_sideways_scrolling(
    capacity: dict[str, Any], browser: list[str], tmp_path: Path, width: int
) -> None:
    measured = tmp_path / "measured.html"
    script = (
        "<script>document.querySelectorAll('details').forEach(each => { each.open = true; });"
        "document.querySelector('thead button').click();"
        "document.title = [document.documentElement.scrollHeight, document.documentElement.scrollWidth, "
        "innerWidth, document.querySelectorAll('th[aria-sort]').length].join(' ')</script>"
    )
    measured.write_text(document.render(capacity).replace("</body>", script + "</body>"), encoding="utf-8")
    command = [*browser, f"--window-size={width},900", "--dump-dom", measured.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    title = re.search(r"<title>(\d+) (\d+) (\d+) (\d+)</title>", done.stdout)
    assert title is not None
    height, content_width, window_width, sorted_tables = map(int, title.groups())
    assert height > 3000
    assert content_width <= window_width
    assert sorted_tables == 1
    assert "CONSOLE" not in done.stderr
