"""What a trace format is, so that one file can add one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boundary.names import shortened
from boundary.registry import Registry
from workloads.errors import TraceError
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
    read: Callable[[Path, int], RequestTable]
    """The table of a file, given the trace's block size in tokens; TraceError if it breaks the format."""
    source: str
    """Who publishes traces in this format, and where it is described."""


def trace_formats() -> tuple[TraceFormat, ...]:
    """All formats, by name."""
    return tuple(TRACE_FORMATS.load(name).FORMAT for name in TRACE_FORMATS.names())


def find_format(path: Path) -> TraceFormat:
    """The format of a file, by its content."""
    head = _head(path)
    if not head.strip():
        raise TraceError(f"{path}: the file is empty; a trace needs at least one request")
    for trace_format in trace_formats():
        if trace_format.recognises(head):
            return trace_format
    known = "; ".join(f"{known.name}: {known.looks_like}" for known in trace_formats())
    first = shortened(head.splitlines()[0])
    raise TraceError(f"{path}: starts with '{first}', which no known trace format does ({known})")


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:
            head = file.read(_HEAD_CHARACTERS)
        if "\0" not in head:
            return head
        raise TraceError(f"{path}: not a text file; traces are CSV or JSON lines in UTF-8")
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not a text file; traces are CSV or JSON lines in UTF-8") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
