"""What vLLM's V1 scheduler does for a connector that brings KV from elsewhere, in plain Python.

A request whose KV comes from elsewhere gets its blocks at once and waits, without taking part in steps, until the load
is over (WAITING_FOR_REMOTE_KVS). From then on it goes before all others that wait.
Read from vLLM 0.32: `vllm/v1/core/sched/scheduler.py`.
"""

from abc import abstractmethod
from collections import deque

from conformance.reference.vllm.kv_cache_manager import NULL, PrefixHit
from conformance.reference.vllm.requests import Plan, Request
from conformance.reference.vllm.scheduler import Scheduler
from conformance.reference.vllm.states import Chunk
from simulator.engines.vllm.engine import EngineConfig


class ConnectorScheduler(Scheduler):
    """The scheduler of an engine with a connector; which one, its subclasses say."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.holding: list[Request] = []  # wait, and hold blocks
        self.ended: list[Request] = []  # since the latest `schedule()`
        self._loading: set[Request] = set()
        self._loaded: set[Request] = set()  # of those, whose load is over
        self._prefilling: set[Request] = set()  # admitted, or loading, with a part of the prompt to come
        self._num_steps = self._num_steps_over = 0  # with work
        self._deferred: deque[tuple[int, list[int]]] = deque()  # blocks to be freed once that step is over
        self._may_load = True  # whether the engine loads KV from elsewhere at all

    # -- what a connector decides

    @property
    @abstractmethod
    def has_transfers(self) -> bool:
        """Whether anything is to be waited for beside unfinished requests."""

    @abstractmethod
    def _find_elsewhere(self, request: Request, num_local_tokens: int) -> int | None:
        """Tokens that can be loaded beyond a prefix hit on the GPU; None: ask again in the next step."""

    @abstractmethod
    def _begin_load(self, request: Request, hit: PrefixHit, num_tokens: int) -> None:
        """Load that many tokens into the blocks that the request was just given."""

    @abstractmethod
    def _plan_transfers(self, plan: Plan, ended: list[Request]) -> None:
        """Decide on the transfers of a step; `ended`: since the step before."""

    @abstractmethod
    def _take_in(self, plan: Plan) -> None:
        """Take note of the transfers that a step's output tells to be over."""

    @abstractmethod
    def _keeps_blocks(self, request: Request, *, is_aborted: bool) -> bool:
        """Whether the blocks of a request that ends stay until a transfer is over."""

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self.holding)

    @property
    def has_requests(self) -> bool:
        """Whether vLLM's engine goes on stepping."""
        return bool(self.has_unfinished_requests or self.ended or self.has_transfers)

    def complete(self, plan: Plan) -> list[Request]:
        if plan.num_scheduled_tokens:
            self._num_steps_over += 1
            while self._deferred and self._deferred[0][0] <= self._num_steps_over:
                self.blocks.pool.free(self._deferred.popleft()[1][::-1])
        finished = super().complete(plan)
        self._take_in(plan)
        return finished

    def _note_loaded(self, request: Request) -> None:
        """A load is over."""
        if request in self._loading:
            self._loaded.add(request)
        else:  # it ended meanwhile
            self._free(request)

    def abort(self, request: Request) -> None:
        self._end(request, is_aborted=True)

    # -- what runs

    def _may_preempt(self, request: Request) -> bool:
        """Not while a step is in flight that writes its blocks: a load into them would not wait for it."""
        return self.config.plans_in_flight == 1 or not self._may_load or request.num_in_flight_tokens == 0

    def _preempt(self, request: Request) -> None:
        super()._preempt(request)
        self._prefilling.discard(request)

    def _advance(self, plan: Plan) -> None:
        self._plan_transfers(plan, sorted(self.ended, key=lambda request: request.id))  # vLLM: a set, in any order
        self.ended = []
        self._num_steps += bool(plan.num_scheduled_tokens)
        super()._advance(plan)
        for request in plan.num_scheduled_tokens:
            if not request.is_prefill_chunk:
                self._prefilling.discard(request)

    # -- what waits

    def _schedule_waiting(self, plan: Plan, budget: int) -> None:
        for request in [*self.holding, *self.waiting]:
            if budget <= 0 or len(self.running) >= self.config.max_num_seqs:
                break
            if request in self._loading and not self._receive(request):
                continue
            if request.num_stale_output_tokens > 0 and not self._drops_stale_output:
                request.is_passed_over = True
                continue
            if not request.table.blocks:
                hit = self.blocks.find_hit(request.table, request.num_tokens)
                num_loaded = self._find_elsewhere(request, hit.num_tokens)
                if num_loaded is None:
                    continue
                if num_loaded:
                    if not self._load(request, hit, num_loaded):
                        break
                    continue
                num_new_tokens = self._admit(request, budget, plan, False, False) or 0
            else:
                num_new_tokens = self._admit_holder(request, budget)
            if num_new_tokens == 0:
                break
            (self.holding if request in self.holding else self.waiting).remove(request)
            self.running.append(request)
            plan.num_scheduled_tokens[request] = num_new_tokens
            if request.num_computed_tokens + num_new_tokens < request.num_tokens:
                self._prefilling.add(request)
            budget -= num_new_tokens

    def _load(self, request: Request, hit: PrefixHit, num_tokens: int) -> bool:
        """Give a request the blocks of its hits on the GPU and elsewhere, and load the latter; False: no room.

        What others need to finish their prompts stays free, since a request that loads cannot be preempted.
        """
        end = hit.num_tokens + num_tokens
        if not self.blocks.admit(
            request.table,
            hit,
            Chunk(end, end, request.prefill_end),
            num_tokens=end,
            full_tokens=self._reserved_tokens(request),
            watermark=self.config.watermark_blocks if self.running else 0,
            reserved=sum(self._num_missing_blocks(other) for other in self._prefilling),
            num_loaded=num_tokens,
        ):
            return False
        self._begin_load(request, hit, num_tokens)
        request.num_computed_tokens = end
        self._loading.add(request)
        self._prefilling.add(request)
        self.waiting.remove(request)
        self._enqueue(self.holding, request)
        return True

    def _num_missing_blocks(self, request: Request) -> int:
        """What a request still needs to hold all its tokens."""
        return self.blocks.num_missing_in_all(request.table, min(request.num_tokens, self.config.max_model_len))

    def _receive(self, request: Request) -> bool:
        """Cache what was loaded; False where it is still under way. The last token is always computed."""
        if request not in self._loaded:
            return False
        self._loading.discard(request)
        self._loaded.discard(request)
        self._cache(request, request.num_computed_tokens)
        request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        return True

    def _admit_holder(self, request: Request, budget: int) -> int:
        """Let a request go on whose KV was loaded; 0 if its next chunk does not fit."""
        num_new_tokens = self._capped(request.num_tokens - request.num_computed_tokens)
        if num_new_tokens > budget and not self.config.enable_chunked_prefill:
            return 0
        num_new_tokens = min(num_new_tokens, budget)
        num_tokens = request.num_computed_tokens + num_new_tokens
        missing = self.blocks.num_missing_in_all(request.table, self._reserved_tokens(request))
        missing = max(missing, sum(self.blocks.num_missing(request.table, num_tokens)))
        if missing + (self.config.watermark_blocks if self.running else 0) > self.blocks.pool.num_free:
            return 0
        chunk = Chunk(request.num_computed_tokens, num_tokens, request.prefill_end)
        has_blocks = self.blocks.allocate(request.table, chunk, num_tokens)
        assert has_blocks, "what a request needs in all was free"
        if request.num_cached_tokens is None:
            request.num_cached_tokens = request.num_computed_tokens
        request.is_running = True
        self._cache(request, num_tokens)
        return num_new_tokens

    # -- ends

    def _finish(self, request: Request) -> None:
        self._end(request, is_aborted=False)

    def _end(self, request: Request, *, is_aborted: bool) -> None:
        assert not request.is_finished, "a request ends once"
        request.is_finished = True
        self._prefilling.discard(request)
        if request.table.blocks:
            self.blocks.free_skipped(request.table, request.num_computed_tokens - request.num_in_flight_tokens)
        keeps_blocks = self._keeps_blocks(request, is_aborted=is_aborted)
        self.ended.append(request)
        for queue in (self.running, self.holding, self.waiting):
            if request in queue:
                queue.remove(request)
        request.is_running = False
        is_under_way = request in self._loading and request not in self._loaded
        self._loading.discard(request)
        self._loaded.discard(request)
        if not is_under_way and not keeps_blocks:
            self._free(request)

    def _free(self, request: Request) -> None:
        """Free an ended request's blocks, or leave it to the step in flight that writes them."""
        if self._may_preempt(request):
            self.blocks.free(request.table)
        elif request.table.blocks:
            held = [block for blocks in request.table.blocks for block in blocks if block != NULL]
            self._deferred.append((self._num_steps, held))
            request.table.blocks = []
