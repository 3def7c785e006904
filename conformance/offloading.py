"""What our scheduler with a host tier decides in a case, step by step."""

from conformance.cases.scheduler_case import MAX_STEPS, STEP_S, SchedulerCase
from conformance.connector_core import ReadableCore
from conformance.probes.engine_loop import Load, run_with_transfers
from conformance.probing import Record
from conformance.reference.vllm.connectors.offloading_scheduler import OffloadingPlan, OffloadingScheduler
from simulator.engines.vllm.connectors.host_tier import HostLink


def readable_offloading_steps(case: SchedulerCase) -> list[Record]:
    """The readable scheduler's decisions, one record per `schedule()` call."""
    load = Load(case.to_json()["requests"])
    return run_with_transfers(load, EngineCore(case, load), max_steps=MAX_STEPS)


class EngineCore(ReadableCore[OffloadingPlan]):
    """With copies to and from the host."""

    def __init__(self, case: SchedulerCase, load: Load) -> None:
        self.offloading = OffloadingScheduler(case.engine)
        super().__init__(self.offloading, load, step_s=STEP_S, plans_in_flight=case.engine.plans_in_flight)
        assert case.engine.host_tier is not None
        self.link = HostLink(case.engine.host_tier)

    def begin_s(self, plan: OffloadingPlan) -> float:
        return self.link.before_step(plan.transfers, self.load.now_s)

    def launch(self, plan: OffloadingPlan, over_s: float) -> None:
        self.link.launch(plan.transfers, over_s)

    @property
    def num_begun(self) -> int:
        """Transfers so far."""
        return self.offloading.connector.num_begun

    @property
    def has_news(self) -> bool:
        """Whether a step would clear up, or take in transfers that are over."""
        under_way = self.link.under_way(self.load.now_s)
        return bool(self.offloading.connector.transfers - under_way or self.is_computing or self.offloading.ended)

    @property
    def next_transfer_s(self) -> float:
        return self.link.next_end_s()
