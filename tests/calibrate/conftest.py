"""A real vLLM for the tests that need one."""

import os
from pathlib import Path

import pytest

from calibrate.conformance.interpreters.interpreters import install, interpreter_for


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """A real vLLM: the one given, the one installed, in continuous integration one that is installed now."""
    given = os.environ.get("HEADCOUNT_VLLM_PYTHON")
    try:
        return interpreter_for(None, Path(given) if given else None)
    except ValueError as reason:
        if not os.environ.get("CI"):
            pytest.skip(f"no real vLLM here: {reason}")
    return install("0.32.0").python
