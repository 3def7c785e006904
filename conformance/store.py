"""What our scheduler with a store that engines share decides in a case, step by step."""

from conformance.cases.scheduler_case import MAX_STEPS, STEP_S, SchedulerCase
from conformance.connector_core import ReadableCore
from conformance.probes.engine_loop import Load, run_with_transfers
from conformance.probing import Record
from conformance.reference.vllm.connectors.store import KVStore, StoreLink
from conformance.reference.vllm.connectors.store_scheduler import StorePlan, StoreScheduler
from simulator.engines.vllm.engine import EngineConfig


def readable_store_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's decisions, one record per `schedule()` call."""
    load = Load(case.to_json()["requests"])
    assert case.engine.host_tier is not None
    core = EngineCore(case.engine, load, KVStore(case.engine.host_tier))
    return run_with_transfers(load, core, max_steps=MAX_STEPS)


class EngineCore(ReadableCore[StorePlan]):
    """With copies to and from the store."""

    def __init__(self, engine: EngineConfig, load: Load, store: KVStore) -> None:
        self.storing = StoreScheduler(engine, store)
        super().__init__(self.storing, load, step_s=STEP_S, plans_in_flight=engine.plans_in_flight)
        assert engine.host_tier is not None
        self.link = StoreLink(engine.host_tier, store, self.storing.connector.begin_store)

    def _decide(self) -> bool:
        self.link.settle(self.load.now_s)
        return super()._decide()

    def launch(self, plan: StorePlan, over_s: float) -> None:
        self.link.launch(plan.copies, self.load.now_s, over_s)

    @property
    def num_begun(self) -> int:
        """Transfers so far."""
        return self.storing.connector.num_begun

    @property
    def has_news(self) -> bool:
        """Whether a step would clear up, or take in transfers that are over."""
        under_way = self.link.under_way(self.load.now_s)
        return bool(self.storing.connector.transfers - under_way or self.is_computing or self.storing.ended)

    @property
    def next_transfer_s(self) -> float:
        return self.link.next_end_s()
