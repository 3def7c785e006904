"""vLLM's V1 scheduler in plain Python, readable first.

The scheduler is a pure state machine: no clock, no randomness. `schedule()` decides one step, advances
`num_computed` at once as vLLM does, and the plan is handed back to `complete(plan)` when its step is over.
Under asynchronous scheduling up to two plans are in flight, so that a step is decided before the output of
the one before it is known: each sampled token is a placeholder until its step completes.

It is checked against vLLM's own `Scheduler` and `AsyncScheduler`, and the compiled core against it.
Read from vLLM 0.32: `vllm/v1/core/sched/scheduler.py`, `async_scheduler.py`, `kv_cache_manager.py`.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcache.block_pool import BlockPool
from simulator.engine import EngineConfig


@dataclass(kw_only=True, eq=False)
class Request:
    """One sequence in the engine; token counts only, since no token's value decides anything.

    `spans` names the content: span k is `(content id, end)` and covers positions from the end of span k-1.
    A content id stands for everything before it too, so `(content id, block index)` identifies a full block.
    """

    id: int
    num_prompt_tokens: int
    max_tokens: int
    priority: int = 0  # the lower, the sooner
    arrival_s: float = 0.0
    spans: tuple[tuple[int, int], ...]
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    num_in_flight_tokens: int = 0
    num_stale_output_tokens: int = 0
    num_cached_blocks: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int | None = None  # prefix hit at first admission
    is_prefill_chunk: bool = False
    is_running: bool = False
    is_finished: bool = False
    blocks: list[int] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, float, int]:
        """Its place under the priority policy."""
        return self.priority, self.arrival_s, self.id

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    def block_key(self, index: int, block_size: int) -> tuple[int, int]:
        last_position = (index + 1) * block_size - 1
        return next((content, index) for content, end in self.spans if last_position < end)


@dataclass(kw_only=True)
class Plan:
    """What one `schedule()` call decided; token counts by request, in scheduling order."""

    step: int
    num_scheduled_tokens: dict[Request, int] = field(default_factory=dict)
    sampled: set[Request] = field(default_factory=set)
    preempted: list[Request] = field(default_factory=list)
    free_blocks: int = 0
    num_running: int = 0
    num_waiting: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.num_scheduled_tokens


class Victim(NamedTuple):
    """A preempted request with where it stood in `running`."""

    request: Request
    place: int


class Scheduler:
    """Decides, step by step, which request computes how many tokens in which blocks."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.num_gpu_blocks, enable_prefix_caching=config.enable_prefix_caching)
        self.running: list[Request] = []
        self.waiting: list[Request] = []  # in the order of admission
        self.step = 0
        self._threshold = 0

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self.running or self.waiting)

    def add_request(self, request: Request) -> None:
        if self._by_priority:
            insort(self.waiting, request, key=lambda waiting: waiting.rank)
        else:
            self.waiting.append(request)

    def schedule(self) -> Plan:
        self.step += 1
        plan = Plan(step=self.step)
        self._threshold = self._long_prefill_token_threshold()
        budget = self._schedule_running(plan, self.config.max_num_batched_tokens)
        if not plan.preempted:
            self._schedule_waiting(plan, budget)
        self._advance(plan)
        plan.free_blocks = self.pool.num_free
        plan.num_running, plan.num_waiting = len(self.running), len(self.waiting)
        return plan

    def complete(self, plan: Plan) -> list[Request]:
        """Process a step's output: one token for each sampled request. Returns those that finished."""
        finished = []
        for request, num_tokens in plan.num_scheduled_tokens.items():
            request.num_in_flight_tokens -= num_tokens
            is_stale = request.num_stale_output_tokens > 0
            if is_stale:
                request.num_stale_output_tokens -= num_tokens
            if request in plan.sampled and self._deliver_token(request, is_stale):
                finished.append(request)
        for request in finished:
            self._finish(request)
        return finished

    @property
    def _by_priority(self) -> bool:
        return self.config.scheduling_policy == "priority"

    def _long_prefill_token_threshold(self) -> int:
        """It keeps a long prompt from starving others, so a request alone is not held to it."""
        alone = len(self.running) + len(self.waiting) <= 1
        return 0 if alone and self.config.threshold_spares_lone_request else self.config.long_prefill_token_threshold

    def _capped(self, num_tokens: int) -> int:
        return min(num_tokens, self._threshold) if self._threshold else num_tokens

    # -- running requests

    def _schedule_running(self, plan: Plan, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            num_new_tokens = self._want(request, budget)
            if num_new_tokens == 0:  # nothing to compute now; the scan goes on
                index += 1
                continue
            for victim in self._allocate_or_preempt(request, num_new_tokens, plan):
                refund = plan.num_scheduled_tokens.pop(victim.request, 0)
                budget += refund
                if refund or (victim.place < index and self.config.skipped_victim_shifts_scan):
                    index -= 1
            if not request.is_running:
                break  # it preempted itself
            plan.num_scheduled_tokens[request] = num_new_tokens
            budget -= num_new_tokens
            index += 1
        return budget

    def _want(self, request: Request, budget: int) -> int:
        placeholders, computed = request.num_output_placeholders, request.num_computed_tokens
        if placeholders > 0 and computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens:
            return 0  # the token that ends it is in flight already
        wanted = self._capped(request.num_tokens + placeholders - computed)
        return min(wanted, budget, self.config.max_model_len - 1 - computed)

    def _allocate_or_preempt(self, request: Request, num_new_tokens: int, plan: Plan) -> Iterator[Victim]:
        """Give the request its blocks, preempting until they are free; itself, in the end, if they never are."""
        num_tokens = min(request.num_computed_tokens + num_new_tokens, self.config.max_model_len)
        while True:
            num_new_blocks = max(self._num_blocks(num_tokens) - len(request.blocks), 0)
            if num_new_blocks <= self.pool.num_free:
                request.blocks += self.pool.take(num_new_blocks)
                self._cache_blocks(request, min(num_tokens, request.num_tokens))
                return
            victim = self._victim()
            place = self.running.index(victim)
            del self.running[place]
            self._preempt(victim)
            plan.preempted.append(victim)
            yield Victim(victim, place)
            if victim is request:
                return

    def _victim(self) -> Request:
        if self._by_priority:
            return max(self.running, key=lambda request: (request.priority, request.arrival_s))
        return self.running[-1]

    def _preempt(self, request: Request) -> None:
        """Free everything and recompute later; outputs are kept, and one in flight is still delivered."""
        self._free_blocks(request)
        request.num_computed_tokens = 0
        request.num_stale_output_tokens = request.num_in_flight_tokens
        request.num_output_placeholders = 0
        request.num_preemptions += 1
        request.is_running = False
        if self._by_priority:
            insort(self.waiting, request, key=lambda waiting: waiting.rank)
        else:
            self.waiting.insert(0, request)

    # -- waiting requests

    def _schedule_waiting(self, plan: Plan, budget: int) -> None:
        for request in list(self.waiting):
            if budget == 0 or len(self.running) >= self.config.max_num_seqs:
                break
            if request.num_stale_output_tokens > 0:  # resuming now could sample a token twice: skipped, not blocking
                continue
            num_new_tokens = self._admit(request, budget)
            if num_new_tokens == 0:
                break
            self.waiting.remove(request)
            self.running.append(request)
            plan.num_scheduled_tokens[request] = num_new_tokens
            budget -= num_new_tokens

    def _admit(self, request: Request, budget: int) -> int:
        """Take the request's blocks for its next chunk; 0 if it does not fit."""
        hits = self._prefix_hits(request)
        num_hit_tokens = len(hits) * self.config.block_size
        num_new_tokens = self._capped(request.num_tokens - num_hit_tokens)
        if num_new_tokens > budget and not self.config.enable_chunked_prefill:
            return 0
        num_new_tokens = min(num_new_tokens, budget)
        must_fit = num_hit_tokens + num_new_tokens
        if self.config.scheduler_reserve_full_isl:
            must_fit = max(must_fit, min(request.num_tokens, self.config.max_model_len))
        required = max(self._num_blocks(must_fit) - len(hits), 0) + self.pool.num_evictable(hits)
        watermark = self.config.watermark_blocks if self.running else 0
        if required + watermark > self.pool.num_free:
            return 0
        self.pool.touch(hits)
        num_tokens = num_hit_tokens + num_new_tokens
        request.blocks = hits + self.pool.take(self._num_blocks(num_tokens) - len(hits))
        request.num_cached_blocks = len(hits)
        request.num_computed_tokens = num_hit_tokens
        request.is_running = True
        if request.num_cached_tokens is None:
            request.num_cached_tokens = num_hit_tokens
        self._cache_blocks(request, min(num_tokens, request.num_tokens))
        return num_new_tokens

    def _prefix_hits(self, request: Request) -> list[int]:
        """The longest run of cached full blocks; the last token is always computed."""
        hits: list[int] = []
        if not self.config.enable_prefix_caching:
            return hits
        for index in range((request.num_tokens - 1) // self.config.block_size):
            block = self.pool.cached_block(request.block_key(index, self.config.block_size))
            if block is None:
                break
            hits.append(block)
        return hits

    # -- shared

    def _advance(self, plan: Plan) -> None:
        for request, num_tokens in plan.num_scheduled_tokens.items():
            request.num_computed_tokens += num_tokens
            request.num_in_flight_tokens += num_tokens
            known = request.num_tokens + request.num_output_placeholders
            request.is_prefill_chunk = request.num_computed_tokens < known
            if not request.is_prefill_chunk:
                plan.sampled.add(request)
                if self.config.async_scheduling:
                    request.num_output_placeholders += 1

    def _deliver_token(self, request: Request, is_stale: bool) -> bool:
        request.num_output_tokens += 1
        if self.config.async_scheduling:
            if not is_stale:
                request.num_output_placeholders -= 1
            if request.is_running:
                self._cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)
        return request.num_output_tokens >= request.max_tokens or request.num_tokens >= self.config.max_model_len

    def _finish(self, request: Request) -> None:
        request.is_finished = True
        if request.is_running:
            self.running.remove(request)
            self._free_blocks(request)
        else:
            self.waiting.remove(request)

    def _free_blocks(self, request: Request) -> None:
        """From last to first, so that a sequence's tail is evicted before its head."""
        self.pool.free(request.blocks[::-1])
        request.blocks = []
        request.num_cached_blocks = 0

    def _cache_blocks(self, request: Request, num_tokens: int) -> None:
        if not self.config.enable_prefix_caching:
            return
        num_full_blocks = num_tokens // self.config.block_size
        for index in range(request.num_cached_blocks, num_full_blocks):
            self.pool.cache(request.blocks[index], request.block_key(index, self.config.block_size))
        request.num_cached_blocks = max(request.num_cached_blocks, num_full_blocks)

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.config.block_size)
