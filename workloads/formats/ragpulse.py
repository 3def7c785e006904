"""RAGPulse: JSON lines of a question-answering service, with ids of what each prompt is made of."""

from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.cells import read_number
from workloads.formats.parsing.json_rows import Tokens, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_NO_LENGTHS: Final = (
    "the lengths of RAGPulse's system prompts, passages and histories are in other files, which are not read: prompts "
    "share nothing, where an endless cache would find 31 % of their tokens"
)


class _Line(Lenient, frozen=True):
    timestamp: str | float
    input_length: Tokens
    output_length: Tokens
    session_id: str | int | None = None


def recognises(head: str) -> bool:
    """Whether the first line names the parts of a prompt."""
    ids = first_object(head).get("hash_ids")
    return isinstance(ids, dict) and "sys_prompt" in ids


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """`timestamp` is text that says seconds; sessions keep their times, and share nothing."""
    rows = Rows(path, num_requests)
    for place, line in json_rows(path, _Line, rows):
        arrival_s = read_number(str(line.timestamp))
        if arrival_s is None:
            raise rows.refuse(
                place, f"timestamp is {str(line.timestamp)[:40]!r}; it must be a number of seconds, at least 0"
            )
        request = Request(
            prompt_tokens=int(line.input_length), output_tokens=int(line.output_length), arrival_s=arrival_s
        )
        rows.add(place, request)
        if line.session_id is not None:
            rows.count_turn(line.session_id)
    rows.note(_NO_LENGTHS)
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="ragpulse",
    looks_like="JSON lines with timestamp, input_length, output_length, hash_ids.sys_prompt",
    recognises=recognises,
    read=read,
    source="flashserve/RAGPulse, 0_trace.jsonl (Wang et al., RAGPulse, arXiv 2511.12979)",
)
