"""Pictures of a page's commands: the chart that answers each, and its answer in words for who cannot see it.

A block of `sh` with one command that a picture follows is illustrated: the picture is what `--report FILE.svg` writes.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from validation.markdown import DOCS

ROOT = DOCS.parent
ILLUSTRATED = re.compile(r"```sh\n(headcount [^\n`]*)\n```\n\n!\[([^\]]*)\]\(([^)]*\.svg)\)")


def illustrated(page: Path) -> Iterator[tuple[str, str, Path]]:
    """Command, answer in words and picture of each."""
    for found in ILLUSTRATED.finditer(page.read_text(encoding="utf-8")):
        yield found[1], found[2], (page.parent / found[3]).resolve()


def drawn(command: str) -> tuple[str, str]:
    """A command's answer in words, and its picture. Raises RuntimeError where it fails."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        _run(folder, *shlex.split(command)[1:], "--report", "answer.json", exits=(0, 1, 3))
        _run(folder, "report", "answer.json", "-o", "answer.svg", exits=(0,))
        first = json.loads((Path(folder) / "answer.json").read_text(encoding="utf-8"))["report"]["summary"]
        return _plain(first["answer"]), (Path(folder) / "answer.svg").read_text(encoding="utf-8")


def _plain(text: str) -> str:
    return re.sub(r"[\[\]]", "", text)


def _run(folder: str, *words: str, exits: tuple[int, ...]) -> None:
    command = [sys.executable, "-m", "headcount", *words]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode not in exits:
        raise RuntimeError(f"{shlex.join(words)} ends with {done.returncode}:\n{done.stderr}")


def draw(page: Path, *, missing_alone: bool = False) -> None:
    """Write the page's pictures, and their words into the page, one by one."""
    for command, words, picture in illustrated(page):
        if missing_alone and words and picture.exists():
            continue
        print(f"draws: {picture.name}", flush=True)
        answer, svg = drawn(command)
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(svg, encoding="utf-8")
        text = page.read_text(encoding="utf-8")
        before = f"{command}\n```\n\n!["
        page.write_text(text.replace(f"{before}{words}](", f"{before}{answer}]("), encoding="utf-8")
