"""The table that a trace's rows become while they are read."""

import math
from array import array
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from boundary.files import InputError, shown
from workloads.formats.parsing.content import NO_SPANS, Contents, Turn
from workloads.requests import NO_PREDECESSOR, OPEN_END, RequestTable
from workloads.tenants import tenancy_of_names
from workloads.traces.trace_format import Recorded, check_rows

_COLUMNS = {
    "arrival_s": "d", "follows": "q", "think_s": "d", "prompt_tokens": "i", "output_tokens": "i", "priority": "i",
    "span_start": "q", "span_count": "i", "span_content": "q", "span_end": "i",
}  # fmt: skip

_DTYPES = {"d": np.float64, "q": np.int64, "i": np.int32}


class Request(msgspec.Struct, kw_only=True, gc=False):
    """What one row of a trace says; times in seconds."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float | None = None
    """Needed where the request follows none."""
    session: Hashable = None
    """Its next row begins as this one did."""
    continues: Hashable = None
    """Another session that it begins as."""
    think_s: float | None = None
    """Since the end of the session's row before; None: it arrives at `arrival_s`."""
    priority: int = 0
    tenant: str | None = None
    ids: Sequence[int] = ()
    """Of the prompt's blocks."""
    block_size: int = 0
    """Tokens of a block."""
    few_ids: bool = False
    """Whether ids may be those of the first blocks alone."""
    scope: Hashable = None
    """Where equal ids are equal content."""
    prefix_tokens: int = 0
    """At least so many are those of the session's row before."""
    starts_with: tuple[Hashable, int] | None = None
    """A name of what other requests begin with, too, and its tokens."""


class Rows:
    """Rows in the order of the file, without those that are left out."""

    def __init__(self, path: Path, num_wanted: int | None = None) -> None:
        self._path, self._wanted = path, num_wanted
        self._columns: dict[str, array[Any]] = {name: array(code) for name, code in _COLUMNS.items()}
        self._last: dict[Hashable, tuple[int, Turn]] = {}
        self._contents = Contents()
        self._left_out: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self._block_size: int | None = None
        self._tenants: dict[str, int] = {}
        self._tenant_of = array("i")

    def __len__(self) -> int:
        return len(self._columns["arrival_s"])

    @property
    def num_wanted(self) -> float:
        """How many more are wanted."""
        return math.inf if self._wanted is None else self._wanted - len(self)

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Rows that are no requests to serve; the answer tells how many."""
        if count:
            self._left_out[reason] += count

    def note(self, text: str) -> None:
        """What the reader of an answer should know of the file; told once."""
        self._notes[text] = None

    def refuse(self, place: str, reason: str) -> InputError:
        return InputError(f"{shown(self._path)}{f', {place}' * bool(place)}: {reason}")

    def __contains__(self, session: Hashable) -> bool:
        """Whether the session has a row already."""
        return session in self._last

    def add(self, place: str, request: Request) -> None:
        """Raises InputError that names the place."""
        check_rows(self._path, len(self) + 1)
        if request.prompt_tokens + request.output_tokens >= OPEN_END:
            found = f"{request.prompt_tokens:,} + {request.output_tokens:,} tokens"
            raise self.refuse(place, f"{found}; they must stay below {OPEN_END:,}")
        row, _ = self._last.get(request.session, (NO_PREDECESSOR, None)) if request.session is not None else (-1, None)
        think_s, arrival_s = (request.think_s, math.nan) if row >= 0 else (None, request.arrival_s)
        if think_s is None:
            row, think_s, arrival_s = NO_PREDECESSOR, 0.0, request.arrival_s
        if arrival_s is None:
            raise self.refuse(place, "'timestamp' is missing; give it")
        values = (arrival_s, row, think_s, request.prompt_tokens, request.output_tokens, request.priority)
        turn = self._turn(place, request)
        if request.tenant is not None:
            self._tenant_of.append(self._tenants.setdefault(request.tenant, len(self._tenants)))
        for name, value in zip(_COLUMNS, values, strict=False):
            self._columns[name].append(value)
        self._add_spans(turn)
        if request.session is not None:
            self._last[request.session] = (len(self) - 1, turn)

    def _turn(self, place: str, request: Request) -> Turn:
        before = request.session if request.continues is None else request.continues
        _, previous = self._last.get(before, (0, None)) if before is not None else (0, None)
        prompt, output = request.prompt_tokens, request.output_tokens
        if request.ids:
            self._check_ids(place, request)
            self._block_size = request.block_size
            in_session = request.session is not None
            return self._contents.of_blocks(
                request.ids, request.block_size, prompt, output, previous, scope=request.scope, in_session=in_session
            )
        start = NO_SPANS
        if request.starts_with is not None:
            name, tokens = request.starts_with
            start = [(self._contents.named(name), tokens)] if tokens else NO_SPANS
        return self._contents.of_lengths(prompt, output, previous, request.prefix_tokens, start=start)

    def _check_ids(self, place: str, request: Request) -> None:
        found, size = len(request.ids), request.block_size
        full, partial = divmod(request.prompt_tokens, size)
        if found > full + bool(partial) or (found < full and not request.few_ids):
            allowed = f"{full:,} or {full + 1:,}" if partial else f"{full:,}"
            allowed = f"at most {full + bool(partial):,}" if request.few_ids else allowed
            told = f"{found:,} hash_ids for {request.prompt_tokens:,} tokens; with blocks of {size:,} there must be"
            raise self.refuse(place, f"{told} {allowed} (set --trace-block-size to the trace's own)")

    def _add_spans(self, turn: Turn) -> None:
        if turn.place < 0:
            turn.place = len(self._columns["span_content"])
            for content, end in turn.spans:
                self._columns["span_content"].append(content)
                self._columns["span_end"].append(end)
        self._columns["span_start"].append(turn.place)
        self._columns["span_count"].append(len(turn.spans))

    def recorded(self, *, from_first: bool = True) -> Recorded:
        """All rows; times count from the first arrival, unless the file's own zero is kept."""
        if not len(self):
            raise self._nothing()
        columns: dict[str, Any] = {
            name: np.frombuffer(column, _DTYPES[column.typecode]) for name, column in self._columns.items()
        }
        if from_first:
            columns["arrival_s"] = columns["arrival_s"] - np.nanmin(columns["arrival_s"])
        tenancy = tenancy_of_names(tuple(self._tenants), np.frombuffer(self._tenant_of, np.int32))
        return Recorded(table=RequestTable(**columns, tenancy=tenancy), notes=self.notes(), block_size=self._block_size)

    def _nothing(self) -> InputError:
        if not self._left_out:
            return self.refuse("", "has no rows; a trace needs at least one request")
        return self.refuse("", f"has no request to serve: {self._left_out_text()}")

    def notes(self) -> tuple[str, ...]:
        """What was left out, and what was taken for granted."""
        notes = list(self._notes)
        if self._left_out:
            notes.insert(0, f"left out of the trace: {self._left_out_text()}")
        if continued := self._contents.num_continued:
            notes.append(
                f"{continued:,} of {len(self):,} requests are taken as the next turn of the one whose block ids they "
                "go on from; they find its answer in the cache"
            )
        return tuple(notes)

    def _left_out_text(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self._left_out.items())
