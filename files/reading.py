"""Files of text, read whole or by lines, of bounded size."""

import codecs
import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ELOOP, EPERM
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO

from files.dependencies import record_dependency
from files.errors import HeadcountError
from files.limits import how_to_raise, limits
from files.names import shortened

Purpose = Literal["settings_bytes", "result_bytes"]
"""The limit that a file's size is held to."""
_GZIP = b"\x1f\x8b"
_DAMAGED_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
_PIECE_BYTES = 1 << 20
STANDARD_INPUT = Path("-")
"""The path that stands for it; a file of that name is ./- in a shell, and an absolute path here."""
_readable: list[tuple[Path, ...]] = []  # the last one holds: folders outside of which nothing is read


class InputError(HeadcountError):
    """What came from outside cannot be used; one line with file, place, what was found, what is allowed."""


def read_text(
    path: Path, purpose: Purpose = "settings_bytes", *, damaged: Literal["strict", "replace"] = "strict"
) -> str:
    """The whole file as text in UTF-8, with or without a byte-order mark, unpacked if it is gzip.

    Bytes that are `damaged` may be replaced, as in a log. Raises InputError where the file is missing, no ordinary one,
    too large, not text, or damaged gzip.
    """
    with _opened(path) as file, _unpacked(path, file) as plain:
        raw = _read_bounded(path, plain, purpose)
    try:
        return raw.decode("utf-8-sig", damaged)
    except UnicodeDecodeError:
        raise not_text(path) from None


@contextmanager
def text_lines(path: Path) -> Iterator[TextIO]:
    """The file to be read line by line, whatever its size. Raises InputError as `read_text`, also while it is read."""
    with _opened(path) as file, _unpacked(path, file) as plain:
        try:
            yield io.TextIOWrapper(_BoundedLines(path, plain), encoding="utf-8-sig", newline="")
        except UnicodeDecodeError:
            raise not_text(path) from None


def text_blocks(path: Path, block_bytes: int = 4 << 20) -> Iterator[bytes]:
    """The file as it stands, in pieces that end where a line does. Raises InputError as `text_lines`."""
    most, rest = limits().line_bytes, b""
    with _opened(path) as file, _unpacked(path, file) as plain:
        while piece := plain.read(block_bytes):
            if b"\0" in piece:
                raise not_text(path)
            piece = rest + piece
            if len(piece) > most and max(map(len, piece.split(b"\n"))) > most:
                raise _long_line(path, most)
            lines, end, rest = piece.rpartition(b"\n")
            if end:
                yield _checked_text(path, lines + end)
        if rest:
            yield _checked_text(path, rest)


def begins_with(path: Path, mark: bytes) -> bool:
    """Whether these are the file's first bytes. Raises InputError where there is no ordinary file."""
    with _opened(path) as file:
        return file.read(len(mark)) == mark


def not_text(path: Path) -> InputError:
    """The error for bytes that are no text."""
    return InputError(f"{shown(path)}, line {_damaged_line(path)}: not a text file in UTF-8")


def _damaged_line(path: Path) -> int:
    """The first line that is not UTF-8 or cannot be unpacked. Reads the file again, so only errors ask for it."""
    line, decoder = 1, codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        plain = gzip.GzipFile(fileobj=file) if packed else file
        try:
            while piece := plain.read1(_PIECE_BYTES):
                text, zero, _ = piece.partition(b"\0")
                decoder.decode(text)
                line += text.count(b"\n")
                if zero:
                    return line
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            return line + error.object.count(b"\n", 0, error.start)
        except _DAMAGED_GZIP:
            pass
    return line


def shown(path: Path | str) -> str:
    """A path in a message."""
    return shortened(str(path), 300)


def unreadable(path: Path, error: Exception) -> InputError:
    """The error for a path that the system refuses, or that is a server's address."""
    if address := re.match(r"(https?):/+(.*)", str(path)):
        url = shortened("://".join(address.groups()), 300)
        return InputError(
            f"{url} is a server's address, not a file; watch the server with "
            f"'headcount calibrate record --url {url} --out FOLDER', or save its /metrics to a file and give that"
        )
    is_loop = getattr(error, "errno", None) == ELOOP
    reason = "it is a loop of links" if is_loop else getattr(error, "strerror", None) or str(error)
    return InputError(f"{shown(path)} cannot be read: {reason.lower()}")


