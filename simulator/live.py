"""A fleet that takes requests while it runs: the compiled core, moved from instant to instant.

Who drives it decides when an instant comes: a test at once, an endpoint when the clock on the wall has reached it.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from files.errors import HeadcountError
from simulator.core import layout
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import find_router, router_name
from simulator.fleet.view import ACTIVE, MATCHES
from simulator.simulation import Simulation
from workloads.requests import NO_PREDECESSOR, Int32Array, IntArray, RequestTable, independent_requests

FIRST_SPANS = 4096


class Instant(NamedTuple):
    """What clients see at one instant: which requests got how many tokens, and which of them are done."""

    time_s: float
    requests: IntArray
    num_tokens: Int32Array
    finished: list[int]


class LiveFleet:
    """A fleet whose requests are not known before they come, at most `most` of them at once.

    A request is a number below `most`, which a later one may have again. Token times are those that a `Simulation` of
    the same requests finds.
    """

    def __init__(self, fleet: Fleet, *, most: int, seed: int = 0) -> None:
        beforehand = {"session", *ACTIVE, *MATCHES}.intersection(find_router(fleet.router).sees)
        if beforehand:
            raise HeadcountError(
                f"router {router_name(fleet.router)!r} sees {', '.join(sorted(beforehand))}, which needs all requests "
                "beforehand; choose a router that does not"
            )
        if fleet.adapters is not None:
            raise HeadcountError("requests that come while a fleet runs have no LoRA adapters; leave --adapters out")
        self.simulation = Simulation(fleet, _vacant(fleet, most), seed=seed)
        arrays = self.simulation.arrays
        arrays.cursor["may_lag"] = False  # clients see every step
        self._blank = arrays.requests[:1].copy()
        self._blank_sglang = arrays.sglang.requests[:1].copy()
        self._has_sglang = len(arrays.sglang.requests) >= most
        self._has_tier = any(isinstance(p.engine, EngineConfig) and p.engine.host_tier for p in fleet.pools)
        self._order = np.zeros(most, np.int32)
        self._num_ordered = 0
        self._spans = np.zeros(FIRST_SPANS, layout.SPAN)
        self._num_spans = 0
        self._span_counts = np.zeros(most, np.int64)
        self._delivered = np.zeros(most, np.int32)
        self._is_live = np.zeros(most, bool)
        self._free = deque(range(most))
        self._ended: deque[tuple[int, int]] = deque()  # with the last step that may hold it; NONE: its engine has it
        self._hung_up: set[int] = set()  # their scheduler does not know them yet
        self._show_core()

    @property
    def now_s(self) -> float:
        """Where the simulation stands; nothing arrives before."""
        return self.simulation.now_s

    @property
    def num_live(self) -> int:
        """Requests that were sent and have not ended."""
        return int(self._is_live.sum())

    @property
    def next_s(self) -> float:
        """When something happens next; infinity where nothing will."""
        arrays, cursor = self.simulation.arrays, self.simulation.arrays.cursor[0]
        found = float(arrays.next_event_s[0])
        if cursor["next_open"] < self._num_ordered:
            found = min(found, float(arrays.requests["arrival_s"][self._order[cursor["next_open"]]]))
        return min(found, float(arrays.heap[0]["time_s"])) if cursor["heap_size"] else found

    def submit(
        self,
        arrival_s: float,
        prompt_tokens: int,
        output_tokens: int,
        spans: Sequence[tuple[int, int]],
        *,
        max_tokens: int | None = None,
        priority: int = 0,
        last_engine: int | None = None,
    ) -> int | None:
        """Let a request arrive, no earlier than any before it; None where there are too many already.

        `spans` name its content, as in a `RequestTable`; `last_engine` is where its session was served last.
        `max_tokens`, unless as long as the answer, is what the client asked for at most: SGLang admits by it.
        """
        assert arrival_s >= self.now_s, "a request arrives in the past"
        self._reclaim()
        if not self._free:
            return None
        row = self._free.popleft()
        requests = self.simulation.arrays.requests
        requests[row] = self._blank[0]
        request = requests[row]
        request["prompt"], request["max_tokens"], request["arrival_s"] = prompt_tokens, output_tokens, arrival_s
        request["priority"] = priority
        if self._has_sglang:
            of = self.simulation.arrays.sglang.requests
            of[row] = self._blank_sglang[0]
            for beside in (self.simulation.arrays.sglang.window_requests, self.simulation.arrays.sglang.state_requests):
                beside[row % len(beside)] = 0  # one row where no pool has any
            of["max_new_tokens"][row] = output_tokens if max_tokens is None else max_tokens
        if self._has_tier:
            self._forget_chunks(row)
        request["replica"] = layout.NONE if last_engine is None else last_engine
        self._span_counts[row] = len(spans)
        request["span_start"] = self._place(spans)
        self._delivered[row], self._is_live[row] = 0, True
        self._append(row)
        self._show_core()
        return row

    def _forget_chunks(self, row: int) -> None:
        """Nothing of CPU memory is known of a new request."""
        arrays = self.simulation.arrays
        notes = {name: arrays.offloads[name][row] for name in ("notes", "note_bytes")}
        arrays.used_chunks[:, notes["notes"] : notes["notes"] + notes["note_bytes"]] = 0
        arrays.offloads[row] = 0
        for name, value in notes.items():
            arrays.offloads[name][row] = value

    def abort(self, row: int, time_s: float) -> None:
        """The client hangs up at `time_s`, before which nothing is left to happen; vLLM frees its blocks at once.

        SGLang ends a request that is computed with its next output. The front end hands an abort on behind the request
        itself.
        """
        if self._is_live[row]:
            self._hung_up.add(row)
            self.simulation.run(time_s)
            self._take_out()

    def advance(self, until_s: float = math.inf) -> Instant | None:
        """Go on to the next instant; None where there is none up to `until_s`.

        Raises StalledError where a request can never be scheduled because its blocks exceed the pool.
        """
        next_s = self.next_s
        if next_s > until_s or next_s == math.inf:
            return None
        self.simulation.run(next_s)
        self._take_out()
        rows, requests = np.flatnonzero(self._is_live), self.simulation.arrays.requests
        output = requests["output"][rows]
        num_tokens = output - self._delivered[rows]
        got = num_tokens > 0
        self._delivered[rows] = output
        rows, num_tokens = rows[got], num_tokens[got]
        finished = rows[requests["status"][rows] == layout.FINISHED].tolist()
        for row in finished:
            self._end(row)
        return Instant(self.now_s, rows, num_tokens, finished)

    def record(self, row: int) -> Any:
        """A request's state and times, see `simulator.core.layout.REQUEST`; valid until a later one has its number."""
        return self.simulation.arrays.requests[row]

    def _take_out(self) -> None:
        """Abort who hung up, once the front end has handed the request on."""
        from simulator.core.fleet import hang_up  # noqa: PLC0415  imports all kernels

        for row in [row for row in self._hung_up if self._is_known(row)]:
            self._hung_up.remove(row)
            if self._is_live[row]:
                hang_up(self.simulation.arrays, row)
                self._end(row)

    def _is_known(self, row: int) -> bool:
        return self.record(row)["status"] not in (layout.NOT_ARRIVED, layout.SENT)

    def _end(self, row: int) -> None:
        self._is_live[row] = False
        self._ended.append((row, self._last_step(row)))

    def _last_step(self, row: int) -> int:
        """The last step that may hold a request; NONE where it has not ended in its engine."""
        record = self.record(row)
        if record["status"] < layout.FINISHED:
            return layout.NONE
        return int(self.simulation.arrays.replicas[record["replica"]]["step"])

    def _reclaim(self) -> None:
        """Numbers of ended requests can be had again once no step in flight holds them."""
        while self._ended:
            row, step = self._ended[0]
            if step == layout.NONE:
                if (step := self._last_step(row)) == layout.NONE:
                    return
                self._ended[0] = row, step
            engine = self.simulation.arrays.replicas[self.record(row)["replica"]]
            if engine["completed_step"] < step and engine["num_plans"] > 0:
                return
            if self._has_tier and self._is_copied(row):
                return
            if engine["blocked_request"] == row:
                engine["blocked_request"] = layout.NONE
            self._free.append(row)
            self._ended.popleft()

    def _is_copied(self, row: int) -> bool:
        """Whether an ended request's engine has not yet done with what it stores of it, or loads."""
        of, record = self.simulation.arrays.offloads[row], self.record(row)
        has_more = self.simulation.arrays.tiers[record["replica"]]["any_ended"] or record["row"] != layout.NONE
        return bool(has_more or of["num_stores"] > 0 or of["loading"])

    def _append(self, row: int) -> None:
        """Put it last in the order of arrival, whose beginning is dropped when it is full."""
        cursor = self.simulation.arrays.cursor[0]
        if self._num_ordered == len(self._order) or cursor["next_open"] == self._num_ordered:
            waiting = self._order[cursor["next_open"] : self._num_ordered].copy()
            self._order[: len(waiting)] = waiting
            self._num_ordered, cursor["next_open"] = len(waiting), 0
        self._order[self._num_ordered] = row
        self._num_ordered += 1

    def _place(self, spans: Sequence[tuple[int, int]]) -> int:
        """Where a request's spans stand; those of ended ones make room."""
        if self._num_spans + len(spans) > len(self._spans):
            self.compact(len(spans))
        start = self._num_spans
        self._num_spans += len(spans)
        self._spans[start : self._num_spans] = np.array(spans, self._spans.dtype)
        return start

    def compact(self, num_more: int = 0) -> None:
        """Keep the spans of requests that have not ended, and what SGLang's trees stand on, with room for more."""
        arrays = self.simulation.arrays
        rows = np.array(sorted({*np.flatnonzero(self._is_live).tolist(), *(row for row, _ in self._ended)}), np.int64)
        kept = [self._spans[start : start + count] for start, count in self._span_places(rows)]
        num_kept = sum(map(len, kept))
        num_of_nodes = self._kept_for_nodes(self._spans[:0], 0)
        spans = np.zeros(max(2 * (num_kept + num_of_nodes + num_more), FIRST_SPANS), layout.SPAN)
        spans[:num_kept] = np.concatenate([spans[:0], *kept])
        arrays.requests["span_start"][rows] = np.cumsum([0, *map(len, kept)])[:-1]
        self._num_spans = self._kept_for_nodes(spans, num_kept)
        self._spans = spans

    def _kept_for_nodes(self, spans: NDArray[np.void], size: int) -> int:
        """Copy what SGLang's trees stand on behind the first `size`; how many there are then."""
        if not self._has_sglang:
            return size
        from simulator.core.sglang.running_spans import keep_spans  # noqa: PLC0415  imports all kernels

        return int(keep_spans(self.simulation.arrays, spans, size))

    def _span_places(self, rows: IntArray) -> list[tuple[int, int]]:
        starts = self.simulation.arrays.requests["span_start"][rows]
        return list(zip(starts.tolist(), self._span_counts[rows].tolist(), strict=True))

    def _show_core(self) -> None:
        """Hand the core what has grown since."""
        self.simulation.arrays = self.simulation.arrays._replace(
            open_order=self._order[: self._num_ordered], spans=self._spans
        )


def _vacant(fleet: Fleet, most: int) -> RequestTable:
    """Rows for requests of any length."""
    return independent_requests(
        arrival_s=np.zeros(most),
        prompt_tokens=np.ones(most),
        output_tokens=np.full(most, fleet.max_model_len),
        follows=np.full(most, NO_PREDECESSOR),
    )
