"""Bailian traces of Qwen's service: JSON lines of chats with block hashes."""

from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.json_rows import Seconds, Tokens, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_BLOCK_SIZE: Final = 16
_NO_PARENT: Final = -1


class _Line(Lenient, frozen=True):
    chat_id: int
    timestamp: Seconds
    input_length: Tokens
    output_length: Tokens
    parent_chat_id: int = _NO_PARENT
    hash_ids: list[int] | None = None


def read(path: Path, block_size: int | None, num_requests: int | None) -> Recorded:
    """Every chat arrives at its `timestamp` (seconds), and goes on from its parent, if that is in the file.

    `hash_ids` name blocks of 16 tokens, the last perhaps partial.
    """
    rows, orphans = Rows(path, num_requests), 0
    for place, line in json_rows(path, _Line, rows):
        if line.chat_id in rows:
            raise rows.refuse(place, f"chat_id {line.chat_id} is there twice; each must have its own")
        orphans += line.parent_chat_id != _NO_PARENT and line.parent_chat_id not in rows
        request = Request(
            prompt_tokens=int(line.input_length),
            output_tokens=int(line.output_length),
            arrival_s=line.timestamp,
            session=line.chat_id,
            continues=line.parent_chat_id,
            ids=line.hash_ids or (),
            block_size=block_size or _BLOCK_SIZE,
            few_ids=True,
        )
        rows.add(place, request)
    if orphans:
        rows.note(
            f"{orphans:,} of {len(rows):,} chats go on from one that does not stand before them in the file; what they "
            "share is what their block ids say"
        )
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="bailian",
    looks_like="JSON lines with chat_id, parent_chat_id, timestamp, input_length, output_length",
    recognises=lambda head: {"chat_id", "parent_chat_id"} <= first_object(head).keys(),
    read=read,
    source="alibaba-edu/qwen-bailian-usagetraces-anon, Apache-2.0 (Wang et al., KVCache in the Wild, ATC 2025)",
)
