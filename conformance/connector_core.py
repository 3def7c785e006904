"""A readable scheduler with a connector, stepped as vLLM's engine core is."""

from abc import abstractmethod
from collections import deque
from typing import Generic, TypeVar, cast

from conformance.our_steps import ReadableEngine
from conformance.probes.engine_loop import Load, Pipeline
from conformance.probing import Record
from conformance.reference.vllm.connectors.connector_scheduler import ConnectorScheduler
from conformance.reference.vllm.requests import Plan

P = TypeVar("P", bound=Plan)


class ReadableCore(ReadableEngine, Generic[P]):
    """Stands for vLLM's engine core (`EngineCore.step`, `step_with_batch_queue`) with its worker."""

    def __init__(self, scheduler: ConnectorScheduler, load: Load, *, step_s: float, plans_in_flight: int) -> None:
        super().__init__(scheduler)
        self.records: list[Record] = []
        self.load, self.queue = load, deque[tuple[float, P]]()  # plans, with when they end
        self._connected, self._pipeline, self._max_plans = scheduler, Pipeline(step_s, 1), plans_in_flight
        self._finished: list[int] = []

    def enter(self, row: int, arrival_s: float) -> None:
        """A request arrives."""
        self.add(row, self.load.requests[row], arrival_s)

    def begin_s(self, _: P) -> float:
        """When a step that was decided now can begin."""
        return self.load.now_s

    def copies_s(self, _: P) -> float:
        """By how much its own copies lengthen a step."""
        return 0.0

    @abstractmethod
    def launch(self, plan: P, over_s: float) -> None:
        """It begins, and its transfers with it; `over_s` is when its work is over, or at once."""

    def await_step(self, _: P, end_s: float) -> None:
        """Wait for the oldest step."""
        for row in self.load.cancelled_before(end_s):
            self.abort(row)
        self.load.now_s = max(self.load.now_s, end_s)

    def advance(self) -> bool:
        """Decide a step, then take in the oldest unless another may be decided; whether what was decided has work."""
        executed = False
        if self._connected.has_requests:
            executed = self._decide()
            if len(self.queue) < self._max_plans and (executed or self._connected.has_requests):
                return executed
        elif not self.queue:
            return False
        end_s, plan = self.queue[0]
        self.await_step(plan, end_s)
        self.queue.popleft()
        finished = [request.id for request in self._connected.complete(plan)]
        self._finished += finished
        if finished:
            self.records[-1]["finished"] += finished
        return executed

    def _decide(self) -> bool:
        is_needed = self.has_unfinished
        found, record = self.schedule()
        plan = cast("P", found)
        if is_needed:
            self.records.append(record)
        begin_s = self.begin_s(plan)
        last_s = max((end_s for end_s, queued in self.queue if queued.num_scheduled_tokens), default=begin_s)
        has_work = bool(plan.num_scheduled_tokens)
        end_s = self._pipeline.end_s(begin_s, self.copies_s(plan)) if has_work else max(begin_s, last_s)
        self.launch(plan, end_s if has_work else begin_s)
        self.queue.append((end_s, plan))
        return has_work

    def take_finished(self) -> list[int]:
        """Those that have finished since it was asked last."""
        finished, self._finished = self._finished, []
        return finished

    @property
    def has_unfinished(self) -> bool:
        return self._connected.has_unfinished_requests

    @property
    def has_transfers(self) -> bool:
        return self._connected.has_transfers

    @property
    def is_computing(self) -> bool:
        """Whether a step with work is under way."""
        return any(plan.num_scheduled_tokens for _, plan in self.queue)
