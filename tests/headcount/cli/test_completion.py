"""What a shell completes: commands, options, names of models, GPUs and workloads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from headcount.cli.main import cli
from kvcache.models.catalog import find_gpu, load_model
from tests.test_docs import ROOT

SCRIPT = """
COMP_WORDS=(headcount "$@")
COMP_CWORD=$#
_headcount_completion headcount
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    *before, last = words
    found = ShellComplete(cli, {}, "headcount", "_HEADCOUNT_COMPLETE").get_completions(before, last)
    return [item.value for item in found]


def test_commands_and_options_are_completed() -> None:
    assert completed("pl") == ["plan"]
    assert completed("calibrate", "re") == ["read", "record"]
    assert "--tensor-parallel-size" in completed("capacity", "--tensor")


def test_names_are_completed_also_the_last_of_a_list() -> None:
    assert "h100-sxm" in completed("memory", "--gpu", "h1")
    assert "l40s,h100-sxm" in completed("plan", "--gpu", "l40s,h1")
    assert completed("capacity", "--workload", "ra") == ["rag"]
    assert {"llama-3.1-8b", "llama-3.3-70b"} <= {*completed("plan", "--model", "llama-3")}


def test_what_is_completed_is_known() -> None:
    for name in completed("plan", "--model", "qwen3-"):
        load_model(name)
    for name in completed("plan", "--gpu", ""):
        find_gpu(name)


@pytest.mark.skipif(not shutil.which("bash"), reason="a shell")
def test_the_line_on_the_page_completes_in_bash() -> None:
    page = (ROOT / "docs" / "how-to" / "first-hour.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith('eval "$(_HEADCOUNT_COMPLETE=bash_source')]
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", line + SCRIPT, "bash", "capa"]
    done = subprocess.run(command, env={**os.environ, "PATH": scripts}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["capacity"]
