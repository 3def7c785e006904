"""What the documentation shows is what happens, and it reads well."""

import json
import re
import shlex
import socket
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

import headcount as hc
from headcount.cli.main import COMMANDS, cli
from tests.simulator.study.made_up_fleets import simulate_as
from validation.pages.outputs import examples, output

ROOT = Path(__file__).parent.parent
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "validation/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
HEADCOUNT = str(Path(sys.executable).parent / "headcount")
COMMAND = re.compile(rf"headcount ((?:{'|'.join(COMMANDS)})\b[^`\n]*)")
PLACEHOLDERS = {"M": "llama-3.1-8b", "G": "h100-sxm", "FILE": "report.html"}
LONGEST_PAGE = 250  # lines
LONGEST_PARAGRAPH = 80  # words
EXACT = re.compile(r"headcount (memory|training-memory|calibrate read)\b")  # a processor's rounding is not seen
PAIR = "prefill=1,decode=1"
ADDED = ROOT / "examples" / "mine"
CODE_PATH = re.compile(r"`((?:[\w.-]+/)*(?:[\w.-]+\.py|[\w.-]+/))`")
IN_NO_REPOSITORY = {
    "disagg_proxy_pushconnector_demo.py", "v1/cache_engine.py", "_base_client.py", "_constants.py",  # cited as sources
    "distributed/eplb/policy/default.py", "tensorrt_llm/_torch/pyexecutor/scheduler/",
    "trace_writers/", "report_sections/",  # folders of HEADCOUNT_PATH
}  # fmt: skip


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands() -> list[str]:
    """Every headcount command line in code spans and blocks that has options."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text))
        found += [match for match in COMMAND.findall(code) if "--model" in match]
    return sorted(set(found))


@pytest.mark.parametrize("line", commands())
def test_every_command_in_the_docs_parses(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_PATH", str(ADDED))
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line.partition(" > ")[0])]
    context, command = click.Context(cli), cli.get_command(click.Context(cli), words[0])
    while isinstance(command, click.Group):
        words.pop(0)
        command = command.get_command(context, words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


def test_there_are_commands_in_the_docs() -> None:
    assert len(commands()) >= 20


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere_in_the_repository(page: Path) -> None:
    for target, place in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{name(page)} → {target}"
        assert found.is_relative_to(ROOT.resolve()), f"{name(page)} → {target} lies outside the repository"
        if place and found.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert place[1:] in map(anchor, headings), f"{name(page)} → {target}{place}"


@cache
def endings() -> frozenset[str]:
    """Every way to write a file or a folder of the repository, from the whole path to the name alone."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = {path.relative_to(ROOT) for folder in folders for path in folder.rglob("*.*") if path.is_file()}
    names = {str(path) for path in files} | {f"{folder}/" for path in files for folder in path.parents[:-1]}
    return frozenset("/".join(name.split("/")[start:]) for name in names for start in range(name.count("/") + 1))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_path_on_a_page_is_one_of_the_repository(page: Path) -> None:
    """`NAME.py` stands for a file that somebody adds to a folder which is there."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    paths = [*CODE_PATH.findall(text), *re.findall(r"(?<![\w/.])tests/[\w/]+\.py", text)]
    written = {re.sub(r"[A-Z]+\.py$", "", path) for path in paths} - IN_NO_REPOSITORY - {""}
    assert sorted(written - endings()) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_module_that_a_page_runs_is_there(page: Path) -> None:
    run = set(re.findall(r"python -m ((?:validation|conformance)[\w.]*)", page.read_text(encoding="utf-8")))
    assert [module for module in sorted(run) if find_spec(module) is None] == []


def anchor(heading: str) -> str:
    """A heading's address on its page."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=name)
