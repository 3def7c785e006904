"""What the documentation shows is what happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headcount.cli.main import COMMANDS, cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HEADCOUNT = str(Path(sys.executable).parent / "headcount")
COMMAND = re.compile(rf"headcount ((?:{'|'.join(COMMANDS)})\b[^`\n]*)")
PLACEHOLDERS = {"M": "llama-3.1-8b", "G": "h100-sxm", "FILE": "report.html"}


def commands() -> list[str]:
    """Every headcount command line in code spans and blocks that has options."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text))
        found += [match for match in COMMAND.findall(code) if "--model" in match]
    return sorted(set(found))


@pytest.mark.parametrize("line", commands())
def test_every_command_in_the_docs_parses(line: str) -> None:
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)]
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


def test_there_are_commands_in_the_docs() -> None:
    assert len(commands()) >= 4


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} → {target}"


@pytest.mark.parametrize("example", ["own_router.py", pytest.param("capacity.py", marks=pytest.mark.slow)])
def test_every_example_runs(example: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {"own_router.py", "capacity.py"}


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
    rows = re.findall(r"^(\d+) +\d+ × TP\d+ +([\d,]+)", text, re.MULTILINE)
    return {int(gpus): int(users.replace(",", "")) for gpus, users in rows}
