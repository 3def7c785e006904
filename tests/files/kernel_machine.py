"""One small kernel on a machine of its own, for tests of the kernel cache."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from files.cache import kernel_cache
from files.compiling import lowering
from files.warn_once import warn_once

SOURCE = "from simulator.core.jit import entry_point\n\n\n@entry_point\ndef triple(n):\n    return 3 * n\n"
COMPILES = "headcount: compiling the simulation core for this machine, once; 10 s to a minute"
COMPILES_EACH_TIME = "headcount: compiling the simulation core; 10 s to a minute"


class Machine:
    """One small kernel, compiled or loaded as by a new process each time it runs."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.base, self.source, self.caplog = folder / "cache", folder / "small.py", caplog
        self.source.write_text(SOURCE)
        self.answer: object = None
        self._compile, self._num_compiled = lowering.compile_entry_point, 0
        monkeypatch.setattr(lowering, "compile_entry_point", self._compiled)

    def _compiled(self, *asked: Any) -> Any:
        self._num_compiled += 1
        return self._compile(*asked)

    def plant(self) -> None:
        """Keep other machine code in the kernel's place, with the checksum that the cache would give it."""
        names: dict[str, Any] = {}
        exec("def triple(n):\n    return 3 * n + 1\n", names)
        self._compile, compile_entry_point = lambda _, *rest: compile_entry_point(names["triple"], *rest), self._compile
        self.run()
        self._compile = compile_entry_point

    def run(self, source: Path | None = None) -> tuple[bool, list[str]]:
        """Whether the kernel was loaded, and what was told."""
        warn_once.cache_clear()
        kernel_cache._folder.cache_clear()
        self.caplog.clear()
        self._num_compiled = 0
        spec = importlib.util.spec_from_file_location("small", source or self.source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.answer = module.triple(14)
        return not self._num_compiled, [record.getMessage() for record in self.caplog.records]

    @property
    def file(self) -> Path:
        (file,) = self.base.rglob("*triple*")
        return file


def unkept(place: Path, reason: str) -> str:
    told = f"headcount: compiled kernels cannot be kept in {place} ({reason}), so each run compiles them again"
    return f"{told}; name a folder of your own in HEADCOUNT_CACHE_DIR"
