"""The code, the packages and the processor that computed a simulation: others may round differently."""

import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_FOLDERS = ("boundary", "kvcache", "workloads", "simulator")
_PACKAGES = ("numpy", "scipy", "numba", "llvmlite")
_SETTINGS = ("NUMBA_", "NPY_")  # environment variables that change how numbers are computed
_PROCESSOR = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")


@dataclass(frozen=True)
class Origin:
    """Two equal ones give the same bytes for the same task."""

    code: str
    machine: str


@cache
def origin() -> Origin:
    """That of this process."""
    code = hashlib.sha256(repr([sys.version, *map(version, _PACKAGES)]).encode())
    for path in (path for name in _FOLDERS for path in sorted((_ROOT / name).rglob("*.py"))):
        content = path.read_bytes()
        code.update(f"{path.relative_to(_ROOT).as_posix()} {len(content)} ".encode() + content)
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(_SETTINGS))
    machine = hashlib.sha256(repr([platform.system(), platform.machine(), _processor(), settings]).encode())
    return Origin(code.hexdigest(), machine.hexdigest())


def _processor() -> str:
    """Its name and its features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines if line.startswith(_PROCESSOR))
