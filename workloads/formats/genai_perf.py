"""genai-perf's payloads: JSON lines of sessions with delays, without times."""

from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.json_rows import Milliseconds, Name, Tokens, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_AT_ONCE: Final = "the file has no arrival times: all sessions begin at once"


class _Line(Lenient, frozen=True):
    session_id: Name
    input_length: Tokens
    output_length: Tokens
    delay: Milliseconds = 0.0


def recognises(head: str) -> bool:
    """Whether the first line has a session and lengths, but no time."""
    first = first_object(head)
    return (
        {"session_id", "input_length", "output_length"} <= first.keys()
        and "timestamp" not in first
        and "hash_ids" not in first
    )


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """All sessions begin at once; a later turn comes `delay` milliseconds after the answer before it.

    `input_length` is a turn's own; before it the prompt has all of the session's earlier turns and answers.
    """
    rows, history = Rows(path, num_requests), dict[Name, int]()
    rows.note(_AT_ONCE)
    for place, line in json_rows(path, _Line, rows):
        prompt_tokens = history.get(line.session_id, 0) + int(line.input_length)
        request = Request(
            prompt_tokens=prompt_tokens,
            output_tokens=int(line.output_length),
            arrival_s=0.0,
            session=line.session_id,
            think_s=line.delay / 1e3,
        )
        rows.add(place, request)
        history[line.session_id] = prompt_tokens + request.output_tokens
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="genai_perf",
    looks_like="JSON lines with session_id, delay, input_length, output_length",
    recognises=recognises,
    read=read,
    is_by_time=False,
    source="triton-inference-server/perf_analyzer, genai-perf, payload files of session concurrency mode",
)
