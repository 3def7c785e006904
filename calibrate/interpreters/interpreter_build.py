"""How an environment with a real engine is built."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from calibrate.interpreters.recipe import Package, Recipe
from files.errors import HeadcountError

Say = Callable[[str], None]
STAND_INS = Path(__file__).parent / "stand_ins"
RANK = re.compile(r"^\[rank\d+\]: *")  # torch's, before each line of a worker
RAISED = re.compile(r"^[\w.]*(Error|Exception)\b")


@dataclass(frozen=True)
class Steps:
    """Runs an install's commands into one log."""

    package: Package
    version: str
    log: Path
    say: Say

    def run(self, what: str, command: Sequence[str]) -> None:
        """Raises `ValueError` with the last line of the output where the command fails."""
        self.say(what)
        if run_logged(command, self.log) != 0:
            last = last_line(self.log.read_text(encoding="utf-8", errors="replace"), prefer="ERROR: ")
            self.fail(f"{what}: {last}")

    def fail(self, why: str) -> NoReturn:
        """Raises `ValueError`."""
        raise HeadcountError(
            f"{self.package.title} {self.version} was not installed, {why}; all of it is in {self.log}"
        )


def run_logged(command: Sequence[str], log: Path) -> int:
    """A command's exit status; the command and its output are added to `log`."""
    with log.open("a", encoding="utf-8") as out:
        out.write("$ " + re.sub(r"//[^/@]*@", "//…@", " ".join(command)) + "\n")  # an index may need a password
        out.flush()
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False, env=environment()
        )
    return done.returncode


def build(folder: Path, recipe: Recipe, steps: Steps, base: Path, index_url: str | None) -> None:
    """What cannot be had is found out before anything large is downloaded."""
    pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    pip += ["--progress-bar", "off"]
    torch = [recipe.torch, *([f"--extra-index-url={index_url}"] if index_url else [])]
    bare = recipe.packages_without_dependencies(steps.version)
    plan = folder / "plan.json"
    steps.run("making an environment", [str(base), "-I", "-m", "venv", str(folder)])
    dry_run = ["--dry-run", "--no-deps", "--quiet", "--report", str(plan)]
    steps.run("looking for the packages", [*pip, *dry_run, *torch, *bare])
    if _is_gpu_build(plan):
        steps.fail(f"pip finds only the GPU build of {recipe.torch}: name the index of its CPU build by --index-url")
    plan.unlink()
    steps.run(f"installing {recipe.torch}", [*pip, *torch])
    title = steps.package.title
    steps.run(f"installing what {title} needs", [*pip, recipe.torch, *recipe.requirements])
    steps.run(f"installing {title} {steps.version}", [*pip, "--no-deps", *bare])
    for packages in folder.glob("lib/python3*/site-packages"):
        for name in recipe.stand_ins:
            shutil.copytree(STAND_INS / name, packages / name, dirs_exist_ok=True)
        if steps.package.is_found_by_another_name:
            _name(packages, steps.package.name, steps.version)


def _is_gpu_build(plan: Path) -> bool:
    """Whether pip's plan for torch brings NVIDIA's libraries, several GB of them."""
    planned = [item["metadata"] for item in json.loads(plan.read_text(encoding="utf-8"))["install"]]
    needs: list[str] = next((each.get("requires_dist", []) for each in planned if each["name"] == "torch"), [])
    return sys.platform == "linux" and any(need.startswith(("nvidia-", "cuda-")) for need in needs)


def _name(packages: Path, name: str, version: str) -> None:
    """vLLM looks itself up by this name, which its CPU build does not have; `+cpu` selects its CPU platform."""
    stub = packages / f"{name}-{version}.dist-info"
    stub.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}+cpu\n"
    (stub / "METADATA").write_text(text, encoding="utf-8")


def move(staged: Path, final: Path) -> None:
    """Scripts name their interpreter by its whole path, which the move changes."""
    old, new = os.fsencode(staged), os.fsencode(final)
    for path in [staged / "pyvenv.cfg", *(staged / "bin").iterdir()]:
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if old in content and b"\0" not in content:
                path.write_bytes(content.replace(old, new))
    staged.rename(final)


def require_python(base: Path, recipe: Recipe, what: str) -> None:
    """Raises `ValueError` where `base` is no Python that the recipe of `what` allows."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    first, last = recipe.python
    try:
        done = subprocess.run([str(base), "-I", "-c", code], capture_output=True, text=True, check=False)
    except OSError as error:
        raise HeadcountError(f"{base} does not run: {error.strerror}; give a Python {first} to {last}") from None
    found = done.stdout.strip()
    if done.returncode != 0 or not found:
        raise HeadcountError(f"{base} is not a Python interpreter; give a Python {first} to {last}")
    if not recipe.allows_python(found):
        raise HeadcountError(f"{base} is Python {found}; {what} takes {first} to {last}, give one by --python-base")


def require_disk(folder: Path, recipe: Recipe) -> None:
    """Raises `ValueError` where the disk has no room for it."""
    free = shutil.disk_usage(folder).free
    if free < recipe.disk_bytes:
        missing = f"{recipe.disk_bytes / 1e9:.1f} GB free, there are {free / 1e9:.1f} GB"
        raise HeadcountError(
            f"{folder} needs {missing}; free some space, or name another folder in HEADCOUNT_CACHE_DIR"
        )


def environment() -> dict[str, str]:
    """Ours without what would lead another Python to our packages, or pip to another place."""
    misleading = {"PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in misleading}


def last_line(text: str, prefer: str = "") -> str:
    """The last line that begins with `prefer`, else that names an exception (warnings follow it), else the last."""
    lines = [RANK.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    preferred = [line for line in lines if prefer and line.startswith(prefer)]
    raised = [line for line in lines if RAISED.match(line)]
    return (preferred or raised or lines or ["no output"])[-1].removeprefix(prefer)[:300]
