"""vLLM's V1 scheduler with its `OffloadingConnector`, in plain Python: KV that lies in host memory is loaded again.

Read from vLLM 0.32: `vllm/v1/core/sched/scheduler.py`.
"""

from dataclasses import dataclass, field

from conformance.reference.vllm.connectors.connector_scheduler import ConnectorScheduler
from conformance.reference.vllm.connectors.offloading import OffloadingConnector
from conformance.reference.vllm.kv_cache_manager import PrefixHit
from conformance.reference.vllm.requests import Plan, Request
from simulator.engines.vllm.connectors.host_tier import Transfers
from simulator.engines.vllm.engine import EngineConfig


@dataclass(kw_only=True)
class OffloadingPlan(Plan):
    """A plan with what it asks of the link between GPU and host, and what that tells with its output."""

    transfers: Transfers = field(default_factory=Transfers)


class OffloadingScheduler(ConnectorScheduler):
    """The scheduler of an engine with a host tier."""

    plan_type = OffloadingPlan

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.connector = OffloadingConnector(config)

    @property
    def has_transfers(self) -> bool:
        return bool(self.connector.transfers)

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        self.connector.add(request)

    def _find_elsewhere(self, request: Request, num_local_tokens: int) -> int | None:
        return self.connector.find_hit(request, num_local_tokens)

    def _begin_load(self, request: Request, _: PrefixHit, num_tokens: int) -> None:
        self.connector.load(request, num_tokens)

    def _plan_transfers(self, plan: Plan, ended: list[Request]) -> None:
        assert isinstance(plan, OffloadingPlan)
        plan.transfers = self.connector.plan(plan.num_scheduled_tokens, plan.preempted, ended)

    def _take_in(self, plan: Plan) -> None:
        assert isinstance(plan, OffloadingPlan)
        for transfer in plan.transfers.over:
            request = self.connector.complete(transfer)
            if not transfer.is_store:
                self._note_loaded(request)

    def _keeps_blocks(self, request: Request, *, is_aborted: bool) -> bool:
        self.connector.end(request, is_aborted=is_aborted)
        return False
