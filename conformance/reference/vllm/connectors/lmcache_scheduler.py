"""vLLM's V1 scheduler with LMCache's connector, in plain Python: what lies in host memory need not be computed.

Read from vLLM 0.32: `vllm/v1/core/sched/scheduler.py`.
"""

from dataclasses import dataclass, field

from conformance.reference.vllm.connectors.connector_scheduler import ConnectorScheduler
from conformance.reference.vllm.connectors.lmcache import Copies, LMCacheConnector
from conformance.reference.vllm.kv_cache_manager import PrefixHit
from conformance.reference.vllm.requests import Plan, Request
from simulator.engines.vllm.engine import EngineConfig


@dataclass(kw_only=True)
class LMCachePlan(Plan):
    """A plan with the copies that are a part of its step."""

    copies: list[Copies] = field(default_factory=list)


class LMCacheScheduler(ConnectorScheduler):
    """The scheduler of an engine with LMCache."""

    plan_type = LMCachePlan
    has_transfers = False  # a step waits for its own

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        assert config.host_tier is not None
        self.connector = LMCacheConnector(config.host_tier, config.block_size)

    def _find_elsewhere(self, request: Request, num_local_tokens: int) -> int:
        return 0  # nothing is waited for

    def _begin_load(self, request: Request, hit: PrefixHit, num_tokens: int) -> None:
        raise AssertionError("LMCache loads within the step that admits a request")

    def _found_elsewhere(self, request: Request, num_local_tokens: int) -> int:
        return self.connector.find(request, num_local_tokens)

    def _plan_transfers(self, plan: Plan, ended: list[Request]) -> None:
        assert isinstance(plan, LMCachePlan)
        plan.copies = self.connector.plan(plan.num_scheduled_tokens)

    def _take_in(self, plan: Plan) -> None:
        assert isinstance(plan, LMCachePlan)
        self.connector.make(plan.copies)

    def _keeps_blocks(self, request: Request, *, is_aborted: bool) -> bool:
        self.connector.end(request)
        return False
