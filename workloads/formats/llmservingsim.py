"""LLMServingSim's datasets: JSON lines of requests, or of agents' sessions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from files.schema import Lenient
from workloads.formats.parsing.json_rows import Name, Nanoseconds, Tokens, first_object, json_rows
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_BLOCK_SIZE: Final = 16


class _Call(Lenient, frozen=True):
    input_toks: Tokens
    output_toks: Tokens
    tool_duration_ns: Nanoseconds = 0.0


class _Line(Lenient, frozen=True):
    arrival_time_ns: Nanoseconds
    input_toks: Tokens | None = None
    output_toks: Tokens | None = None
    input_tok_ids: list[int] | None = None
    session_id: Name | None = None
    sub_requests: list[_Call] | None = None


def recognises(head: str) -> bool:
    """Whether the first line has nanoseconds of arrival, and tokens or calls."""
    first = first_object(head)
    return "arrival_time_ns" in first and not {"input_toks", "sub_requests"}.isdisjoint(first)


def read(path: Path, block_size: int | None, num_requests: int | None) -> Recorded:
    """A session's first call comes at its arrival, each other when the tools after the call before it are done.

    Prompts whose token ids are there in full share what is the same in them, in blocks of 16 tokens.
    """
    rows = Rows(path, num_requests)
    for number, (place, line) in enumerate(json_rows(path, _Line, rows)):
        if line.sub_requests is None and (line.input_toks is None or line.output_toks is None):
            raise rows.refuse(place, "has neither input_toks and output_toks nor sub_requests; give one or the other")
        for request in (
            _session(line, number) if line.sub_requests is not None else [_single(line, block_size or _BLOCK_SIZE)]
        ):
            if rows.num_wanted > 0:
                rows.add(place, request)
    return rows.recorded()


def _session(line: _Line, number: int) -> Iterator[Request]:
    think_s = 0.0
    for call in line.sub_requests or ():
        yield Request(
            prompt_tokens=int(call.input_toks),
            output_tokens=int(call.output_toks),
            arrival_s=line.arrival_time_ns / 1e9,
            session=number,
            think_s=think_s,
        )
        think_s = call.tool_duration_ns / 1e9


def _single(line: _Line, size: int) -> Request:
    tokens, prompt_tokens = line.input_tok_ids or [], int(line.input_toks or 0)
    are_all = len(tokens) == prompt_tokens
    ids = [hash(tuple(tokens[start : start + size])) for start in range(0, len(tokens) - size + 1, size)]
    return Request(
        prompt_tokens=prompt_tokens,
        output_tokens=int(line.output_toks or 0),
        arrival_s=line.arrival_time_ns / 1e9,
        ids=ids if are_all else (),
        block_size=size,
    )


FORMAT: Final = TraceFormat(
    name="llmservingsim",
    looks_like="JSON lines with arrival_time_ns, input_toks, output_toks or sub_requests",
    recognises=recognises,
    read=read,
    source="casys-kaist/LLMServingSim, dataset/*.jsonl, MIT (Cho et al., LLMServingSim, IISWC 2024)",
)
