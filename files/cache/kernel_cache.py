"""Compiled kernels on disk: private to their user, checked before they are loaded, compiled again where damaged.

Loading a kernel runs what lies in its file. A file is therefore read only if it and its folders belong to this user
and nobody else may write to them, and only if its checksum is that of its content.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from files.cache.private_folder import check_private_file, private_folder
from files.errors import HeadcountError
from files.outputs import cache_folder
from files.warn_once import warn_once

T = TypeVar("T")

_COMPILING = Path(__file__).parents[1] / "compiling"
_CHECKSUM_BYTES = hashlib.sha256().digest_size
_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link is followed, no pipe waited for
_DURATION = "10 s to a minute"
_LONGEST_WAIT_S = 300.0  # for a process that compiles: 5 times what a busy machine takes


def _tell_unkept(place: object, error: OSError) -> None:
    kept = f"compiled kernels cannot be kept in {place} ({error.strerror or error})"
    warn_once(f"{kept}, so each run compiles them again; name a folder of your own in HEADCOUNT_CACHE_DIR")


@cache
def sources_digest(sources: Path) -> str:
    """A kernel's own file does not tell that a kernel which it calls has changed, so all of them name the folder.

    So does how they are compiled and called.
    """
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')}".encode())
    for path in (*sorted(sources.rglob("*.py")), *sorted(_COMPILING.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _folder(base: Path, sources: Path) -> Path | None:
    try:
        return private_folder(base, "kernels", sources_digest(sources))
    except OSError as error:
        _tell_unkept(error.filename or base, error)
        return None


def _read(path: Path) -> bytes:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _OPEN_FLAGS)) as file:
        check_private_file(os.fstat(file.fileno()), path)
        return file.read()


def _write(path: Path, content: bytes) -> None:
    """Put a file in place as one whole, so that no other process sees half of it."""
    descriptor, temporary = tempfile.mkstemp(prefix=path.stem, suffix=".part", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _locked(path: Path, tell_of_wait: Callable[[], None]) -> Iterator[None]:
    """While no other process holds this lock; without one where there can be none, or after the longest wait."""
    try:
        import fcntl  # noqa: PLC0415  Windows has none: there each process compiles

        lock = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
    except (ImportError, OSError):
        yield
        return
    try:
        until = time.monotonic() + _LONGEST_WAIT_S
        with suppress(OSError):  # file systems without locks
            while not _taken(lock, fcntl) and time.monotonic() < until:
                tell_of_wait()
                time.sleep(0.05)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough where a child was forked meanwhile
        os.close(lock)


def _taken(lock: int, fcntl: Any) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class KernelCache:
    """One function's machine code, in one file for each types of its arguments: a checksum, then the content.

    `source` is the function's file. `kind` tells apart what is compiled from the same function. `sources` is the folder
    of all kernels that it may call. With `announced`, a compilation is announced.
    """

    def __init__(self, name: str, source: Path | None, kind: str, sources: Path, *, announced: bool = False) -> None:
        self._name, self._source = re.sub(r"[^\w.]", "_", name), source
        self._kind, self._sources, self._announced = kind, sources, announced
        self._damage: str | None = None  # what the file lacked that is now compiled again

    @classmethod
    def of(cls, function: Callable[..., Any], kind: str, sources: Path, *, announced: bool = False) -> "KernelCache":
        """The cache of a function; one with a closure is not kept, since what that holds is in no file."""
        source = None if function.__closure__ else Path(function.__code__.co_filename)
        return cls(f"{function.__module__}.{function.__qualname__}", source, kind, sources, announced=announced)

    def folder(self) -> Path | None:
        """The private folder of its kernels; None where none are kept."""
        return None if self._source is None else _folder(cache_folder().absolute(), self._sources)

    def read(self, types: object, load: Callable[[bytes], T]) -> T | None:
        """What `load` makes of the content kept for these types; None where there is none that it can load."""
        key, path = self._place(types)
        if path is not None:
            try:
                content = _read(path)
                if content[:_CHECKSUM_BYTES] != _checksum(key, content[_CHECKSUM_BYTES:]):
                    raise HeadcountError("its content is damaged")
                return load(content[_CHECKSUM_BYTES:])
            except FileNotFoundError:
                pass
            except Exception as error:  # whatever is wrong with a kernel, it can be compiled again
                self._damage = getattr(error, "strerror", None) or str(error)
        self._announce(path)
        return None

    def write(self, types: object, content: bytes) -> None:
        """Keep the content for these types."""
        key, path = self._place(types)
        if path is None:
            return
        try:
            _write(path, _checksum(key, content) + content)
        except OSError as error:
            _tell_unkept(path.parent, error)
        else:
            if self._damage:
                warn_once(f"a compiled kernel in {path.parent} was discarded and compiled again: {self._damage}")
        self._damage = None

    @contextmanager
    def compiled_by_one(self, types: object) -> Iterator[None]:
        """Of processes that need a kernel which is not there yet, one compiles it; the others wait and load it."""
        _, path = self._place(types)
        if path is None or path.exists():
            yield
            return
        with _locked(path.with_suffix(".lock"), lambda: self._announce(path)):
            yield

    def _announce(self, path: Path | None) -> None:
        if self._announced:
            once = "" if path is None else " for this machine, once"
            warn_once(f"compiling the simulation core{once}; {_DURATION}")

    def _place(self, types: object) -> tuple[bytes, Path | None]:
        """What the kernel depends on, as a digest, and its file; no file for a function that is not from one."""
        base = self.folder()
        if base is None or self._source is None:
            return b"", None
        try:
            source = self._source.read_bytes()
        except OSError:
            return b"", None
        on = (sys.implementation.cache_tag, sys.platform, _host(), self._kind, self._name, source, types)
        key = hashlib.sha256(repr(on).encode())
        return key.digest(), base / f"{self._name}-{key.hexdigest()[:16]}.kernel"


@cache
def _host() -> tuple[object, ...]:
    """The system for which machine code is made; it runs on every processor of the architecture."""
    return platform.machine(), platform.libc_ver(), os.environ.get("NUMBA_OPT")


def _checksum(key: bytes, content: bytes) -> bytes:
    digest = hashlib.sha256(key)
    digest.update(content)
    return digest.digest()
