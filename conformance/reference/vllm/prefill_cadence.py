"""Which steps compute prompts under `prefill_schedule_interval`: between them decodes go on undisturbed."""

from collections.abc import Sequence

from conformance.reference.vllm.requests import Plan, Request
from simulator.engines.vllm.engine import EngineConfig


class PrefillCadence:
    """Ranks that share experts keep the interval together, by a counter of their steps (`DPEngineCoreProc`).

    An engine of its own counts from its last step with prompts. Neither holds where nobody decodes, nor after a step
    that left requests waiting though it could compute prompts.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._interval = config.prefill_schedule_interval if config.prefill_interval_counts_own_steps else 1
        self._num_executed_steps, self._last_prefill_step = 0, -self._interval
        self._capacity_bound = False
        self.defers = False
        self.has_prefill = False  # the step computes prompts

    def share(self) -> None:
        """The ranks of a server keep the interval instead."""
        self._interval = 1

    def open_step(self, running: Sequence[Request], *, throttle_prefills: bool) -> None:
        is_held = self._num_executed_steps + 1 - self._last_prefill_step < self._interval
        decodes = any(not request.is_prefill_chunk for request in running)
        self.defers = (throttle_prefills or is_held) and not self._capacity_bound and decodes
        self.has_prefill = False

    def close_step(self, plan: Plan, waiting: Sequence[Request]) -> None:
        """With what was decided, before it is entered into the requests."""
        if not plan.preempted and not self.defers:
            self._capacity_bound = any(not request.is_passed_over for request in waiting)
        self._num_executed_steps += bool(plan.num_scheduled_tokens)
        if self.has_prefill:
            self._last_prefill_step = self._num_executed_steps
