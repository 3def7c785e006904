"""The code, the packages and the processor that computed a simulation: others may round differently."""

import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import time

_ROOT, _LOADED_S = Path(__file__).parents[3], time()
_FOLDERS = ("files", "kvcache", "workloads", "simulator")
_PACKAGES = ("numpy", "scipy", "numba", "llvmlite")
_SETTINGS = ("NUMBA_", "NPY_")  # environment variables that change how numbers are computed
_PROCESSOR = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")


@dataclass(frozen=True)
class Origin:
    """Two equal ones give the same bytes for the same task."""

    code: str
    machine: str


@cache
def origin(folders: tuple[str, ...] = _FOLDERS, files: str = "*.py") -> Origin:
    """That of this process: of all `files` in these folders."""
    return _origin(_ROOT, _LOADED_S, folders, files)


def _origin(root: Path, loaded_s: float, folders: tuple[str, ...] = _FOLDERS, files: str = "*.py") -> Origin:
    """Of code below `root`, loaded then; of no other process where its sources are missing, or newer."""
    code = hashlib.sha256(repr([sys.version, *map(version, _PACKAGES)]).encode())
    found = [path for name in folders for path in sorted((root / name).rglob(files))]
    paths = [path for path in found if path.is_file() and path.parent.name != "__pycache__"]
    for path in paths:
        content = path.read_bytes()
        code.update(f"{path.relative_to(root).as_posix()} {len(content)} ".encode() + content)
    if not paths or max(path.stat().st_mtime for path in paths) > loaded_s:  # what runs is not what lies there
        code.update(os.urandom(32))
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
