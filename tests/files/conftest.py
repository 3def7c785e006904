"""What tests of files share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from files.cache import kernel_cache
from files.warn_once import warn_once
from tests.files.kernel_machine import Machine


@pytest.fixture
def machine(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("HEADCOUNT_CACHE_DIR", str(tmp_path / "cache"))
    made = Machine(tmp_path, caplog, monkeypatch)
    yield made
    assert made.answer in (None, 42)
    warn_once.cache_clear()
    kernel_cache._folder.cache_clear()
