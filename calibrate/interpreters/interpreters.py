"""Interpreters that have a real engine: vLLM, or SGLang."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

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
from calibrate.interpreters.recipe import RELEASE, VLLM, Package, find_recipe, release_key, require_release
from files.cache.private_folder import folder_bytes
from files.errors import HeadcountError
from files.outputs import cache_folder
from files.reading import check_access

IMPORT_TIMEOUT_S = 600  # 8 s on an idle machine; the first import from a cold disk takes minutes
BUILD_STEPS = 6  # how often `install` says what it is doing


@dataclass(frozen=True)
class Interpreter:
    """An installed one; `version` is the engine's."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its executable, for `-m` or a script."""
        return self.folder / "bin" / "python"

    def size_bytes(self) -> int:
        """The sum of its files."""
        return folder_bytes(self.folder)


def interpreters_folder(package: Package = VLLM) -> Path:
    """Where they live: in a folder of the package's name in the cache folder, which HEADCOUNT_CACHE_DIR overrides."""
    return cache_folder().expanduser().absolute() / package.name


def installed(package: Package = VLLM) -> list[Interpreter]:
    """Every installed one, oldest release first; a folder has its release's name only once it is complete."""
    folders = interpreters_folder(package).glob("*")
    found = [Interpreter(path.name, path) for path in folders if RELEASE.match(path.name)]
    return sorted(found, key=lambda each: release_key(each.version))


def interpreter_for(version: str | None, python: Path | None, package: Package = VLLM, *, infers: bool = False) -> Path:
    """The Python to run the engine's code with: given, that of Headcount if it has the engine, or an installed one.

    The first two are run once to see that they import the package. Of those that are installed, it is the release, else
    the newest one. With `infers`, releases whose inference does not run on a CPU are passed over. Raises `ValueError`
    where none is left, or another release.
    """
    if version is not None:
        require_release(version, package)
    title = package.title
    python = python or _beside(version, package)
    if python is not None:
        has = imported_version(python, package=package)
        if version is not None and has.split("+")[0] != version:
            raise HeadcountError(
                f"{python} has {title} {has}, not {version}; leave the release out, or give another Python"
            )
        return python.absolute()
    everything = installed(package)
    able = [each for each in everything if not (infers and find_recipe(each.version, package).limit)]
    found = [each for each in able if version in {None, each.version}]
    if not found:
        here = ", ".join(each.version for each in everything)
        what = f"{title} {version} is not installed" if version else f"no {title} is installed"
        if infers and (version or everything):
            what = f"no {title} is installed whose inference runs on a CPU"
            version = None
        install = f"headcount {package.name} install" + (f" --version {version}" if version else "")
        raise HeadcountError(f"{what}{f' ({here} is)' if here else ''}; run '{install}', or give a Python that has it")
    _require_own(found[-1], package)
    if not found[-1].python.exists():
        again = _again(found[-1].version, package)
        raise HeadcountError(f"the Python under {title} {found[-1].version} is gone; run {again}")
    return found[-1].python


def _beside(version: str | None, package: Package) -> Path | None:
    """The Python that runs Headcount, if that release of the engine is installed beside it, as on a GPU server."""
    try:
        found = version_of(package.name).split("+")[0]
    except PackageNotFoundError:
        return None
    return Path(sys.executable) if version in {None, found} else None


def _require_own(found: Interpreter, package: Package) -> None:
    """Raise HeadcountError where another user could have changed what is about to be run."""
    for folder in (found.folder.parent, found.folder):
        try:
            check_access(folder.stat(), folder, owners=(0,), closed=stat.S_IWOTH)
        except OSError as error:
            raise HeadcountError(
                f"{folder}: {error.strerror}, so its {package.title} is not run; install it again, with a folder of "
                "your own in HEADCOUNT_CACHE_DIR"
            ) from None


