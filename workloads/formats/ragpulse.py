"""RAGPulse: JSON lines of a question-answering service, with ids of what each prompt is made of.

A line of a trace that was put together with the lengths of these parts has flat `hash_ids`, and their `block_tokens`.
"""

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
    hash_ids: list[int] | dict[str, object] | None = None
    block_tokens: list[int] | None = None


def recognises(head: str) -> bool:
    """Whether the first line names the parts of a prompt, or has a length for each of its ids."""
    first = first_object(head)
    ids = first.get("hash_ids")
    return (isinstance(ids, dict) and "sys_prompt" in ids) or (isinstance(ids, list) and "block_tokens" in first)


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """`timestamp` says seconds; sessions keep their times. Without `block_tokens` prompts share nothing."""
    rows = Rows(path, num_requests)
    for place, line in json_rows(path, _Line, rows):
        arrival_s = read_number(str(line.timestamp))
        if arrival_s is None:
            raise rows.refuse(
                place, f"timestamp is {str(line.timestamp)[:40]!r}; it must be a number of seconds, at least 0"
            )
        ids = line.hash_ids if isinstance(line.hash_ids, list) else ()
        if ids and not line.block_tokens:
            raise rows.refuse(place, "hash_ids without block_tokens; give the tokens of each id")
        request = Request(
            prompt_tokens=int(line.input_length),
            output_tokens=int(line.output_length),
            arrival_s=arrival_s,
            ids=ids,
            block_tokens=(line.block_tokens or ()) if ids else (),
        )
        rows.add(place, request)
        if line.session_id is not None:
            rows.count_turn(line.session_id)
        if not ids:
            rows.note(_NO_LENGTHS)
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="ragpulse",
    looks_like="JSON lines with timestamp, input_length, output_length, hash_ids.sys_prompt or block_tokens",
    recognises=recognises,
    read=read,
    source="flashserve/RAGPulse, 0_trace.jsonl (Wang et al., RAGPulse, arXiv 2511.12979)",
)
