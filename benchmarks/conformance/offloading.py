"""What our scheduler with a host tier decides in a case, step by step; it is stepped as vLLM's engine core is."""

from collections import deque
from typing import cast

from benchmarks.conformance.cases.scheduler_cases import MAX_STEPS, STEP_S, SchedulerCase
from benchmarks.conformance.our_steps import ReadableEngine
from benchmarks.conformance.probes.engine_loop import Load, Pipeline, run_with_transfers
from benchmarks.conformance.probing import Record
from simulator.engines.vllm.host_tier import HostLink
from simulator.engines.vllm.offloading_scheduler import OffloadingPlan, OffloadingScheduler


def readable_offloading_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's decisions, one record per `schedule()` call."""
    load = Load(case.to_json()["requests"])
    return run_with_transfers(load, EngineCore(case, load), max_steps=MAX_STEPS)


class EngineCore(ReadableEngine):
    """Stands for vLLM's engine core (`EngineCore.step`, `step_with_batch_queue`) with its worker."""

    def __init__(self, case: SchedulerCase, load: Load) -> None:
        scheduler = OffloadingScheduler(case.engine)
        super().__init__(scheduler)
        assert case.engine.host_tier is not None
        self.offloading = scheduler
        self.link = HostLink(case.engine.host_tier)
        self.records: list[Record] = []
        self._load, self._pipeline = load, Pipeline(STEP_S, 1)
        self._queue: deque[tuple[float, OffloadingPlan]] = deque()  # with when they end
        self._max_plans = case.engine.plans_in_flight
        self._finished: list[int] = []

    def enter(self, row: int, arrival_s: float) -> None:
        """A request arrives."""
        self.add(row, self._load.requests[row], arrival_s)

    def advance(self) -> bool:
        """Decide a step, then take in the oldest unless another may be decided; whether what was decided has work."""
        executed = False
        if self.offloading.has_requests:
            executed = self._decide()
            if len(self._queue) < self._max_plans and (executed or self.offloading.has_requests):
                return executed
        elif not self._queue:
            return False
        end_s, plan = self._queue.popleft()
        for row in self._load.cancelled_before(end_s):
            self.abort(row)
        self._load.now_s = max(self._load.now_s, end_s)
        finished = [request.id for request in self.offloading.complete(plan)]
        self._finished += finished
        if finished:
            self.records[-1]["finished"] += finished
        return executed

    def _decide(self) -> bool:
        is_needed = self.offloading.has_unfinished_requests
        plan, record = self.schedule()
        plan = cast(OffloadingPlan, plan)
        if is_needed:
            self.records.append(record)
        start_s = self.link.before_step(plan.transfers, self._load.now_s)
        last_s = max((end_s for end_s, queued in self._queue if queued.num_scheduled_tokens), default=start_s)
        has_work = bool(plan.num_scheduled_tokens)
        end_s = self._pipeline.end_s(start_s) if has_work else max(start_s, last_s)
        self.link.launch(plan.transfers, end_s if has_work else start_s)
        self._queue.append((end_s, plan))
        return has_work

    def take_finished(self) -> list[int]:
        """Those that have finished since it was asked last."""
        finished, self._finished = self._finished, []
        return finished

    @property
    def has_unfinished(self) -> bool:
        return self.offloading.has_unfinished_requests

    @property
    def is_computing(self) -> bool:
        """Whether a step with work is under way."""
        return any(plan.num_scheduled_tokens for _, plan in self._queue)

    @property
    def has_transfers(self) -> bool:
        return bool(self.offloading.connector.transfers)

    @property
    def num_begun(self) -> int:
        """Transfers so far."""
        return self.offloading.connector.num_begun

    @property
    def has_news(self) -> bool:
        """Whether a step would clear up, or take in transfers that are over."""
        under_way = self.link.under_way(self._load.now_s)
        return bool(self.offloading.connector.transfers - under_way or self.is_computing or self.offloading.ended)

    @property
    def next_transfer_s(self) -> float:
        return self.link.next_end_s()
