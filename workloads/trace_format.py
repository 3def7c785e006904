"""What a trace format is, so that one file can add one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from boundary.files import InputError, shown, text_lines
from boundary.limits import how_to_raise, limits
from boundary.names import one_line, shortened
from boundary.registry import Registry
from workloads.requests import RequestTable

_HEAD_CHARACTERS = 65_536
TRACE_FORMATS = Registry(
    what="trace format",
    section="trace_formats",
    folder=Path(__file__).parent / "formats",
    package="workloads.formats",
    needs=("FORMAT",),
)


@dataclass(frozen=True, kw_only=True)
class TraceFormat:
    """A trace format; each module of `workloads.formats` names its own FORMAT."""

    name: str
    looks_like: str
    """What marks such a file, for the message when no format knows one."""
    recognises: Callable[[str], bool]
    """Whether a text that begins so is meant as this format, even if something in it is wrong."""
    read: Callable[[Path, int, int | None], RequestTable]
    """The table of a file, given the trace's block size in tokens, and how many of its first rows are wanted, if not
    all; InputError if it breaks the format."""
    source: str
    """Who publishes traces in this format, and where it is described."""


def trace_formats() -> tuple[TraceFormat, ...]:
    """All formats, by name."""
    return tuple(map(_format, TRACE_FORMATS.names()))


def _format(name: str) -> TraceFormat:
    """A module's format, whose failures name the module."""
    found = TRACE_FORMATS.load(name).FORMAT
    with TRACE_FORMATS.running(name):
        if not isinstance(found, TraceFormat):
            raise ValueError("FORMAT is no TraceFormat")

    def recognises(head: str) -> bool:
        with TRACE_FORMATS.running(name):
            return bool(found.recognises(head))

    def read(path: Path, block_size: int, num_rows: int | None) -> RequestTable:
        with TRACE_FORMATS.running(name, path):
            table = found.read(path, block_size, num_rows)
            if not isinstance(table, RequestTable):
                raise ValueError("read returned no RequestTable")
            return table

    return replace(found, recognises=recognises, read=read)


def find_format(path: Path) -> TraceFormat:
    """The format of a file, by its content."""
    with text_lines(path) as file:
        head = file.read(_HEAD_CHARACTERS)
    if not head.strip():
        raise empty(path)
    for trace_format in trace_formats():
        if trace_format.recognises(head):
            return trace_format
    known = "; ".join(f"{known.name}: {known.looks_like}" for known in trace_formats())
    first = shortened(one_line(head.splitlines()[0]))
    raise InputError(f"{shown(path)}: starts with '{first}', which no known trace format does ({known})")


def empty(path: Path) -> InputError:
    """The error for a file without rows."""
    return InputError(f"{shown(path)}: the file is empty; a trace needs at least one request")


def check_rows(path: Path, num_rows: int) -> None:
    """Refuse a trace as soon as more than can be held has been read. Raises InputError."""
    if num_rows > limits().rows:
        most = f"{limits().rows:,.0f} rows {how_to_raise('rows')}"
        raise InputError(f"{shown(path)}: has more than {most}; replay its first with --num-requests N")
