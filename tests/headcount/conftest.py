"""The command line, run in this process."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headcount.cli import main as cli

SHORT_ANSWERS = str(Path(__file__).parent / "short_answers.toml")  # a workload of few steps
FOUR_AT_ONCE: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.02, "max_model_len": 4096, "max_num_seqs": 4,
    "replications": 4, "store": False, "tensor_parallel_size": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


def figures(printed: str) -> dict[str, Any]:
    """What --json prints, without what only a report needs: there stands how it was asked."""
    found: dict[str, Any] = json.loads(printed)
    found.pop("report")
    return found


@pytest.fixture
def headcount(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`headcount("models", "--json")`: exit code, stdout, stderr."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["headcount", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        seen = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Ran(code=stopped.value.code, out=seen.out, err=seen.err)

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright; continuous integration installs one before."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium to look at pages with")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found[0])
        yield opened
        opened.close()
