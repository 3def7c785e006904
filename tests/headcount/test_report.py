"""What a reader of the HTML report can rely on."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the report needs the extra 'report'")
pytest.importorskip("jinja2", reason="the report needs the extra 'report'")

from headcount.answers.capacity import CapacityAnswer
from headcount.answers.notes import Facts, find_notes
from headcount.cli.output import command_line
from headcount.report import document, needs
from headcount.report.needs import check_report
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.study import loads
from simulator.study.capacity_table import CapacityQuestion, CapacityRow, capacity_rows
from workloads.distributions import Exponential, Fixed
from workloads.load import load_preset, load_workload

COMMAND = "headcount capacity --model llama-3.1-8b --gpu h100-sxm --gpus 1,2,4 --report 'my report.html'"
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SECTIONS = (
    "The answer", "Capacity", "Latency", "KV cache and queue over time", "Memory of each GPU",
    "Where a step's time goes", "The workload", "Notes", "Assumptions and sources", "What the words mean",
    "Run it again", "Every figure",
)  # fmt: skip


def question(**changes: object) -> CapacityQuestion:
    """A deployment that a few users fill, so that simulating it takes a second."""
    small = CapacityQuestion(
        architecture=load_model("llama-3.1-8b"),
        gpu=find_gpu("h100-sxm"),
        gpus=(1, 2, 4),
        workload=load_preset("chat"),
        think_time_s=load_preset("chat").think_time_s.mean(),
        args=EngineArgs(
            tensor_parallel_size=2, max_num_seqs=2, max_model_len=16384, latency_model="constant", step_s=0.03
        ),
        replications=3,
    )
    return replace(small, **changes)  # type: ignore[arg-type]


def answer_of(of: CapacityQuestion, rows: list[CapacityRow], **changes: object) -> CapacityAnswer:
    facts = Facts(plans=[row.plan for row in rows if row.plan is not None])
    made = CapacityAnswer(notes=find_notes(facts), question=of, capacity=tuple(rows), workload="chat", asked=COMMAND)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def answered() -> tuple[CapacityQuestion, list[CapacityRow]]:
    asked = question()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "REQUESTS_PER_REPLICATION", 400)
        return asked, list(capacity_rows(asked))


@pytest.fixture(scope="module")
def report(answered: tuple[CapacityQuestion, list[CapacityRow]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "my report.html"
    answer_of(*answered).report(path)
    return path


@pytest.fixture(scope="module")
def html(report: Path) -> str:
    return report.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Text, open tags, ids, everything that a browser would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.mistakes: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "srcset", "xlink:href", "data", "action"):
                self.loaded.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_report_has_each_section(page: Page) -> None:
    assert tuple(page.headings) == SECTIONS


def test_every_section_is_one_file(page: Page) -> None:
    files = (Path(document.__file__).parent / "sections").glob("[!_]*.py")
    assert {path.stem for path in files} == {name for _, _, name in document.sections()}


def test_the_answer_leads_with_the_number_to_sign(
    page: Page, answered: tuple[CapacityQuestion, list[CapacityRow]]
) -> None:
    row = answered[1][-1]
    headline = f"{row.users_low:,} users on 4 GPUs, with 95 % confidence"
    assert 0 < row.users_low <= row.users <= row.users_high
    body = page.text[page.text.index(SECTIONS[-1]) :]  # after the list of sections
    assert body.removeprefix(SECTIONS[-1]).strip().startswith(f"{SECTIONS[0]} {headline}")


def test_times_that_were_given_are_in_no_interval(html: str) -> None:
    assert "The interval covers simulation noise (3 replications). Every step takes the time that was given" in html
    assert "longer or shorter by the share of TPOT" not in html


def test_a_gpu_count_that_serves_nobody_says_why(page: Page) -> None:
    assert "1 GPU: tensor parallel size 2 does not divide 1 GPU" in page.text


def test_tags_are_balanced(page: Page) -> None:
    assert page.mistakes == []
    assert page.open == []


def test_ids_are_unique_and_every_reference_finds_its_own(page: Page, html: str) -> None:
    assert len(page.ids) == len(set(page.ids))
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert references <= set(page.ids)


def test_nothing_is_loaded_from_elsewhere(page: Page, html: str) -> None:
    assert [link for link in page.loaded if not link.startswith(("#", "data:"))] == []
    assert not re.search(r"@import|url\((?!#)|<script|\son\w+=", html)


def test_every_number_of_the_json_appears(html: str, answered: tuple[CapacityQuestion, list[CapacityRow]]) -> None:
    found = re.search(r"<pre>(\{.*?\})</pre>", html, re.DOTALL)
    assert found is not None
    written = json.loads(found[1].replace("&#34;", '"').replace("&#39;", "'").replace("&amp;", "&"))
    assert written["capacity"] == json.loads(json.dumps(answer_of(*answered).rows()))


def test_main_figures_are_in_the_tables(page: Page, answered: tuple[CapacityQuestion, list[CapacityRow]]) -> None:
    for row in answered[1]:
        answer = row.to_json()
        assert f"{row.usd_per_hour:,.2f}" in page.text
        if row.point is not None:
            assert f"{answer['output_tokens_per_s']:,.0f}" in page.text
            assert f"{100 * answer['attainment']['mean']:.1f} %" in page.text


def test_all_assumptions_stand_with_their_sources(
    page: Page, answered: tuple[CapacityQuestion, list[CapacityRow]]
) -> None:
    plan = answered[1][-1].plan
    assert plan is not None
    text = re.sub(r" ?%", " %", page.text)
    for name, value, source in plan.assumptions:
        for part in (name, value, source):
            assert re.sub(r" ?%", " %", " ".join(part.split())) in text


def test_the_presets_numbers_stand_with_their_sources(page: Page) -> None:
    assert "lognormal, median 39.7 s, sigma 1.224, minimum 1 s, maximum 3,600 s" in page.text
    assert "RAGPulse" in page.text


@pytest.mark.slow
def test_a_changed_think_time_replaces_the_presets(answered: tuple[CapacityQuestion, list[CapacityRow]]) -> None:
    changed = replace(load_preset("chat"), think_time_s=Exponential(mean_value=30.0))
    asked = question(workload=changed, think_time_s=30.0)
    found = answer_of(asked, answered[1])
    text = Page(document.render_report(found)).text
    assert "mean 30 s, exponential given with --think-time" in text
    assert "median 39.7" not in text


@pytest.mark.slow
def test_a_population_that_is_not_the_presets_is_shown_as_it_is(
    answered: tuple[CapacityQuestion, list[CapacityRow]],
) -> None:
    asked = question(workload=replace(load_preset("chat"), output_tokens=Fixed(value=7)))
    found = answer_of(asked, answered[1])
    text = Page(document.render_report(found)).text
    assert "output tokens Fixed(value=7)" in text
    assert "mean 441.34 tokens" not in text


@pytest.mark.slow
def test_a_trace_tells_its_statistics_and_what_users_are(
    tmp_path: Path, answered: tuple[CapacityQuestion, list[CapacityRow]]
) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"2023-11-16 18:15:{10 + second}.0000000,{100 * second + 50},20" for second in range(40)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]), encoding="utf-8")
    asked = question(workload=load_workload(trace))
    found = answer_of(asked, answered[1], workload=str(trace))
    text = Page(document.render_report(found)).text
    assert "users = λ (Z + R)" in text
    assert "prompt tokens max 3,950" in text


def test_the_report_is_small_and_the_same_each_time(
    report: Path, html: str, answered: tuple[CapacityQuestion, list[CapacityRow]], tmp_path: Path
) -> None:
    again = tmp_path / "again.html"
    answer_of(*answered).report(again)
    assert report.stat().st_size < 2_000_000
    assert again.read_text(encoding="utf-8") == html
    assert [path.name for path in report.parent.iterdir()] == [report.name]


def test_names_are_escaped(answered: tuple[CapacityQuestion, list[CapacityRow]]) -> None:
    asked = question(architecture=replace(answered[0].architecture, name='<b>&"x"'))
    found = answer_of(asked, answered[1], asked="headcount '<i>'")
    text = document.render_report(found)
    assert "&lt;b&gt;&amp;&#34;x&#34;" in text
    assert "<b>&" not in text
    assert "<i>" not in text


def test_a_report_on_gpus_that_serve_nobody_says_so(
    answered: tuple[CapacityQuestion, list[CapacityRow]],
) -> None:
    found = answer_of(answered[0], answered[1][:1])
    seen = Page(document.render_report(found))
    assert "None of these GPU counts meets the SLO with a single user" in seen.text
    assert "does not divide 1 GPU" in seen.text
    assert "svg" not in seen.tags


def test_the_command_line_is_quoted_for_a_shell(page: Page) -> None:
    assert command_line(["capacity", "--report", "my report.html"]) == "headcount capacity --report 'my report.html'"
    assert COMMAND in page.text


def test_a_report_refuses_a_folder_that_is_absent(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no folder .*absent; create it"):
        check_report("report", tmp_path / "absent" / "report.html")


def test_a_report_refuses_a_folder_as_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; name a file in it, such as "):
        check_report("report", tmp_path)


def test_a_report_refuses_what_is_no_ordinary_file() -> None:
    with pytest.raises(ValueError, match="is not an ordinary file"):
        check_report("report", "/dev/null")


def test_a_report_names_the_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "jinja2" else object())
    with pytest.raises(ValueError, match=re.escape("needs matplotlib and jinja2; install headcount[report]")):
        check_report("report", tmp_path / "report.html")


def test_a_report_leaves_nothing_behind(tmp_path: Path) -> None:
    check_report("report", tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_report_leaves_the_old_one(
    tmp_path: Path, answered: tuple[CapacityQuestion, list[CapacityRow]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(Path, "replace", _full_disk)
    with pytest.raises(ValueError, match="cannot be written: disk is full"):
        answer_of(*answered).report(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def _full_disk(*_: object) -> None:
    raise OSError("disk is full")


@pytest.mark.slow
def test_asking_from_python_loads_neither_matplotlib_nor_jinja2() -> None:
    code = (
        "import sys, headcount.report, headcount.answers.capacity; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


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
@pytest.mark.parametrize("width", [420, 1280])
def test_a_browser_renders_it_without_complaint_nor_sideways_scrolling(
    report: Path, browser: list[str], tmp_path: Path, width: int
) -> None:
    measured = tmp_path / "measured.html"
    script = (
        "<script>document.title = [document.documentElement.scrollHeight, document.documentElement.scrollWidth, "
        "innerWidth, document.querySelectorAll('svg').length].join(' ')</script>"
    )
    measured.write_text(report.read_text(encoding="utf-8").replace("</body>", script + "</body>"), encoding="utf-8")
    command = [*browser, f"--window-size={width},900", "--dump-dom", measured.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    title = re.search(r"<title>(\d+) (\d+) (\d+) (\d+)</title>", done.stdout)
    assert title is not None
    height, content_width, window_width, charts = map(int, title.groups())
    assert height > 3000
    assert content_width <= window_width
    assert charts == 7
    assert "CONSOLE" not in done.stderr
