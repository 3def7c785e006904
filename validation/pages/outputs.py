"""The commands that docs pages show, with what they print.

A block of `sh` or `python` that a block of `text` follows is an example: the text is what it prints.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from validation.markdown import DOCS

ROOT = DOCS.parent
EXAMPLE = re.compile(r"```(sh|python)\n([^`]*?)```\n\n```text\n(.*?)```", re.DOTALL)
COLUMNS = 120  # as wide as a page shows without scrolling
_PROGRESS = re.compile(r"^[^\n]*: \d+ of \d+ after [^\n]*\n", re.MULTILINE)  # what a slow machine adds
_INSTALLS = re.compile(r"^(?:python3 -m venv .*?&& \.venv/bin/(?=headcount )|pip install .*\n)")
_SERVES = re.compile(r"^(?:\w+=\S+ )*headcount (?:web|emulate)\b.*\s*\Z", re.MULTILINE)


def pages_with_outputs() -> list[Path]:
    """Every page that shows an example."""
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in pages if EXAMPLE.search(page.read_text(encoding="utf-8"))]


def examples(page: str) -> Iterator[tuple[str, str, str]]:
    """Language, code and shown output of each example."""
    for match in EXAMPLE.finditer(page):
        yield match[1], match[2], match[3]


def with_outputs(page: str) -> str:
    """The page with what its examples print now, one after the other in one folder."""
    with _folder() as folder:
        return EXAMPLE.sub(
            lambda found: f"```{found[1]}\n{found[2]}```\n\n```text\n{_printed(found[1], found[2], folder)}```", page
        )


def output(language: str, code: str) -> str:
    """What an example prints, run in a fresh folder beside the repository's `examples`.

    Raises RuntimeError if it fails.
    """
    with _folder() as folder:
        return _printed(language, code, folder)


@contextmanager
def _folder() -> Iterator[Path]:
    """With `examples` in it, and the files of the folder that HEADCOUNT_TRACES names: public traces are not shipped."""
    traces = os.environ.get("HEADCOUNT_TRACES")
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        for path in Path(traces).resolve().iterdir() if traces else ():
            (folder / path.name).symlink_to(path)
        yield folder


def _printed(language: str, code: str, folder: Path) -> str:
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "COLUMNS": str(COLUMNS)}
    environment.pop("HEADCOUNT_PATH", None)
    command = ["sh", "-c", _INSTALLS.sub("", code)] if language == "sh" else [sys.executable, "-c", code]
    shown = _until_it_serves if language == "sh" and _SERVES.search(code) else _all_lines
    text = shown(command, folder, environment)
    return "\n".join(line.rstrip() for line in _PROGRESS.sub("", text).strip("\n").splitlines()) + "\n"


def _all_lines(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[-1]}ends with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _until_it_serves(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """What a server says until it names its address; it is stopped then."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as server:
        assert server.stdout is not None, "its output is a pipe"
        lines: list[str] = []
        while not lines or (lines[-1] and "://" not in lines[-1]):
            lines.append(server.stdout.readline())  # "" where it ends
        if lines[-1]:
            os.killpg(server.pid, signal.SIGTERM)
    if not lines[-1]:
        raise RuntimeError(f"{command[-1]}ends instead of serving:\n{''.join(lines)}")
    return "".join(lines)
