"""Every damage to every format of traces: one error with file and line, or a count that the answer shows."""

from __future__ import annotations

import gzip
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from files.reading import InputError
from tests.workloads.formats.example_traces import EXAMPLES, Example, lines
from tests.workloads.formats.test_trace_formats import check
from workloads.load import load_workload
from workloads.traces.trace import Trace
from workloads.traces.trace_file import TraceFile
from workloads.traces.trace_format import trace_formats


@dataclass(frozen=True)
class Known:
    """A right file, how it is read, and what its last row has."""

    example: Example
    answer: str
    """Name of the field or column of the answer's tokens."""
    time: str = ""
    """Of a time of arrival, if requests have one and stand in its order."""
    id: str = ""
    """Of what no two rows may have in common."""
    dates: tuple[str, str] | None = None
    """A date of the last row, and the same written with a zone, or without."""
    how: dict[str, str] = field(default_factory=dict)
    is_document: bool = False
    """Whether it is one JSON value over many lines, in which a place is named by its path."""

    @property
    def is_csv(self) -> bool:
        return self.example.text.lstrip()[:1] not in "{["


CSV = "when,in,out\n2025-01-01 00:00:00,300,40\n2025-01-01 00:00:02.5,4000,7\n2025-01-01 00:00:03,70,1000\n"
LOG = "".join(
    f'::1 - - [10/Oct/2025:13:55:3{second} +0200] "POST /v1 HTTP/1.1" 200 in={10 + second} out={second + 1}\n'
    for second in range(3)
)
OBJECTS = lines(*({"t": 5 + k, "usage": {"in": 30 + k, "out": 4 + k}} for k in range(3)))
FILES = {
    "azure": Known(
        EXAMPLES["azure"], "GeneratedTokens", "TIMESTAMP",
        dates=("10:01:00.1000001", "10:01:00.1000001+00:00"),
    ),
    "burstgpt": Known(EXAMPLES["burstgpt"], "Response tokens", "Timestamp"),
    "mooncake": Known(EXAMPLES["mooncake"], "output_length", "timestamp"),
    "bailian": Known(EXAMPLES["bailian"], "output_length", "timestamp", "chat_id"),
    "ragpulse": Known(EXAMPLES["ragpulse"], "output_length", "timestamp"),
    "weka": Known(EXAMPLES["weka"], "out", id="id"),
    "vidur": Known(EXAMPLES["vidur"], "num_decode_tokens", "arrived_at"),
    "llmservingsim": Known(EXAMPLES["llmservingsim"], "output_toks", "arrival_time_ns"),
    "tracelab": Known(EXAMPLES["tracelab"], "output_tokens", id="round_index", dates=("05:40:40.000Z", "05:40:40.000")),
    "tracelab_replay": Known(EXAMPLES["tracelab_replay"], "output_len", id="round_idx"),
    "dynamo": Known(EXAMPLES["dynamo"], "output_tokens", "request_received_ms"),
    "blis": Known(EXAMPLES["blis"], "output_tokens", "arrival_time_us", "request_id"),
    "otel": Known(
        EXAMPLES["otel"], "gen_ai.usage.output_tokens",
        dates=("10:00:09.000000", "10:00:09.000000+00:00"), is_document=True,
    ),
    "openai_batch": Known(EXAMPLES["openai_batch"], "completion_tokens", id="custom_id"),
    "genai_perf": Known(EXAMPLES["genai_perf"], "output_length"),
    "columns of CSV": Known(
        Example(CSV, [0, 2.5, 3], [300, 4000, 70], [40, 7, 1000]), "out", "when",
        dates=("00:00:03", "00:00:03Z"), how={"columns": "time=when,prompt=in,output=out"},
    ),
    "columns of JSON lines": Known(
        Example(OBJECTS, [0, 1, 2], [30, 31, 32], [4, 5, 6]), "out", "t",
        how={"columns": "time=t,prompt=usage.in,output=usage.out"},
    ),
    "a log": Known(
        Example(LOG, [0, 1, 2], [10, 11, 12], [1, 2, 3]), "out",
        how={"log_pattern": r"\[(?P<time>[^]]+)\].* in=(?P<prompt>\S+) out=(?P<output>\S+)"},
    ),
}  # fmt: skip


