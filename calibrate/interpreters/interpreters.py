"""Interpreters that have a real vLLM."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boundary.files import check_access
from boundary.outputs import cache_folder
from boundary.private_folder import folder_bytes
from calibrate.interpreters.interpreter_build import (
    Say,
    Steps,
    build,
    environment,
    last_line,
    move,
    require_disk,
    require_python,
)
from calibrate.interpreters.recipe import RELEASE, find_recipe, release_key, require_release

IMPORT_VLLM = "import vllm; print(vllm.__version__)"
# vLLM may miss a package only in its engine, server or command; the name `vllm` is what its own commands look up.
IMPORT_ALL = (
    "import importlib.metadata as m; m.version('vllm'); from vllm import LLM; "
    "from vllm.v1.core.sched.scheduler import Scheduler; import vllm.entrypoints.cli.serve; " + IMPORT_VLLM
)
IMPORT_TIMEOUT_S = 600  # 8 s on an idle machine; the first import from a cold disk takes minutes
BUILD_STEPS = 6  # how often `install` says what it is doing


@dataclass(frozen=True)
class Interpreter:
    """An installed one; `version` is vLLM's."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its executable, for `-m` or a script."""
        return self.folder / "bin" / "python"

    def size_bytes(self) -> int:
        """The sum of its files."""
        return folder_bytes(self.folder)


def interpreters_folder() -> Path:
    """Where they live: `vllm` in the user's cache folder, which HEADCOUNT_CACHE_DIR overrides."""
    return cache_folder().expanduser().absolute() / "vllm"


def installed() -> list[Interpreter]:
    """Every installed one, oldest release first; a folder has its release's name only once it is complete."""
    found = [Interpreter(path.name, path) for path in interpreters_folder().glob("*") if RELEASE.match(path.name)]
    return sorted(found, key=lambda each: release_key(each.version))


def interpreter_for(version: str | None, python: Path | None) -> Path:
    """The Python to run vLLM's code with: `python` if given, else the installed release, else the newest installed.

    A given `python` is run once to see that it imports vLLM. Raises `ValueError` where none is, or another release.
    """
    if version is not None:
        require_release(version)
    if python is not None:
        has = imported_version(python)
        if version is not None and has.split("+")[0] != version:
            raise ValueError(f"{python} has vLLM {has}, not {version}; leave the release out, or give another Python")
        return python.absolute()
    found = [each for each in installed() if version in {None, each.version}]
    if not found:
        here = ", ".join(each.version for each in installed())
        what = f"vLLM {version} is not installed" if version else "no vLLM is installed"
        install = "headcount vllm install" + (f" --version {version}" if version else "")
        raise ValueError(f"{what}{f' ({here} is)' if here else ''}; run '{install}', or give a Python that has it")
    _require_own(found[-1])
    if not found[-1].python.exists():
        raise ValueError(f"the Python under vLLM {found[-1].version} is gone; run {_again(found[-1].version)}")
    return found[-1].python


def _require_own(found: Interpreter) -> None:
    """Raise ValueError where another user could have changed what is about to be run."""
    for folder in (interpreters_folder(), found.folder):
        try:
            check_access(folder.stat(), folder, owners=(0,), closed=stat.S_IWOTH)
        except OSError as error:
            raise ValueError(
                f"{folder}: {error.strerror}, so its vLLM is not run; install it again, with a folder of your own in "
                "HEADCOUNT_CACHE_DIR"
            ) from None


def imported_version(python: Path, code: str = IMPORT_VLLM) -> str:
    """The release that `python` imports, with an empty vLLM cache, which would hide what is missing.

    Raises `ValueError` with the import's own error.
    """
    if not python.is_file() or not os.access(python, os.X_OK):
        raise ValueError(f"{python} is not a Python interpreter; give the bin/python of an environment that has vLLM")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        own = {"VLLM_CACHE_ROOT": cache, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        try:
            done = subprocess.run(
                [str(python.absolute()), "-c", code], capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, cwd=cache, timeout=IMPORT_TIMEOUT_S, env={**environment(), **own},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"{python} did not import vLLM within {IMPORT_TIMEOUT_S / 60:.0f} minutes") from None
        except OSError as error:
            raise ValueError(f"{python} does not run ({error.strerror}); give another environment's") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise ValueError(f"{python} cannot import vLLM ({last_line(done.stderr)})")
    return last_line(done.stdout)


def install(
    version: str, *, python_base: Path | None = None, index_url: str | None = None, say: Say = lambda _: None
) -> Interpreter:
    """Build an environment for a release, or find the one that is there; a second process waits for the first.

    `python_base` is the Python it is built from, `index_url` where torch's CPU build is; `say` hears each step.
    Raises `ValueError` naming the step that failed; then nothing is installed.
    """
    recipe = find_recipe(version)
    folder = interpreters_folder()
    made = Interpreter(version, folder / version)
    with _locked(folder, say):
        if made.folder.exists():
            say(f"vLLM {version} is already installed; importing it")
            _check(made, f"run {_again(version)}")
            return made
        base = python_base or Path(sys.executable)
        require_python(base, recipe, version)
        require_disk(folder, recipe)
        with tempfile.TemporaryDirectory(prefix=".installing-", dir=folder, ignore_cleanup_errors=True) as staging:
            staged = Interpreter(version, Path(staging) / version)
            log = folder / f"install-{version}.log"
            log.write_text("", encoding="utf-8")
            build(staged.folder, recipe, Steps(version, log, say), base, index_url)
            say("importing vLLM")
            _check(staged, f"no import, so nothing was installed; see {log}")
            move(staged.folder, made.folder)
        log.unlink()
    return made


def remove(version: str, *, say: Say = lambda _: None) -> int:
    """Delete an installed release; gives the bytes that were freed. Raises `ValueError` where it is not installed."""
    folder = interpreters_folder()
    found = {each.version: each for each in installed()}
    if version not in found:
        raise ValueError(f"vLLM {version[:60]!r} is not installed; installed: {', '.join(found) or 'none'}")
    with _locked(folder, say):
        freed = found[version].size_bytes()
        doomed = Path(tempfile.mkdtemp(prefix=".removing-", dir=folder))
        found[version].folder.rename(doomed / version)  # what is half deleted must not look installed
        shutil.rmtree(doomed)
    return freed


def _check(interpreter: Interpreter, what_to_do: str) -> None:
    try:
        has = imported_version(interpreter.python, IMPORT_ALL)
    except ValueError as error:
        raise ValueError(f"{error}: {what_to_do}") from None
    if has.split("+")[0] != interpreter.version:
        raise ValueError(f"{interpreter.python} has vLLM {has}, not {interpreter.version}: {what_to_do}")


@contextmanager
def _locked(folder: Path, say: Say) -> Iterator[None]:
    """One install or removal at a time; the lock ends with its process, so that what it finds half done is nobody's."""
    try:
        import fcntl  # noqa: PLC0415  Windows has none, neither has it a vLLM
    except ImportError:
        raise ValueError("vLLM runs on Linux or macOS; install it there") from None
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another install to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in [*folder.glob(".installing-*"), *folder.glob(".removing-*")]:
            shutil.rmtree(left, ignore_errors=True)
        yield


def _again(version: str) -> str:
    return f"'headcount vllm remove {version}', then 'headcount vllm install --version {version}'"
