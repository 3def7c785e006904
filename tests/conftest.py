"""Real engines for the tests that need one; for each test a store of its own."""

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import settings

from calibrate.interpreters.interpreters import interpreter_for
from calibrate.interpreters.recipe import SGLANG, VLLM, Package
from files.cache import row_store

TESTS = Path(__file__).parent

settings.register_profile("unhurried", settings(deadline=None))  # how fast an example runs says little
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """A real vLLM: the one given, else the newest installed; continuous integration installs one before."""
    return _real(VLLM, "HEADCOUNT_VLLM_PYTHON")


@pytest.fixture(scope="session")
def inferring_vllm_python() -> Path:
    """A real vLLM whose inference runs on a CPU: the newest release may be for GPUs alone."""
    return _real(VLLM, "HEADCOUNT_INFERRING_VLLM_PYTHON", infers=True)


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """A real SGLang, found in the same way."""
    return _real(SGLANG, "HEADCOUNT_SGLANG_PYTHON")


def _real(package: Package, variable: str, *, infers: bool = False) -> Path:
    given = os.environ.get(variable)
    try:
        return interpreter_for(None, Path(given) if given else None, package, infers=infers)
    except ValueError as reason:
        if os.environ.get("CI"):
            pytest.fail(f"no real {package.title} here: {reason}")
        pytest.skip(f"no real {package.title} here: {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what asks for a real engine as slow; puts tests in an order in which two workers seldom wait.

    Continuous integration runs slow tests after it has installed the engines, and the quick ones before.
    """
    items.sort(key=_turn)
    for item in items:
        if {"vllm_python", "inferring_vllm_python", "sglang_python"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)


FIRST = ("calibrate", "files", "kvcache", "validation", "workloads")


def _turn(item: pytest.Item) -> int:
    """mypy, which takes longest, and what hardly simulates first: meanwhile another worker compiles the core.

    Workers begin with equal shares of this order and take from each other's ends. Damaged input, whose time is
    bounded, comes last.
    """
    folder = item.path.relative_to(TESTS).parts[0]
    if "mypy" in item.name:
        return 0
    if folder == "fuzz":
        return 4
    return 1 if folder in FIRST else 2 if folder.endswith(".py") else 3


@pytest.fixture(autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulations kept by no other test, as many change constants that are code elsewhere, and not after it.

    A test of a search keeps up to 2 GB of them.
    """
    folder: list[Path] = []

    def cache_folder() -> Path:
        folder[:] = folder or [tmp_path_factory.mktemp("cache")]
        return folder[0]

    monkeypatch.setattr(row_store, "cache_folder", cache_folder)
    yield
    for path in folder:
        rmtree(path)
