"""The table that a trace's rows become while they are read."""

import math
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from files.limits import limits
from files.names import shortened
from files.reading import InputError, shown
from workloads.formats.parsing.uneven_blocks import UnevenBlocks
from workloads.requests import NO_PREDECESSOR, OPEN_END, Int32Array, IntArray, RequestTable
from workloads.tenants import tenancy_of_names
from workloads.traces.trace_format import Recorded, check_rows

_TIMES = ("arrival_s", "think_s")
_COUNTS = (
    "follows", "prompt_tokens", "output_tokens", "priority",
    "previous", "in_session", "root", "block_size", "ids_from", "prefix_tokens", "name", "name_tokens",
)  # fmt: skip
_OF_CONTENT = _COUNTS[4:]
_PACK_TIMES, _PACK_COUNTS = struct.Struct(f"{len(_TIMES)}d").pack, struct.Struct(f"{len(_COUNTS)}q").pack
_NONE = -1
_LEAST_ID = -(2**63)  # of those that an int64 holds; others get numbers that are no row's


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
    block_tokens: Sequence[int] = ()
    """Of each block, where they differ; then `block_size` is not looked at."""
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
        self._num_rows = 0
        self._times, self._counts = bytearray(), bytearray()  # row by row; an array's extend is a third as quick
        self._most = limits().rows
        self._last: dict[Hashable, int] = {}
        self._seen = set[tuple[Hashable, str | float]]()
        self._ids, self._num_ids, self._pack_ids = bytearray(), 0, dict[int, Callable[..., bytes]]()
        self._large_ids: dict[int, int] = {}
        """By place."""
        self._num_continued = 0
        """Requests that were found to go on from an earlier one by their block ids alone."""
        self._roots: dict[Hashable, int] = {}
        self._names: dict[Hashable, int] = {}
        self._left_out: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self._block_size: int | None = None
        self._uneven = UnevenBlocks()
        self._turns: Counter[Hashable] = Counter()
        """Rows of each session."""
        self._are_sessions = True
        """Whether the names of sessions are all that tells which rows go on from which."""
        self._tenants: dict[str, int] = {}
        self._tenant_of = array("i")

    def __len__(self) -> int:
        return self._num_rows

    @property
    def num_wanted(self) -> float:
        """How many more are wanted."""
        return math.inf if self._wanted is None else self._wanted - self._num_rows

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Rows that are no requests to serve; the answer tells how many."""
        if count:
            self._left_out[reason] += count

    def note(self, text: str) -> None:
        """What the reader of an answer should know of the file; told once."""
        self._notes[text] = None

    def refuse(self, place: str, reason: str) -> InputError:
        return InputError(f"{shown(self._path)}{f', {place}' * bool(place)}: {reason}")

    def check_new(self, place: str, name: str, value: str | float, *, within: Hashable = None) -> None:
        """Raise InputError where a row before has the same of that name (in its session, if one is given)."""
        if (within, value) in self._seen:
            raise self.refuse(place, f"{name} {shortened(str(value))} is there twice; each must have its own")
        self._seen.add((within, value))

    def __contains__(self, session: Hashable) -> bool:
        """Whether the session has a row already."""
        return session in self._last

    def add(self, place: str, request: Request) -> None:
        """Raises InputError that names the place."""
        if self._num_rows >= self._most:
            check_rows(self._path, self._num_rows + 1)
        if request.prompt_tokens + request.output_tokens >= OPEN_END:
            found = f"{request.prompt_tokens:,} + {request.output_tokens:,} tokens"
            raise self.refuse(place, f"{found}; they must stay below {OPEN_END:,}")
        row = self._last.get(request.session, _NONE) if request.session is not None else _NONE
        think_s, arrival_s = (request.think_s, math.nan) if row >= 0 else (None, request.arrival_s)
        follows = row
        if think_s is None:
            follows, think_s, arrival_s = NO_PREDECESSOR, 0.0, request.arrival_s
        if arrival_s is None:
            raise self.refuse(place, "'timestamp' is missing; give it")
        of_content = self._of_content(place, request, row)
        if request.tenant is not None:
            self._tenant_of.append(self._tenants.setdefault(request.tenant, len(self._tenants)))
        self._times += _PACK_TIMES(arrival_s, think_s)
        self._counts += _PACK_COUNTS(
            follows, request.prompt_tokens, request.output_tokens, request.priority, *of_content
        )
        if request.session is not None:
            self._last[request.session] = self._num_rows
            self.count_turn(request.session)
        self._are_sessions &= request.continues is None
        self._num_rows += 1

    def count_turn(self, session: Hashable) -> None:
        """A row is of this session, whatever it shares with the session's others."""
        self._turns[session] += 1

    def add_alone(
        self, prompt_tokens: object, output_tokens: object, arrival_s: object, ids: Any, block_size: int
    ) -> bool:
        """Add rows of no session, [n] each, as `add` does one by one; `ids` are lists or None.

        False, and nothing is added, where `add` would refuse one of them, or they have ids beyond an int64.
        """
        found = [each or () for each in ids]
        prompt, output = np.array(prompt_tokens, np.int64), np.array(output_tokens, np.int64)
        times, num_ids = np.array(arrival_s, np.float64), np.fromiter(map(len, found), np.int64, len(prompt))
        total, full = int(num_ids.sum()), prompt // block_size
        is_wrong = (num_ids > -(-prompt // block_size)) | (num_ids < full) & (num_ids > 0)
        too_long = prompt + output >= OPEN_END
        if is_wrong.any() or too_long.any() or np.isnan(times).any() or self._num_rows + len(prompt) > self._most:
            return False
        try:
            ids_of_all = np.fromiter(chain.from_iterable(found), np.int64, total)
        except OverflowError:
            return False
        has_ids = num_ids > 0
        counts = np.zeros((len(prompt), len(_COUNTS)), np.int64)
        said = {name: counts[:, place] for place, name in enumerate(_COUNTS)}
        said["prompt_tokens"][:], said["output_tokens"][:], said["block_size"][:] = prompt, output, block_size
        for name in ("follows", "previous", "root", "name"):
            said[name][:] = _NONE
        said["ids_from"][:] = self._num_ids + np.cumsum(num_ids) - num_ids
        if total:
            self._block_size = block_size
            said["root"][has_ids] = self._roots.setdefault((None, block_size), len(self._roots))
        self._times += np.stack([times, np.zeros_like(times)], axis=1).tobytes()
        self._counts += counts.tobytes()
        self._ids += ids_of_all.tobytes()
        self._num_ids += total
        self._num_rows += len(prompt)
        return True

    def _of_content(self, place: str, request: Request, row: int) -> tuple[int, ...]:
        """What the row says of its content, as _OF_CONTENT; `row` is that of its session before it."""
        previous = row if request.continues is None else self._last.get(request.continues, _NONE)
        name, name_tokens, root, ids_from = _NONE, 0, _NONE, self._num_ids
        if request.block_tokens:
            self._check_block_tokens(place, request)
            self._uneven.add(self._num_rows, request.ids, request.block_tokens, request.prompt_tokens)
        elif request.ids:
            self._check_ids(place, request)
            self._block_size = request.block_size
            root = self._roots.setdefault((request.scope, request.block_size), len(self._roots))
            self._add_ids(request.ids)
        elif request.starts_with is not None and request.starts_with[1]:
            name, name_tokens = self._names.setdefault(request.starts_with[0], len(self._names)), request.starts_with[1]
        in_session = request.session is not None
        return previous, in_session, root, request.block_size, ids_from, request.prefix_tokens, name, name_tokens

    def _add_ids(self, ids: Sequence[int]) -> None:
        count = len(ids)
        if count not in self._pack_ids:
            self._pack_ids[count] = struct.Struct(f"{count}q").pack
        try:
            self._ids += self._pack_ids[count](*ids)
        except struct.error:
            large = {place: each for place, each in enumerate(ids) if not _LEAST_ID <= each < -_LEAST_ID}
            self._ids += self._pack_ids[count](*(0 if place in large else each for place, each in enumerate(ids)))
            self._large_ids |= {self._num_ids + place: each for place, each in large.items()}
        self._num_ids += count

    def _all_ids(self) -> IntArray:
        """The ids of all rows, large ones by numbers that are no other's."""
        ids = np.frombuffer(self._ids, np.int64)
        if not self._large_ids:
            return ids
        known = dict.fromkeys(self._large_ids.values())
        taken = set(ids[ids < _LEAST_ID + len(ids)].tolist())
        free = (number for number in range(_LEAST_ID, -_LEAST_ID) if number not in taken)
        numbers = dict(zip(known, free, strict=False))
        ids = ids.copy()
        for place, each in self._large_ids.items():
            ids[place] = numbers[each]
        return ids

    def _check_ids(self, place: str, request: Request) -> None:
        found, size = len(request.ids), request.block_size
        full, partial = divmod(request.prompt_tokens, size)
        if found > full + bool(partial) or (found < full and not request.few_ids):
            allowed = f"{full:,} or {full + 1:,}" if partial else f"{full:,}"
            allowed = f"at most {full + bool(partial):,}" if request.few_ids else allowed
            told = f"{found:,} hash_ids for {request.prompt_tokens:,} tokens; with blocks of {size:,} there must be"
            raise self.refuse(place, f"{told} {allowed} (set --trace-block-size to the trace's own)")

    def _check_block_tokens(self, place: str, request: Request) -> None:
        told, tokens = len(request.ids), request.block_tokens
        if told != len(tokens) or min(tokens) < 0:
            reason = f"{told:,} hash_ids, and block_tokens {shortened(str(list(tokens)))}"
            raise self.refuse(place, f"{reason}; give the tokens of each id, at least 0")

    def recorded(self, *, from_first: bool = True) -> Recorded:
        """All rows; times count from the first arrival, unless the file's own zero is kept."""
        if not len(self):
            raise self._nothing()
        times = np.frombuffer(self._times).reshape(-1, len(_TIMES))
        counts = np.frombuffer(self._counts, np.int64).reshape(-1, len(_COUNTS))
        columns: dict[str, Any] = {name: times[:, place].copy() for place, name in enumerate(_TIMES)}
        columns["follows"] = counts[:, 0].copy()
        columns |= {name: counts[:, _COUNTS.index(name)].astype(np.int32) for name in _COUNTS[1:4]}
        said = {name: counts[:, _COUNTS.index(name)].copy() for name in _OF_CONTENT}
        columns |= self._spans(columns["prompt_tokens"], columns["output_tokens"], said)
        if len(self._uneven):
            columns |= self._uneven.spans(len(self))
        if from_first:
            columns["arrival_s"] = columns["arrival_s"] - np.nanmin(columns["arrival_s"])
        tenancy = tenancy_of_names(tuple(self._tenants), np.frombuffer(self._tenant_of, np.int32))
        return Recorded(
            table=RequestTable(**columns, tenancy=tenancy),
            notes=self.notes(),
            block_size=self._block_size,
            session_turns=tuple(self._turns.values()) if self._are_sessions else (),
        )

    def _spans(self, prompt_tokens: Int32Array, output_tokens: Int32Array, said: dict[str, IntArray]) -> dict[str, Any]:
        """The columns of a RequestTable that tell what requests share."""
        n = len(self)
        if not self._ids and not self._names and said["previous"].max() < 0:  # then they share nothing
            own, one = np.arange(n), np.ones(n, np.int32)
            return {
                "span_start": own,
                "span_count": one,
                "span_content": own,
                "span_end": np.full(n, OPEN_END, np.int32),
            }
        from workloads.formats.parsing.content import Asked, contents  # noqa: PLC0415  the compiler, at the end

        asked = Asked(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            ids=self._all_ids(),
            ids_from=np.append(said.pop("ids_from"), self._num_ids),
            in_session=said.pop("in_session") > 0,
            **said,
        )
        start, count, spans, self._num_continued = contents(asked, len(self._roots), len(self._names))
        return {
            "span_start": start,
            "span_count": count,
            "span_content": spans[:, 0].copy(),
            "span_end": spans[:, 1].astype(np.int32),
        }

    def _nothing(self) -> InputError:
        if not self._left_out:
            return self.refuse("", "has no rows; a trace needs at least one request")
        return self.refuse("", f"has no request to serve: {self._left_out_text()}")

    def notes(self) -> tuple[str, ...]:
        """What was left out, and what was taken for granted."""
        notes = list(self._notes)
        if self._left_out:
            notes.insert(0, f"left out of the trace: {self._left_out_text()}")
        if continued := self._num_continued:
            notes.append(
                f"{continued:,} of {len(self):,} requests are taken as the next turn of the one whose block ids they "
                "go on from; they find its answer in the cache"
            )
        return tuple(notes)

    def _left_out_text(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self._left_out.items())
