"""How long a server's steps take, as the readable scheduler plans them."""

import math
from collections.abc import Sequence

from conformance.reference.vllm.requests import Plan
from simulator.latency.step_time import BatchSums, StepTimes


class Steps:
    """A server's step times, and how often it stalled since it was cold."""

    def __init__(self, times: StepTimes) -> None:
        self.times = times
        self.stalled_s, self.num_stalls = -math.inf, 0

    def step_s(self, plan: Plan, shared_s: float) -> float:
        """A warm server's."""
        num_read, num_copied = plan.adapters_loaded
        load_s = num_read * self.times.adapter_read_s + num_copied * self.times.adapter_load_s
        return self.times.step_s(self._sums(plan), shared_s) + load_s

    def stall_s(self, plans: Sequence[Plan], now_s: float) -> float:
        """How much longer the next step takes: the first does, then some with prompts, a while apart."""
        if self.num_stalls > 0:
            holds_prefill = any(self._sums(plan).prefill_tokens > 0 for plan in plans)
            is_due = now_s >= self.stalled_s + self.times.cold_apart_s
            if self.num_stalls >= self.times.cold_stalls or not (holds_prefill and is_due):
                return 0.0
        self.num_stalls, self.stalled_s = self.num_stalls + 1, now_s
        return self.times.cold_start_s

    def _sums(self, plan: Plan) -> BatchSums:
        sums = BatchSums(adapters=plan.num_adapters)
        for request, tokens in plan.num_scheduled_tokens.items():
            end = request.num_computed_tokens
            sums.add(
                start=end - tokens,
                end=end,
                is_sampled=request in plan.sampled,
                is_decode=tokens == 1 or request in plan.num_drafts,
                window=self.times.window,
            )
        return sums
