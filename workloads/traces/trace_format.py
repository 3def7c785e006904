"""What a trace format is, so that one file can add one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from files.documents import parse_json
from files.errors import HeadcountError
from files.garbage import gc_relaxed
from files.limits import how_to_raise, limits
from files.names import one_line, shortened
from files.reading import InputError, begins_with, shown, text_lines
from files.registry import Registry
from workloads.requests import RequestTable

PARQUET_MARK = b"PAR1"
_HEAD_CHARACTERS = 65_536
TRACE_FORMATS = Registry(
    what="trace format",
    section="trace_formats",
    folder=Path(__file__).parents[1] / "formats",
    package="workloads.formats",
    needs=("FORMAT",),
)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a trace file holds."""

    table: RequestTable
    notes: tuple[str, ...] = ()
    """What was left out, and what was taken for granted."""
    block_size: int | None = None
    """Tokens that a block id names; None where there are none."""
    session_turns: tuple[int, ...] = ()
    """Requests of each session, where the file names sessions."""


@dataclass(frozen=True, kw_only=True)
class TraceFormat:
    """A trace format; each module of `workloads.formats` names its own FORMAT."""

    name: str
    looks_like: str
    """What marks such a file, for the message when no format knows one."""
    recognises: Callable[[str], bool]
    """Whether a text that begins so is meant as this format, even if something in it is wrong."""
    read: Callable[[Path, int | None, int | None], Recorded | RequestTable]
    """What a file holds, given the trace's block size in tokens, if not the format's own, and how many of its first
    rows are wanted, if not all; InputError if it breaks the format."""
    source: str
    """Who publishes traces in this format, and where it is described."""
    is_by_time: bool = True
    """Whether its rows are meant to stand in order of time; the answer tells how many do not."""

    def recorded(self, path: Path, block_size: int | None, num_rows: int | None) -> Recorded:
        """What `read` returns, also where it returns a table alone."""
        with gc_relaxed():
            found = self.read(path, block_size, num_rows)
        return Recorded(table=found) if isinstance(found, RequestTable) else found


def trace_formats() -> tuple[TraceFormat, ...]:
    """All formats, by name."""
    return tuple(map(trace_format, TRACE_FORMATS.names()))


def trace_format(name: str) -> TraceFormat:
    """The format of that name, whose failures name its module. Raises UnknownNameError."""
    TRACE_FORMATS.path(name)  # a file of that name, and no other code
    found = TRACE_FORMATS.load(name).FORMAT
    with TRACE_FORMATS.running(name):
        if not isinstance(found, TraceFormat):
            raise HeadcountError("FORMAT is no TraceFormat")

    def read(path: Path, block_size: int | None, num_rows: int | None) -> Recorded | RequestTable:
        recorded = found.read(path, block_size, num_rows)
        if not isinstance(recorded, Recorded | RequestTable):
            raise HeadcountError("read returned no RequestTable")
        return recorded

    guarded = TRACE_FORMATS.guarded
    return replace(found, recognises=guarded(name, found.recognises), read=guarded(name, read))


def find_format(path: Path) -> TraceFormat:
    """The format of a file, by its content, or of the first JSON file of a folder. Raises InputError."""
    head = _head(next(iter(folder_files(path)), path))
    for known in trace_formats():
        if known.recognises(head):
            return known
    first = head.lstrip().splitlines()[0]
    if first.lstrip().startswith("{") and first.strip() != "{":
        parse_json(first, f"{shown(path)}, line 1")
    names = ", ".join(each.name for each in trace_formats())
    raise InputError(
        f"{shown(path)}: starts with '{shortened(one_line(first))}', which no known trace format does. For a log, give "
        r"--log-pattern, such as --log-pattern 'in=(?P<prompt>\d+) out=(?P<output>\d+)', with a group (?P<time>…) if "
        "its lines have times; for CSV, Parquet or JSON, name the columns: --columns time=…,prompt=…,output=…. Known "
        f"formats: {names}"
    )


def folder_files(path: Path) -> list[Path]:
    """The JSON files of a folder in the order of their names; none where it is no folder."""
    return sorted(path.glob("*.json")) if path.is_dir() else []


def _head(path: Path) -> str:
    """The beginning of a file, at least its first line; of Parquet its mark alone."""
    if begins_with(path, PARQUET_MARK):
        return PARQUET_MARK.decode()
    with text_lines(path) as file:
        head = file.read(_HEAD_CHARACTERS)
        if "\n" not in head:
            head += file.readline()
    head = head.lstrip("\ufeff")
    if not head.strip():
        raise empty(path)
    return head


def empty(path: Path) -> InputError:
    """The error for a file without rows."""
    return InputError(f"{shown(path)}: the file is empty; a trace needs at least one request")


def check_rows(path: Path, num_rows: int) -> None:
    """Refuse a trace as soon as more than can be held has been read. Raises InputError."""
    if num_rows > limits().rows:
        most = f"{limits().rows:,.0f} rows {how_to_raise('rows')}"
        raise InputError(f"{shown(path)}: has more than {most}; replay its first with --num-requests N")
