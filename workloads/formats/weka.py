"""Sessions of coding agents as kv-cache-tester has them: one JSON object per session, with block ids of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from files.schema import Lenient
from workloads.formats.parsing.json_rows import Name, Seconds, TokensOrNone, json_objects
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat, folder_files

_BLOCK_SIZE: Final = 64
_SUBAGENT: Final = "subagent"
_NO_CLOCK: Final = "sessions have no common clock: each begins at the start"


class _Call(Lenient, frozen=True):
    t: Seconds
    type: str = "n"
    prompt: TokensOrNone | None = msgspec.field(default=None, name="in")
    answer: TokensOrNone | None = msgspec.field(default=None, name="out")
    hash_ids: list[int] | None = None
    think_time: float | None = None
    requests: list["_Call"] | None = None


class _Session(Lenient, frozen=True):
    id: Name
    requests: list[_Call]
    block_size: TokensOrNone | None = None


def read(path: Path, block_size: int | None, num_requests: int | None) -> Recorded:
    """One session in a file, or one per line, or a folder of such files.

    A request comes `think_time` seconds after the answer before it. A sub-agent is a session of its own, which begins
    when its parent's marker does; its times count from there, unless they are later than the marker already.
    """
    rows = Rows(path, num_requests)
    num_sessions = 0
    for place, session in _sessions(path, rows):
        rows.check_new(place, "id", session.id)
        num_sessions += 1
        size = block_size or int(session.block_size or _BLOCK_SIZE)
        for told, request in _requests(session.requests, (place, session.id), 0.0):
            if rows.num_wanted <= 0:
                break
            if request.prompt_tokens and request.output_tokens:
                request.block_size, request.scope = size, (place, session.id)
                rows.add(f"{place}{told}", request)
            else:
                rows.leave_out("requests without tokens")
    if num_sessions > 1:
        rows.note(_NO_CLOCK)
    return rows.recorded()


def _sessions(path: Path, rows: Rows) -> Iterator[tuple[str, _Session]]:
    for file in folder_files(path) or [path]:
        for place, session in json_objects(file, _Session, rows):
            yield ", ".join(part for part in (file.name if file != path else "", place) if part), session


def _requests(calls: list[_Call], session: tuple[object, ...], start_s: float) -> Iterator[tuple[str, Request]]:
    for number, call in enumerate(calls, start=1):
        if call.type == _SUBAGENT:
            inner = call.requests or []
            begins_s = start_s + call.t if inner and inner[0].t < call.t else start_s
            yield from _requests(inner, (*session, number), begins_s)
            continue
        yield (
            f": requests[{number}]",
            Request(
                prompt_tokens=int(call.prompt or 0),
                output_tokens=int(call.answer or 0),
                arrival_s=start_s + call.t,
                session=session,
                think_s=max(call.think_time or 0.0, 0.0),
                ids=call.hash_ids or (),
                few_ids=True,
            ),
        )


FORMAT: Final = TraceFormat(
    name="weka",
    looks_like="JSON with id, hash_id_scope, requests: one session, one per line, or a folder of such files",
    recognises=lambda head: head.lstrip().startswith("{") and '"hash_id_scope"' in head and '"requests"' in head,
    read=read,
    is_by_time=False,
    source="callanjfox/kv-cache-tester, traces of coding agents' sessions (Weka, SemiAnalysis)",
)
