"""A real vLLM for the tests that need one."""

import os
from pathlib import Path

import pytest

from calibrate.interpreters.interpreters import interpreter_for


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """A real vLLM: the one given, else the newest installed; continuous integration installs one before."""
    given = os.environ.get("HEADCOUNT_VLLM_PYTHON")
    try:
        return interpreter_for(None, Path(given) if given else None)
    except ValueError as reason:
        if os.environ.get("CI"):
            pytest.fail(f"no real vLLM here: {reason}")
        pytest.skip(f"no real vLLM here: {reason}")