def test_the_index_lists_every_page(page: Path) -> None:
    index = ROOT / "docs" / "README.md"
    assert page == index or f"({page.relative_to(index.parent)})" in index.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_is_long_nor_points_outside(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    written = re.sub(r"<!-- generated.*?<!-- end -->", "", text, flags=re.DOTALL)  # lists are as long as what they list
    assert page.name == "CHANGELOG.md" or written.count("\n") <= LONGEST_PAGE
    assert "../shared" not in text
    assert not re.search(r"(?<![\w.~])/(?:home|root|tmp|work)/", text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_paragraph_is_long(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    paragraphs = re.split(r"\n\n+|\n(?=\s*(?:\*|\d+\.|\|) )", text)
    long = [paragraph for paragraph in paragraphs if len(paragraph.split()) > LONGEST_PARAGRAPH]
    assert [paragraph[:60] for paragraph in long if not paragraph.startswith("|")] == []


SHOWN = [
    (page, language, code, shown)
    for page in PAGES
    for language, code, shown in examples(page.read_text(encoding="utf-8"))
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "language", "code", "shown"),
    [example for example in SHOWN if EXACT.search(example[2])],
    ids=lambda value: name(value) if isinstance(value, Path) else "",
)
def test_what_a_page_shows_is_what_the_command_prints(page: Path, language: str, code: str, shown: str) -> None:
    assert output(language, code) == shown, f"run 'python -m validation.pages --outputs {name(page)}'"


@pytest.mark.slow
def test_an_example_that_serves_is_stopped_once_it_says_where() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"pip install 'headcount[web]'\nheadcount web --port {port}\n"
    assert output("sh", code) == f"Headcount at http://127.0.0.1:{port}/\n"
    with pytest.raises(RuntimeError, match="ends instead of serving"):
        output("sh", "headcount web --port -1\n")


def test_every_example_on_a_page_has_its_output() -> None:
    assert [name(page) for page, _, _, shown in SHOWN if not shown.strip()] == []


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_runs(example: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs_and_shows_its_output(notebook: Path) -> None:
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells and all(cell["outputs"] for cell in cells)
    lines = "".join(line for cell in cells for line in [*cell["source"], "\n"] if not line.startswith("%"))
    code = f"import matplotlib; matplotlib.use('agg')\n{lines}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_nothing_of_another_host(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site needs the extra [docs]")
    built = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(built, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")]
    assert len(pages) > 50
    questions = (tmp_path / "how-to" / "questions" / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<img alt="[^"]+" src="([^"]+)"', questions)
    assert len(pictures) >= 25
    assert all((tmp_path / "how-to" / "questions" / picture).resolve().is_file() for picture in pictures)
    assert not re.findall(r"""(?:src|rel="stylesheet" href)="https?:[^"]*""", "".join(pages))
    listed = re.findall(
        r"^- \[[^\]]+\]\(([^)]+)\): ", (tmp_path / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(listed) > 80 and all((tmp_path / page).is_file() for page in listed)


@pytest.mark.slow
def test_the_readme_s_main_job_gives_the_users_it_shows(tmp_path: Path) -> None:
    """To within 5 %: another processor rounds differently, and a search may then turn at another step."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(match for match in COMMAND.findall(readme) if match.startswith("capacity") and "report.html" in match)
    done = subprocess.run([HEADCOUNT, *shlex.split(line)], capture_output=True, text=True, check=True, cwd=tmp_path)
    shown, found = (users_low_by_gpus(text) for text in (readme, done.stdout))
    assert found.keys() == shown.keys() == {1, 2, 4, 8}
    assert all(abs(found[gpus] - shown[gpus]) <= 0.05 * shown[gpus] for gpus in shown)
    assert (tmp_path / "report.html").stat().st_size > 50_000


def users_low_by_gpus(text: str) -> dict[int, int]:
    rows = re.findall(r"^(\d+) +\d+ × TP\d+ +(?:–|[a-z-]+) +([\d,]+)", text, re.MULTILINE)
    return {int(gpus): int(users.replace(",", "")) for gpus, users in rows}


QUESTIONS = ROOT / "docs" / "how-to" / "questions.md"


@pytest.mark.slow
@pytest.mark.parametrize("line", re.findall(r"\| `headcount ([^`]+)` \|", QUESTIONS.read_text(encoding="utf-8")))
def test_every_question_is_answered_by_its_command(line: str) -> None:
    """Briefly: with two replications, and with few choices."""
    words, command = shlex.split(line), line.split(maxsplit=1)[0]
    few = {"optimize": ["--finalists", "1"], "simulate": [], "memory": []}
    brief = few.get(command, ["--replications", "2"])
    plan = ["--gpu", "h100-sxm,l40s"] if command == "plan" else []
    done = subprocess.run([HEADCOUNT, *words, *brief, *plan, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"model": "meta-llama/Llama-3.1-8B-Instruct"' in done.stdout


def test_the_page_on_other_tools_has_the_readme_s_figures() -> None:
    readme, page = (
        path.read_text(encoding="utf-8") for path in (ROOT / "README.md", ROOT / "docs/measurements/other-tools.md")
    )
    pattern = r"1 GPU: (\S+) users at 95 % confidence \((\S+) expected.*\n2 GPUs: (\S+) users"
    ((low, mean, two),) = re.findall(pattern, readme)
    assert f"{low} users at 95 % confidence ({mean} expected); two with TP 2 serve {two} " in page


def test_every_json_key_is_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "json-keys.md").read_text(encoding="utf-8")
    load = {"input_len": 64, "output_len": 4, "concurrency": 2, "latency_model": "constant"}
    chat = {"gpus": [1], "latency_model": "constant", "step_s": 0.01, "max_num_seqs": 2, "replications": 2}
    chat_alone = {name: value for name, value in chat.items() if name != "gpus"}
    answers = (
        hc.memory("llama-3.1-8b", "h100-sxm"),
        hc.simulate("llama-3.1-8b", "h100-sxm", **load, max_model_len=4096, pools=PAIR, decider="isl_bounding"),
        hc.capacity("llama-3.1-8b", "h100-sxm", **chat),
        hc.compare("llama-3.1-8b", "h100-sxm", precision=0.9, **chat),
        hc.whatif("llama-3.1-8b", "h100-sxm", vary={"users": [1]}, precision=0.9, **(chat | {"gpus": 1})),
    )
    disaggregated = hc.disaggregated_capacity("llama-3.1-8b", "h100-sxm", PAIR, max_model_len=4096, **chat_alone)
    found = {key for answer in (*answers, disaggregated) for key in answer.to_json()}
    row = answers[2].to_json()["capacity"][0]
    found |= {*row, *row["at_users"], *(row["at_users_low"] or ()), *disaggregated.to_json()["at_users"]}
    found |= set(hc.fleet("llama-3.1-8b", {"h100-sxm": 1, "l40s": 1}, max_model_len=4096, **chat_alone).rows()[0])
    found |= set(answers[3].to_json()["layouts"][0]) | set(answers[4].to_json()["cells"][0])
    simulate_as(monkeypatch, lambda _, servers: 100 * servers)
    planned = hc.plan("llama-3.1-8b", users=10, gpu="h100-sxm", latency_model="constant").to_json()
    found |= {*planned, *planned["best"], *planned["best"]["at_users_to_serve"]}
    assert sorted(key for key in found if f"`{key}`" not in page) == []