def read(path: Path, known: Known) -> Trace | str:
    """The trace, or why it is refused."""
    try:
        found = load_workload(TraceFile(path, **known.how))
    except InputError as error:
        return str(error)
    assert isinstance(found, Trace)
    return found


def outcome(folder: Path, name: str, raw: bytes) -> tuple[Path, Trace | str]:
    path = folder / "trace"
    path.write_bytes(raw)
    return path, read(path, FILES[name])


def assert_refused(found: Trace | str, *parts: str) -> None:
    assert isinstance(found, str), "it is read"
    assert "\n" not in found
    for part in parts:
        assert part in found


def assert_told(found: Trace | str, known: Known, line: int) -> None:
    """An error with its line, or a request less and the count of those that are left out."""
    if isinstance(found, str):
        assert "\n" not in found
        assert re.search(r"trace[:,] spans\[\d\]" if known.is_document else rf"trace, line {line}\b", found), found
        return
    assert found.num_requests < len(known.example.prompt)
    assert re.match(r"left out of the trace: [1-9]", found.notes[0])


def test_every_format_that_is_text_is_damaged_here() -> None:
    assert {each.name for each in trace_formats()} - FILES.keys() == {"parquet", "servegen", "sharegpt"}


# The same


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("coat", ["mark", "returns", "packed", "empty lines at the end", "no last line end"])
def test_a_file_is_the_same_in_another_coat(tmp_path: Path, name: str, coat: str) -> None:
    raw = FILES[name].example.text.replace("\r", "").encode()
    changed = {
        "mark": b"\xef\xbb\xbf" + raw,
        "returns": raw.replace(b"\n", b"\r\n"),
        "packed": gzip.compress(raw),
        "empty lines at the end": raw.rstrip(b"\n") + b"\n\n\n",
        "no last line end": raw.rstrip(b"\n"),
    }
    _, found = outcome(tmp_path, name, changed[coat])
    assert isinstance(found, Trace), found
    check(found, FILES[name].example)


# What is there, and wrong


def last_row(known: Known) -> tuple[str, str, int]:
    """What comes before the last row that is a request, that row with what comes after it, and its line."""
    text = known.example.text.rstrip()
    if known.is_document:
        return "", text, 0
    whole = text.split("\n")
    row = len(whole) - (2 if "timeout,late" in text or "cancelled" in text else 1)
    return "\n".join(whole[:row]) + "\n" * (row > 0), "\n".join(whole[row:]), row + 1


def with_answer(known: Known, change: Callable[[str, str], str]) -> tuple[str, int]:
    """The text with another last answer, or its field's name: `change` takes both; and the line."""
    before, row, line = last_row(known)
    if not known.is_csv:
        place = (row if known.is_document else row.partition("\n")[0]).rindex(f'"{known.answer}"')
        found = re.compile(rf'"({re.escape(known.answer)})": (\d+)').match(row, place)
        assert found is not None
        return before + row[:place] + change(*found.groups()) + row[found.end() :], line
    if known.how.get("log_pattern"):
        return before + re.sub(r"out=(\d+)", lambda found: f"out={change('', found[1])}", row), line
    names = before.partition("\n")[0].rstrip("\r").split(",")
    cells = row.split("\n")[0].split(",")
    place = names.index(known.answer) + len(cells) - len(names)
    cells[place] = change("", cells[place].rstrip("\r"))
    return before + "\n".join([",".join(cells), *row.split("\n")[1:]]), line


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("wrong", ["-3", "NaN", "Infinity", "1e300", "2.5", '"x"', "[1]", "99999999999", "null"])
def test_a_wrong_number_is_told(tmp_path: Path, name: str, wrong: str) -> None:
    known = FILES[name]
    text, line = with_answer(known, lambda key, _: f'"{key}": {wrong}' if key else wrong)
    assert_told(outcome(tmp_path, name, text.encode())[1], known, line)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_field_or_column_is_told(tmp_path: Path, name: str) -> None:
    known = FILES[name]
    if known.is_csv and "log_pattern" not in known.how:
        text, line = known.example.text.replace(known.answer, "another", 1), 1
    else:
        text, line = with_answer(known, lambda _, value: f'"another": {value}')
    _, found = outcome(tmp_path, name, text.encode())
    assert_told(found, known, line)


