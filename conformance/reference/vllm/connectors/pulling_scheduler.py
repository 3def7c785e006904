"""vLLM's V1 scheduler with its NIXL connectors, in plain Python: prefill in one engine, decode in another.

A prefill engine keeps the blocks of a finished request until they are at the decode engine. There a request is given
blocks for its whole prompt, and waits until those that the engine's own prefix cache lacks have come. With
`NixlConnector` the decode engine reads them, with `NixlPushConnector` it asks for them and the prefill engine writes
them; both schedulers decide alike, and what differs is when (`pulling.Network`, `pushing.PushNetwork`).
The last token of the prompt is computed once more, and yields the first token of the answer.
Read from vLLM 0.32: `vllm/v1/core/sched/scheduler.py`, `vllm/distributed/kv_transfer/kv_connector/v1/nixl`.
"""

from dataclasses import dataclass, field

from conformance.reference.vllm.connectors.connector_scheduler import ConnectorScheduler
from conformance.reference.vllm.kv_cache_manager import PrefixHit
from conformance.reference.vllm.requests import Plan, Request
from simulator.engines.vllm.connectors.pulling import KV_CONSUMER, KV_PRODUCER, Pull, Pulls
from simulator.engines.vllm.engine import EngineConfig


@dataclass(kw_only=True)
class PullingPlan(Plan):
    """A plan with what it asks of the network, and what it hears of with its output."""

    pulls: Pulls = field(default_factory=Pulls)


class PullingScheduler(ConnectorScheduler):
    """The scheduler of an engine with a `kv_role`."""

    plan_type = PullingPlan

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._may_load = config.kv_role != KV_PRODUCER
        self._drops_stale_output = config.kv_role != KV_CONSUMER  # it is sampled again: a request ends with its KV
        self.num_begun = 0  # reads so far
        self._held: dict[int, Request] = {}  # ended, their blocks to be read
        self._reading: dict[int, Request] = {}
        self._asked: list[Pull] = []  # of this step …
        self._given_up: list[int] = []  # … and by requests that have ended since the one before
        self._offered: list[int] = []

    @property
    def has_transfers(self) -> bool:
        return self.num_transfers > 0

    @property
    def num_transfers(self) -> int:
        """Requests whose KV is kept here for another engine, or is to come from there."""
        return len(self._held) + len(self._reading)

    def _find_elsewhere(self, request: Request, num_local_tokens: int) -> int:
        return request.num_prompt_tokens - num_local_tokens if request.do_remote_prefill else 0

    def _begin_load(self, request: Request, hit: PrefixHit, _: int) -> None:
        request.do_remote_prefill = False  # once preempted, it computes its prompt here
        num_blocks = sum(self.blocks.num_after_hit(request.table, hit))
        self._asked.append(Pull(request=request.id, num_blocks=num_blocks))
        self._reading[request.id] = request
        self.num_begun += 1

    def _plan_transfers(self, plan: Plan, _: list[Request]) -> None:
        assert isinstance(plan, PullingPlan)
        plan.pulls = Pulls(asked=self._asked, given_up=sorted(self._given_up), offered=self._offered)
        self._asked, self._given_up, self._offered = [], [], []

    def _take_in(self, plan: Plan) -> None:
        assert isinstance(plan, PullingPlan)
        for name in plan.pulls.received:
            self._note_loaded(self._reading.pop(name))
        for name in plan.pulls.sent:
            self._free(self._held.pop(name))

    def _keeps_blocks(self, request: Request, *, is_aborted: bool) -> bool:
        if request.do_remote_prefill:
            request.do_remote_prefill = False
            self._given_up.append(request.id)
            return False
        if is_aborted or not request.do_remote_decode:
            return False
        self._held[request.id] = request
        self._offered.append(request.id)
        return True
