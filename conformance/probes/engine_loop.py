"""The loop around a scheduler: who arrives when, when steps end, what each decision was.

Imported by probes, which other interpreters run, so with the standard library alone.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any

VOCABULARY = 32000
POLL_S = 2.0**-10  # vLLM's 1 ms between two looks at transfers while nothing else is to do; exact in sums


class Load:
    """A case's requests by its own clock: no wall clock decides anything."""

    def __init__(self, requests: Sequence[dict[str, Any]]) -> None:
        self.requests = requests
        self.now_s = 0.0
        self._followers = {request["follows"]: row for row, request in enumerate(requests) if request["follows"] >= 0}
        self._arrivals = [(request["arrival_s"], row) for row, request in enumerate(requests) if request["follows"] < 0]
        self._deadlines: list[tuple[float, int]] = []  # of those that have arrived
        self._arrived: set[int] = set()
        self._ended: set[int] = set()
        heapq.heapify(self._arrivals)

    def due(self) -> Iterator[tuple[float, int]]:
        """Arrival time and row of those that have come by now, in order; infinity: the client cancels the request."""
        while True:
            deadline_s = self._next_deadline_s()
            arrival_s = self._arrivals[0][0] if self._arrivals else math.inf
            if min(arrival_s, deadline_s) > self.now_s:
                return
            if deadline_s <= arrival_s:
                yield math.inf, self._cancel()
                continue
            _, row = heapq.heappop(self._arrivals)
            if row not in self._arrived and self.requests[row].get("timeout_s") is not None:
                heapq.heappush(self._deadlines, (arrival_s + self.requests[row]["timeout_s"], row))
            self._arrived.add(row)
            yield arrival_s, row

    def come_again(self, row: int, time_s: float) -> None:
        """A request that one engine has served comes to another then."""
        heapq.heappush(self._arrivals, (time_s, row))

    def has_ended(self, row: int) -> bool:
        return row in self._ended

    def next_s(self) -> float:
        """When somebody arrives or cancels next; infinity: nobody does."""
        return min(self._arrivals[0][0] if self._arrivals else math.inf, self._next_deadline_s())

    def cancelled_before(self, time_s: float) -> Iterator[int]:
        """Of those that have arrived: whose client cancels before the step that ends then is over."""
        while self._next_deadline_s() < time_s:
            yield self._cancel()

    def _next_deadline_s(self) -> float:
        while self._deadlines and self._deadlines[0][1] in self._ended:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    def _cancel(self) -> int:
        deadline_s, row = heapq.heappop(self._deadlines)
        self._end(row, deadline_s)
        return row

    def follow_up(self, finished: Sequence[int]) -> None:
        """The next turns of finished requests will arrive after their think time."""
        for row in finished:
            self._end(row, self.now_s)

    def _end(self, row: int, time_s: float) -> None:
        self._ended.add(row)
        if row in self._followers:
            follower = self._followers[row]
            heapq.heappush(self._arrivals, (time_s + self.requests[follower]["think_s"], follower))

    def wait(self, until_s: float = math.inf) -> bool:
        """Go on to the next arrival or cancellation, or until then; False where there is none any more."""
        next_s = min(self.next_s(), until_s)
        if next_s == math.inf:
            return False
        self.now_s = max(self.now_s, next_s)
        return True


class Pipeline:
    """When steps end: a stage takes the next step while the following stages still work on this one."""

    def __init__(self, step_s: float, stages: int) -> None:
        self.step_s, self.stage_s = step_s, step_s / stages
        self._stage_free_s = self._last_end_s = 0.0

    def end_s(self, now_s: float, copies_s: float = 0.0) -> float:
        """Of a step that is decided now, and waits for copies."""
        start_s = max(self._stage_free_s, now_s)
        self._stage_free_s = start_s + self.stage_s + copies_s
        self._last_end_s = max(start_s + self.step_s, self._last_end_s + self.stage_s) + copies_s
        return self._last_end_s


