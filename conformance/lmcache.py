"""What our scheduler with LMCache decides in a case, step by step."""

from conformance.cases.scheduler_case import MAX_STEPS, STEP_S, SchedulerCase
from conformance.connector_core import ReadableCore
from conformance.probes.engine_loop import Load, run_with_transfers
from conformance.probing import Record
from conformance.reference.vllm.connectors.lmcache_scheduler import LMCachePlan, LMCacheScheduler
from simulator.engines.vllm.connectors.host_tier import HostTier


def readable_lmcache_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's decisions, one record per `schedule()` call."""
    load = Load(case.to_json()["requests"])
    return run_with_transfers(load, EngineCore(case, load), max_steps=MAX_STEPS)


class EngineCore(ReadableCore[LMCachePlan]):
    """With copies that are a part of each step."""

    num_begun = 0  # transfers that go on beside steps
    next_transfer_s = float("inf")

    def __init__(self, case: SchedulerCase, load: Load) -> None:
        self.lmcache = LMCacheScheduler(case.engine)
        super().__init__(self.lmcache, load, step_s=STEP_S, plans_in_flight=case.engine.plans_in_flight)
        assert case.engine.host_tier is not None
        self.tier: HostTier = case.engine.host_tier

    def copies_s(self, plan: LMCachePlan) -> float:
        copied = [chunks for of in plan.copies for chunks in (of.loaded, of.stored) if chunks]
        return sum((self.tier.copy_s(len(chunks)) for chunks in copied), 0.0)

    def launch(self, plan: LMCachePlan, over_s: float) -> None:
        """Its copies are a part of it."""

    @property
    def has_news(self) -> bool:
        """Whether a step would clear up."""
        return bool(self.is_computing or self.lmcache.ended)
