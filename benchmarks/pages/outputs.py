"""The commands that docs pages show, with what they print.

A block of `sh` or `python` that a block of `text` follows is an example: the text is what it prints.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.markdown import DOCS

ROOT = DOCS.parent
EXAMPLE = re.compile(r"```(sh|python)\n([^`]*?)```\n\n```text\n(.*?)```", re.DOTALL)
COLUMNS = 120  # as wide as a page shows without scrolling
_PROGRESS = re.compile(r"^[^\n]*: \d+ of \d+ after [^\n]*\n", re.MULTILINE)  # what a slow machine adds
_INSTALLS = re.compile(r"^python3 -m venv .*?&& \.venv/bin/(?=headcount )")


def pages_with_outputs() -> list[Path]:
    """Every page that shows an example."""
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in pages if EXAMPLE.search(page.read_text(encoding="utf-8"))]


def examples(page: str) -> Iterator[tuple[str, str, str]]:
    """Language, code and shown output of each example."""
    for match in EXAMPLE.finditer(page):
        yield match[1], match[2], match[3]


def with_outputs(page: str) -> str:
    """The page with what its examples print now."""
    return EXAMPLE.sub(lambda found: f"```{found[1]}\n{found[2]}```\n\n```text\n{output(found[1], found[2])}```", page)


def output(language: str, code: str) -> str:
    """What an example prints, run in a fresh folder beside the repository's `examples`.

    Raises RuntimeError if it fails.
    """
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "COLUMNS": str(COLUMNS)}
    environment.pop("HEADCOUNT_PATH", None)
    command = ["sh", "-c", _INSTALLS.sub("", code)] if language == "sh" else [sys.executable, "-c", code]
    with TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
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
        raise RuntimeError(f"{code}ends with {done.returncode}:\n{done.stdout}")
    return "\n".join(line.rstrip() for line in _PROGRESS.sub("", done.stdout).strip("\n").splitlines()) + "\n"