class Recorder:
    """Listens to a live vLLM scheduler: what it decides at each call, and who finishes."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.records: list[dict[str, Any]] = []
        self._admitted: set[int] = set()
        self._preempted: list[int] = []
        self._schedule, scheduler.schedule = scheduler.schedule, self.schedule
        self._update, scheduler.update_from_output = scheduler.update_from_output, self.update_from_output
        self._preempt, scheduler._preempt_request = scheduler._preempt_request, self._listen_to_preemption

    def schedule(self, *arguments: Any, **options: Any) -> Any:
        """vLLM's own call. One that no unfinished request waits for only clears up, and is not recorded."""
        is_needed = self.scheduler.get_num_unfinished_requests() > 0
        self._preempted = []
        output = self._schedule(*arguments, **options)
        if is_needed:
            self.records.append(self._record(output))
        return output

    def update_from_output(self, *arguments: Any, **options: Any) -> Any:
        """vLLM's own call; who finishes is entered with the latest decision."""
        outputs = self._update(*arguments, **options)
        ended = [item for group in outputs.values() for item in group.outputs if item.finish_reason is not None]
        if ended:
            self.records[-1]["finished"] += [row_of(item.request_id) for item in ended]
        return outputs

    def _listen_to_preemption(self, request: Any, *arguments: Any, **options: Any) -> Any:
        self._preempted.append(row_of(request.request_id))
        return self._preempt(request, *arguments, **options)

    def _record(self, output: Any) -> dict[str, Any]:
        """Requests in the order in which they were scheduled, or preempted."""
        cached = output.scheduled_cached_reqs
        hits = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        hits |= {
            name: computed
            for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            if name in cached.resumed_req_ids
        }
        entered = {row_of(name): hits[name] for name in output.num_scheduled_tokens if name in hits}
        new = {row: computed for row, computed in entered.items() if row not in self._admitted}
        self._admitted.update(new)
        assert {row_of(name) for name in output.preempted_req_ids or ()} == set(self._preempted)
        return {
            "step": len(self.records) + 1,
            "scheduled": {row_of(name): tokens for name, tokens in output.num_scheduled_tokens.items()},
            "new": new,
            "resumed": {row: computed for row, computed in entered.items() if row not in new},
            "preempted": self._preempted,
            "encoded": {row_of(name): places for name, places in output.scheduled_encoder_inputs.items()},
            "embeddings": self._num_embeddings(output),
            "free_slots": self.scheduler.encoder_cache_manager.num_free_slots,
            "free_blocks": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "running": len(self.scheduler.running),
            "waiting": self.scheduler.get_request_counts()[1],
            "finished": [],
        }

    def _num_embeddings(self, output: Any) -> int:
        """That the encoder makes in a step."""
        requests = self.scheduler.requests
        return sum(
            requests[name].mm_features[place].mm_position.get_num_embeds()
            for name, places in output.scheduled_encoder_inputs.items()
            for place in places
        )


def run_with_transfers(load: Load, core: Any, *, max_steps: int) -> list[dict[str, Any]]:
    """Every record of an engine core with a host tier: vLLM's own, or what stands for it beside our scheduler.

    It is stepped as vLLM's busy loop does; while nothing but transfers is to be waited for, each step takes POLL_S.
    """
    while len(core.records) < max_steps:
        for arrival_s, row in load.due():
            if arrival_s == math.inf:
                core.abort(row)
            else:
                core.enter(row, arrival_s)
        has_work, may_change = core.has_unfinished, core.has_transfers or core.is_computing
        num_begun = core.num_begun
        if not (has_work or core.has_news):
            if not load.wait(core.next_transfer_s):
                break
            continue
        executed = core.advance()
        load.follow_up(core.take_finished())
        if executed or core.is_computing or not has_work or core.records[-1]["preempted"]:
            continue
        if may_change or core.num_begun > num_begun:
            load.now_s += POLL_S
        elif not load.wait():
            break  # nothing fits: vLLM would ask again for ever
    records: list[dict[str, Any]] = core.records
    return records[:max_steps]


def name_of(row: int) -> str:
    """A request's id in vLLM."""
    return f"{row:08d}"


def draft_hash(request: int, position: int) -> int:
    """Which drafts are right, as `simulator.engines.vllm.speculation` has it: an even spread over [0, 2**32)."""
    mixed = (request * 0x1E3779B1 + position * 0x25EBCA6B + 0x3C6EF372) & 0xFFFFFFFF
    mixed ^= mixed >> 16
    mixed = (mixed * 0x7FEB352D) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 0x2C1B3C6D) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


def row_of(name: str) -> int:
    """A request's row; an engine appends a random suffix to the name that it was given."""
    return int(name.partition("-")[0])


def token_at(content: int, position: int) -> int:
    """A token that depends on its content and position alone; ids 0 to 2 are special."""
    return 3 + (content * 7919 + position * 104729 + 13) % (VOCABULARY - 3)


def token_of(request: dict[str, Any], position: int) -> int:
    """The same by a request's spans of content."""
    return token_at(next(content for content, end in request["spans"] if position < end), position)