def imported_version(python: Path, code: str | None = None, package: Package = VLLM) -> str:
    """The release that `python` imports, with an empty cache, which would hide what is missing.

    Raises `ValueError` with the import's own error.
    """
    title = package.title
    if not python.is_file() or not os.access(python, os.X_OK):
        raise HeadcountError(
            f"{python} is not a Python interpreter; give the bin/python of an environment that has {title}"
        )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        own = {package.cache_variable: cache, **dict(package.environment)}
        try:
            done = subprocess.run(
                [str(python.absolute()), "-c", code or package.import_version], capture_output=True, text=True,
                errors="replace", check=False, stdin=subprocess.DEVNULL, cwd=cache, timeout=IMPORT_TIMEOUT_S,
                env={**environment(), **own},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise HeadcountError(
                f"{python} did not import {title} within {IMPORT_TIMEOUT_S / 60:.0f} minutes"
            ) from None
        except OSError as error:
            raise HeadcountError(f"{python} does not run ({error.strerror}); give another environment's") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise HeadcountError(f"{python} cannot import {title} ({last_line(done.stderr)})")
    return last_line(done.stdout)


def install(
    version: str,
    *,
    package: Package = VLLM,
    python_base: Path | None = None,
    index_url: str | None = None,
    say: Say = lambda _: None,
) -> Interpreter:
    """Build an environment for a release, or find the one that is there; a second process waits for the first.

    `python_base` is the Python it is built from, `index_url` where torch's CPU build is; `say` hears each step.
    Raises `ValueError` naming the step that failed; then nothing is installed.
    """
    recipe = find_recipe(version, package)
    folder, what = interpreters_folder(package), f"{package.title} {version}"
    made = Interpreter(version, folder / version)
    with _locked(folder, say):
        if made.folder.exists():
            say(f"{what} is already installed; importing it")
            _check(made, package, f"run {_again(version, package)}")
            return made
        base = python_base or Path(sys.executable)
        require_python(base, recipe, what)
        require_disk(folder, recipe)
        with tempfile.TemporaryDirectory(prefix=".installing-", dir=folder, ignore_cleanup_errors=True) as staging:
            staged = Interpreter(version, Path(staging) / version)
            log = folder / f"install-{version}.log"
            log.write_text("", encoding="utf-8")
            build(staged.folder, recipe, Steps(package, version, log, say), base, index_url)
            say(f"importing {package.title}")
            _check(staged, package, f"no import, so nothing was installed; see {log}")
            move(staged.folder, made.folder)
        log.unlink()
    return made


def remove(version: str, *, package: Package = VLLM, say: Say = lambda _: None) -> int:
    """Delete an installed release; gives the bytes that were freed. Raises `ValueError` where it is not installed."""
    folder = interpreters_folder(package)
    found = {each.version: each for each in installed(package)}
    if version not in found:
        here = ", ".join(found) or "none"
        raise HeadcountError(f"{package.title} {version[:60]!r} is not installed; installed: {here}")
    with _locked(folder, say):
        freed = found[version].size_bytes()
        doomed = Path(tempfile.mkdtemp(prefix=".removing-", dir=folder))
        found[version].folder.rename(doomed / version)  # what is half deleted must not look installed
        shutil.rmtree(doomed)
    return freed


def _check(interpreter: Interpreter, package: Package, what_to_do: str) -> None:
    try:
        has = imported_version(interpreter.python, package.import_all, package)
    except ValueError as error:
        raise HeadcountError(f"{error}: {what_to_do}") from None
    if has.split("+")[0] != interpreter.version:
        raise HeadcountError(f"{interpreter.python} has {package.title} {has}, not {interpreter.version}: {what_to_do}")


@contextmanager
def _locked(folder: Path, say: Say) -> Iterator[None]:
    """One install or removal at a time; the lock ends with its process, so that what it finds half done is nobody's."""
    try:
        import fcntl  # noqa: PLC0415  Windows has none, neither has it an engine
    except ImportError:
        raise HeadcountError("vLLM and SGLang run on Linux; install them there") from None
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


def _again(version: str, package: Package) -> str:
    name = package.name
    return f"'headcount {name} remove {version}', then 'headcount {name} install --version {version}'"