def check_access(found: os.stat_result, path: Path, *, owners: tuple[int, ...] = (), closed: int = 0o022) -> None:
    """Raise OSError unless `path` is this user's, or of one of `owners`, and has none of the `closed` mode bits.

    Windows has neither owners' numbers nor mode bits; there, a user's folders are private by default.
    """
    if not hasattr(os, "geteuid"):
        return
    if found.st_uid not in (os.geteuid(), *owners):
        raise OSError(EPERM, "it belongs to another user", str(path))
    if found.st_mode & closed:
        raise OSError(EPERM, "other users may write to it", str(path))


@contextmanager
def reads_confined_to(*folders: Path) -> Iterator[None]:
    """Read files in these folders alone, wherever a name or a link leads: for names that come from strangers."""
    _readable.append(tuple(each for folder in folders for each in (folder.absolute(), folder.resolve())))
    try:
        yield
    finally:
        _readable.pop()


def check_confined(path: Path) -> None:
    """Raise InputError for a file that may not be read, before anything is looked at, even whether it is there.

    A way up, or to somebody's home, is refused as well: it would tell whether a folder, or a user, is there.
    """
    if not _readable:
        return
    leads_away = ".." in path.parts or str(path).startswith("~")
    if leads_away or not all(_is_readable(way) for way in (path.absolute(), path.resolve())):
        raise InputError(f"{shown(path)} is not one of the files that may be read here; upload it")


def _is_readable(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _readable[-1])


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """An ordinary file, or InputError: to open a pipe may wait for ever, to read a device never ends."""
    try:
        check_confined(path)
        if path == STANDARD_INPUT:
            record_dependency(path)
            yield io.BytesIO(_whole(sys.stdin))
            return
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "a pipe or a device"
            raise InputError(f"{shown(path)} is {what}; give an ordinary file")
        if path.resolve().is_relative_to("/proc"):  # some of them never end
            raise InputError(f"{shown(path)} is a file of the kernel; give an ordinary file")
        record_dependency(path)
        with path.open("rb") as file:
            yield file
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and not str(error).startswith("embedded null"):
            raise
        raise unreadable(path, error) from None


@cache
def _whole(stream: TextIO) -> bytes:
    """Standard input, which can be read but once; at most one byte more than the largest result may have."""
    return stream.buffer.read(int(limits().result_bytes) + 1)


@contextmanager
def _unpacked(path: Path, file: BinaryIO) -> Iterator[BinaryIO | gzip.GzipFile]:
    packed = file.read(2) == _GZIP
    file.seek(0)
    try:
        yield gzip.GzipFile(fileobj=file) if packed else file
    except _DAMAGED_GZIP:
        where = f"{shown(path)}, line {_damaged_line(path)}"
        raise InputError(f"{where}: its gzip data is cut off or damaged here; copy the file again") from None


class _BoundedLines(io.BufferedReader):
    """Bytes that are refused where they are no text, or where a line would fill the memory."""

    def __init__(self, path: Path, file: Any) -> None:
        super().__init__(file)
        self._path, self._line_bytes, self._most = path, 0, limits().line_bytes

    def read1(self, size: int = -1, /) -> bytes:
        piece = super().read1(size)
        if b"\0" in piece:
            raise not_text(self._path)
        after = len(piece) - piece.rfind(b"\n") - 1
        self._line_bytes = after if after < len(piece) else self._line_bytes + after
        if self._line_bytes > self._most:
            raise _long_line(self._path, self._most)
        return piece


def _long_line(path: Path, most: float) -> InputError:
    return InputError(f"{shown(path)}: has a line of more than {most:,.0f} bytes {how_to_raise('line_bytes')}")


def _checked_text(path: Path, piece: bytes) -> bytes:
    if not piece.isascii():
        try:
            piece.decode()
        except UnicodeDecodeError:
            raise not_text(path) from None
    return piece


def _read_bounded(path: Path, file: BinaryIO | gzip.GzipFile, purpose: Purpose) -> bytes:
    most, pieces, size = getattr(limits(), purpose), list[bytes](), 0
    while piece := file.read(_PIECE_BYTES):
        if b"\0" in piece:  # weights may be larger than memory
            raise not_text(path)
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise InputError(f"{shown(path)} is larger than {most:,.0f} bytes {how_to_raise(purpose)}")
    return b"".join(pieces)
