"""Readers of files that users already have, found by name: one file each, imported when asked for.

A reader is a module with `LOOKS_LIKE` (what marks such a file, in words), `recognizes(path, head)` and `read(path)`.
`head` is the file's first JSON object, or its first characters where it is no JSON. `read` gives `MeasuredRun`s, for a
log of steps `Recording`s, and raises HeadcountError that names the path. A reader outside this package is given as
`package.module:Name`, an object with the same three attributes, or lies in `readers/` of a folder in HEADCOUNT_PATH.
"""

from pathlib import Path
from typing import Protocol

from calibrate.measured_run import MeasuredRun
from calibrate.readers.parsing.figures import most_of
from calibrate.readers.parsing.files import Head, head_of
from calibrate.readers.parsing.rows import MOST_TOKENS
from calibrate.recording import Recording
from files.errors import HeadcountError
from files.names import UnknownNameError
from files.registry import Registry


class Reader(Protocol):
    """What a module of this package offers."""

    LOOKS_LIKE: str

    def recognizes(self, path: Path, head: Head) -> bool: ...
    def read(self, path: Path) -> list[MeasuredRun] | list[Recording]: ...


READERS = Registry(what="format", section="readers", folder=Path(__file__).parent, package=__name__)


def reader(format_name: str) -> Reader:
    """The reader of that name, or of `module:Name` outside this package. Raises `UnknownNameError`."""
    found = READERS.load(format_name)
    missing = [part for part in ("LOOKS_LIKE", "recognizes", "read") if not hasattr(found, part)]
    if missing:
        raise UnknownNameError(f"no format {format_name!r}: it has no {' and no '.join(missing)}; add it")
    with READERS.running(format_name):
        if not (isinstance(found.LOOKS_LIKE, str) and callable(found.recognizes) and callable(found.read)):
            raise HeadcountError("LOOKS_LIKE is no text, or recognizes(path, head) or read(path) is no function")
    reader_: Reader = found
    return reader_


def find_format(path: Path) -> str:
    """The format of a file, by its content. Raises HeadcountError that says what was found and what can be read."""
    head = head_of(path)
    for name in READERS.names():
        found = reader(name)
        with READERS.running(name, path):
            if found.recognizes(path, head):
                return name
    known = "; ".join(f"{name}: {reader(name).LOOKS_LIKE}" for name in READERS.names())
    raise HeadcountError(f"{path}: {_described(head)}, which no known format does; known formats: {known}")


def read_file(path: Path, format_name: str | None = None) -> list[MeasuredRun] | list[Recording]:
    """All that a file holds: runs, or recordings of steps. Raises HeadcountError where it cannot be read."""
    name = find_format(path) if format_name is None else format_name
    found = reader(name)
    with READERS.running(name, path):
        return _checked(path, found.read(path))


def _checked(path: Path, found: list[MeasuredRun] | list[Recording]) -> list[MeasuredRun] | list[Recording]:
    """What a reader gives. Raises HeadcountError where it is something else, or tells nothing."""
    if not isinstance(found, list) or not all(isinstance(each, MeasuredRun | Recording) for each in found):
        raise HeadcountError("read(path) must return a list of MeasuredRun or of Recording")
    runs = [run for run in found if isinstance(run, MeasuredRun)]
    if not found:
        raise HeadcountError(f"{path}: it holds no run; give the file of a run that sent requests")
    for run in runs:
        _check_figures(path, run)
    if runs and not any(_tells_something(run) for run in runs):
        reasons: dict[str, int] = {}
        for run in runs:
            reasons = {name: reasons.get(name, 0) + run.excluded.get(name, 0) for name in {**reasons, **run.excluded}}
        left_out = ", ".join(f"{count:,} {name}" for name, count in reasons.items()) or "it sent none"
        raise HeadcountError(f"{path}: no request of it can be used ({left_out}); give a run whose requests finished")
    return found


def read_measured(path: Path, format_name: str | None = None) -> list[MeasuredRun]:
    """The measured runs of a file. Raises HeadcountError where it cannot be read, or holds steps instead."""
    found = read_file(path, format_name)
    runs = [run for run in found if isinstance(run, MeasuredRun)]
    if len(runs) < len(found):
        raise HeadcountError(f"{path}: holds engine steps, not requests; give a benchmark's result")
    return runs


def read_recordings(path: Path, format_name: str | None = None) -> list[Recording]:
    """The recordings of steps in a file, one per engine. Raises HeadcountError where it holds requests instead."""
    found = read_file(path, format_name)
    recordings = [recording for recording in found if isinstance(recording, Recording)]
    if len(recordings) < len(found):
        raise HeadcountError(f"{path}: holds requests, not engine steps; give a log of iterations")
    return recordings


def _check_figures(path: Path, run: MeasuredRun) -> None:
    """Raises HeadcountError for a figure or a length that no run has."""
    for name, value in run.aggregates.items():
        most = most_of(name)
        if not 0 <= value <= most:
            allowed = "at least 0" if value < 0 else f"at most {most:,g}"
            raise HeadcountError(f"{path}: {name} is {value:g}, which is impossible; it must be {allowed}")
    for name in ("input_len", "output_len"):
        if not 0 <= run.load.get(name, 0) <= MOST_TOKENS:
            raise HeadcountError(
                f"{path}: {name} is {run.load[name]:g} tokens per request, which is impossible; it can be 0 to "
                f"{MOST_TOKENS:,}"
            )


def _tells_something(run: MeasuredRun) -> bool:
    """Whether a run has requests, figures of its own, or at least a server's settings."""
    if run.requests is not None:
        return len(run.requests) > 0
    return any(name != "num_requests" for name in run.aggregates) or bool(run.options and not run.excluded)


def _described(head: Head) -> str:
    if isinstance(head, str):
        first = head.strip().splitlines()[0]
        return f"starts with '{first[:60]}{'…' if len(first) > 60 else ''}'"
    names = ", ".join(str(name)[:30] for name in list(head)[:8])
    return f"its JSON has the keys {names}{' …' if len(head) > 8 else ''}" if names else "its JSON object is empty"