@pytest.mark.parametrize("name", FILES)
def test_a_torn_last_line_is_told(tmp_path: Path, name: str) -> None:
    known = FILES[name]
    text = known.example.text.rstrip()
    torn = text[: text.rindex("\n") + 6] if "\n" in text and not known.is_document else text[: len(text) // 2]
    _, found = outcome(tmp_path, name, torn.encode())
    if known.is_document or "\n" not in text:
        where = f"line {torn.count(chr(10)) + 1}, column " if known.is_document else "column "
        assert_refused(found, f"trace, {where}", "is not JSON: it is empty or cut off")
    else:
        assert_told(found, known, torn.count("\n") + 1)


@pytest.mark.parametrize("name", FILES)
def test_bytes_that_are_no_text_are_told(tmp_path: Path, name: str) -> None:
    raw = FILES[name].example.text.rstrip().encode()
    for packed in (False, True):
        damaged = raw + b"\xff"
        _, found = outcome(tmp_path, name, gzip.compress(damaged) if packed else damaged)
        assert_refused(found, f"trace, line {raw.count(10) + 1}: not a text file in UTF-8")


@pytest.mark.parametrize("name", FILES)
def test_packed_data_that_is_cut_off_is_told(tmp_path: Path, name: str) -> None:
    raw = FILES[name].example.text.encode()
    _, found = outcome(tmp_path, name, gzip.compress(raw)[:-9])
    assert isinstance(found, str)
    assert re.search(r"trace, line \d+: its gzip data is cut off or damaged", found)


@pytest.mark.parametrize("name", [name for name, known in FILES.items() if known.dates is not None])
def test_dates_of_which_some_have_a_zone_are_told(tmp_path: Path, name: str) -> None:
    known = FILES[name]
    assert known.dates is not None
    assert known.example.text.count(known.dates[0]) == 1
    _, found = outcome(tmp_path, name, known.example.text.replace(*known.dates).encode())
    assert_refused(found, "with a time zone in all rows or in none")
    assert_told(found, known, last_row(known)[2])


# What is there, and in another place


@pytest.mark.parametrize("name", [name for name, known in FILES.items() if known.time])
def test_rows_that_are_not_in_order_of_time_are_counted(tmp_path: Path, name: str) -> None:
    known = FILES[name]
    head, *rows = known.example.text.rstrip().replace("\r", "").split("\n")
    rows = rows if known.is_csv else [head, *rows]
    for given, backwards in ((rows, False), (rows[::-1], True)):
        text = "\n".join([head, *given] if known.is_csv else given) + "\n"
        _, found = outcome(tmp_path, name, text.encode())
        assert isinstance(found, Trace), found
        times = [time for time in found.table.arrival_s.tolist() if not math.isnan(time)]
        early = sum(time < max(times[: place + 1]) for place, time in enumerate(times))
        told = [note for note in found.notes if "not in order of time" in note]
        assert told == (
            [f"{early} of {len(times)} rows are not in order of time; each request comes at its own time"] * (early > 0)
        )
        assert early or not backwards or name in ("mooncake", "ragpulse", "blis")


@pytest.mark.parametrize("name", [name for name, known in FILES.items() if known.id])
def test_an_id_that_is_there_twice_is_told(tmp_path: Path, name: str) -> None:
    """The last row again."""
    known = FILES[name]
    before, row, line = last_row(known)
    row = row.split("\n")[0]
    _, found = outcome(tmp_path, name, f"{before}{row}\n{row}\n".encode())
    assert_refused(found, f"trace, line {line + 1}: {known.id} ", "is there twice")


# No file


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_or_an_empty_one_is_told(tmp_path: Path, name: str) -> None:
    known = FILES[name]
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    assert_refused(read(folder, known), "folder is a folder; give an ordinary file")
    assert_refused(read(pipe, known), "pipe is a pipe or a device; give an ordinary file")
    for raw in (b"", b"\n\n", b"\xef\xbb\xbf"):
        assert_refused(outcome(tmp_path, name, raw)[1], "trace")
    if known.is_csv and "log_pattern" not in known.how:
        header = known.example.text.partition("\n")[0]
        assert_refused(outcome(tmp_path, name, header.encode())[1], "trace", "has no rows")
