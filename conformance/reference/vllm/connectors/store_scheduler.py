"""vLLM's V1 scheduler with its `MooncakeStoreConnector`, in plain Python: KV that lies in a store is loaded again.

Read from vLLM 0.32: `vllm/v1/core/sched/scheduler.py`.
"""

from dataclasses import dataclass, field

from conformance.reference.vllm.connectors.connector_scheduler import ConnectorScheduler
from conformance.reference.vllm.connectors.store import Copies, KVStore, StoreConnector
from conformance.reference.vllm.kv_cache_manager import PrefixHit
from conformance.reference.vllm.requests import Plan, Request
from simulator.engines.vllm.engine import EngineConfig


@dataclass(kw_only=True)
class StorePlan(Plan):
    """A plan with what it asks of the way to the store, and what that tells with its output."""

    copies: Copies = field(default_factory=Copies)


class StoreScheduler(ConnectorScheduler):
    """The scheduler of an engine with a store that others share."""

    plan_type = StorePlan

    def __init__(self, config: EngineConfig, store: KVStore) -> None:
        super().__init__(config)
        self.connector = StoreConnector(config.block_size, store, self.blocks.pool)

    @property
    def has_transfers(self) -> bool:
        return bool(self.connector.transfers)

    def _find_elsewhere(self, request: Request, num_local_tokens: int) -> int:
        return self.connector.find(request, num_local_tokens)

    def _begin_load(self, request: Request, _: PrefixHit, num_tokens: int) -> None:
        self.connector.load(request, num_tokens)

    def _plan_transfers(self, plan: Plan, ended: list[Request]) -> None:
        assert isinstance(plan, StorePlan)
        for request in ended:
            self.connector.end(request)
        plan.copies = self.connector.plan(plan.num_scheduled_tokens)

    def _take_in(self, plan: Plan) -> None:
        assert isinstance(plan, StorePlan)
        for copy in plan.copies.over:
            self.connector.complete(copy)
            if not copy.is_store:
                self._note_loaded(copy.request)

    def _keeps_blocks(self, _: Request, *, is_aborted: bool) -> bool:
        return False  # what is being stored holds them itself
