"""SGLang's scheduler in plain Python, readable first.

A batch either prefills or decodes. Waiting requests go first: as long as one of them fits, a batch prefills it, and
running requests stand still (with `enable_mixed_chunk` they decode in the same batch). A prompt that does not fit the
chunk is cut; one such request at a time goes on with each prefill batch until it is whole. Only where there is nothing
to prefill does a batch decode all running requests, by a token each. Where the KV cache lacks the pages for it,
requests with the shortest answers are retracted: they give up everything and wait again.

`schedule()` decides one batch; `complete(plan)` takes in its output. With the overlap schedule, SGLang's default, the
next batch is decided before that: a first token is known a batch later, and a request that ends by a stop token still
takes a place in the batch after its last.

It is checked against SGLang's own `Scheduler`.
Read from SGLang 0.5.23: `srt/managers/scheduler.py`, `schedule_batch.py`, `scheduler_components/`.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from conformance.reference.sglang.kv_cache import KVCache
from conformance.reference.sglang.prefill_adder import AddReqResult, PrefillAdder
from conformance.reference.sglang.schedule_policy import SchedulePolicy
from simulator.engines.sglang.engine import RETRACT_DECODE_STEPS, EngineConfig
from simulator.engines.sglang.new_token_ratio import NewTokenRatio
from simulator.engines.sglang.request import Request
from simulator.engines.vllm.speculation import accepted_drafts


class ForwardMode(Enum):
    """What a batch computes."""

    EXTEND = "extend"
    DECODE = "decode"
    MIXED = "mixed"  # some extend, the others decode


@dataclass(kw_only=True, eq=False)
class ScheduleBatch:
    """Requests that are computed together; the running batch is one, too."""

    reqs: list[Request] = field(default_factory=list)
    forward_mode: ForwardMode = ForwardMode.DECODE
    batch_is_full: bool = False
    chunked_req: Request | None = None
    decoding_reqs: list[Request] = field(default_factory=list)  # those that decode in a mixed batch
    extend_num_tokens: int = 0  # a batch that decodes keeps what it was when it prefilled, as SGLang's does

    def filter(self, excluded: Collection[Request | None] = ()) -> bool:
        """Drop finished requests and some others; whether there were any."""
        size = len(self.reqs)
        self.reqs = [request for request in self.reqs if not request.is_finished and request not in excluded]
        return len(self.reqs) < size


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """One decided batch; with no requests where nothing can be computed now."""

    forward_mode: ForwardMode
    num_tokens: dict[Request, int]  # computed in this batch, in its order
    prefix_lens: dict[Request, int]  # of those that extend: tokens computed before
    retracted: tuple[Request, ...]
    aborted: tuple[Request, ...]  # for want of memory, though alone; in mid-prompt, as the client has gone
    num_running: int
    num_waiting: int
    num_free_tokens: int
    num_evictable_tokens: int
    num_free_window_tokens: int  # 0 without a pool of windows
    num_evictable_window_tokens: int
    num_free_states: int  # 0 without a pool of states
    num_evictable_states: int
    new_token_ratio: float


class Scheduler:
    """Requests in, batches out."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.cache = KVCache(config)
        self.policy = SchedulePolicy(config, self.cache)
        self.new_token_ratio = NewTokenRatio(config.schedule_conservativeness)
        self.waiting_queue: list[Request] = []
        self.running_batch = ScheduleBatch()
        self.last_batch: ScheduleBatch | None = None
        self.chunked_req: Request | None = None
        self._pending_chunked_abort_req: Request | None = None
        self.result_queue: deque[Plan] = deque()
        self._retracted: list[Request] = []
        self._aborted: list[Request] = []
        self._num_queue_entries = 0
        self._num_processed_tokens = 0

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether anything waits, runs or is on its way."""
        is_computing = self.last_batch is not None or self.chunked_req is not None or bool(self.result_queue)
        return bool(self.waiting_queue or self.running_batch.reqs) or is_computing

    def add_request(self, request: Request) -> None:
        """Let a request wait. Raises `ValueError` for a prompt that SGLang rejects."""
        request.max_new_tokens = self.config.accepted_new_tokens(request.num_prompt_tokens, request.max_new_tokens)
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        self.waiting_queue.append(request)
        self._num_queue_entries += 1
        request.queue_entry = self._num_queue_entries
        request.arrival_processed_tokens = self._num_processed_tokens

    def abort(self, request: Request) -> None:
        """Its client has gone: it leaves the queue, or ends with its next output; in mid-prompt, before the next batch.

        What a request that ends with an output has computed stays in the tree.
        """
        if request in self.waiting_queue:
            self.waiting_queue.remove(request)
            request.is_finished = True
        elif not request.is_finished:
            request.is_aborted = True
            if request is self.chunked_req:
                self._pending_chunked_abort_req = request

    def _process_pending_chunked_abort(self) -> None:
        request, self._pending_chunked_abort_req = self._pending_chunked_abort_req, None
        if request is not None:
            self.cache.release(request, checkpoint=False)
            request.is_finished = True
            self.chunked_req = None
            self._aborted.append(request)

    def on_idle(self) -> None:
        """To be called where a turn of SGLang's loop finds nothing to do."""
        self.new_token_ratio.reset()

    def schedule(self) -> Plan:
        """Decide the next batch: one that prefills, if there is anything to prefill; else one that decodes."""
        return self.schedule_rest(self.schedule_prefill())

    def schedule_prefill(self) -> ScheduleBatch | None:
        """The first half of it: a batch that prefills, if there is anything to prefill."""
        self._retracted, self._aborted = [], []
        self._process_pending_chunked_abort()
        self._merge_last_batch()
        return self.get_new_batch_prefill()

    def schedule_rest(self, batch: ScheduleBatch | None, *, waits: bool = False) -> Plan:
        """The rest: without one, a batch that decodes, unless it `waits` for another rank's that prefills."""
        if batch is None and self.running_batch.reqs and not waits:
            batch = self.update_running_batch()
        self.last_batch = batch
        plan = self._plan(batch)
        if batch is not None:
            self._num_processed_tokens += batch.extend_num_tokens
            self.result_queue.append(plan)
        return plan

    def complete(self, plan: Plan) -> list[Request]:
        """Take in a batch's output. Returns the requests that it finished."""
        if not plan.num_tokens:
            return []
        assert self.result_queue.popleft() is plan, "batches are completed in the order in which they were decided"
        return [request for request in plan.num_tokens if self._process(request, plan)]

    def _process(self, request: Request, plan: Plan) -> bool:
        """Append a request's token; whether it is its last."""
        if request.is_finished or request.is_retracted:
            return False  # it ended, or started over, in the batch before
        if request in plan.prefix_lens and request.num_inflight_middle_chunks > 0:
            request.num_inflight_middle_chunks -= 1
            return False
        num_verified = self._num_verified(request, plan)
        self._track(request, plan, num_verified)
        request.is_finished = request.has_all_outputs
        self._commit(request, plan, num_verified)
        if request.is_finished:
            self.cache.release(request, checkpoint=True)
        elif request in plan.prefix_lens:
            self.cache.checkpoint(request)
        return request.is_finished

    def _track(self, request: Request, plan: Plan, num_tokens: int) -> None:
        """Append an output's tokens, and note whether a state was kept on the way."""
        states = self.cache.states if plan.forward_mode is ForwardMode.DECODE else None
        if states is not None and self.config.speculation is None:
            states.track_decode(request)
        request.num_output_tokens += num_tokens
        if states is not None and self.config.speculation is not None:
            states.track_verified(request, num_tokens)

    def _num_verified(self, request: Request, plan: Plan) -> int:
        """How many tokens an output has of a request: one, and the drafts that are accepted, of which a mixed batch
        has none. What a request would have written after its content is not known, and so not drafted."""
        speculation = self.config.speculation
        if speculation is None or plan.forward_mode is not ForwardMode.DECODE:
            return 1
        num_known = request.spans[-1][1] - request.num_tokens
        return max(1, min(1 + accepted_drafts(request.id, request.num_output_tokens, speculation.rates), num_known))

    def _commit(self, request: Request, plan: Plan, num_tokens: int) -> None:
        """Count what was verified as computed; what ends in a mixed batch leaves its last token out."""
        decodes_alone = plan.forward_mode is ForwardMode.DECODE
        if self.config.speculation is not None and request not in plan.prefix_lens:
            request.committed_len += num_tokens * (decodes_alone or not request.is_finished)

    # -- the next batch

    def _merge_last_batch(self) -> None:
        """Requests that were prefilled run from now on, except one with chunks left."""
        if self.chunked_req is not None and self.chunked_req.extend_len > 0:
            self.cache.checkpoint(self.chunked_req)
        last = self.last_batch
        if last is not None and last.forward_mode is not ForwardMode.DECODE:
            if last.filter((self.chunked_req, last.chunked_req)):
                self.running_batch.batch_is_full = False
            if last.reqs and not self.running_batch.reqs:
                self.running_batch = last
            elif last.reqs:
                self.running_batch.reqs = self.running_batch.reqs + last.reqs
        if self.running_batch.filter():
            self.running_batch.batch_is_full = False

    # -- prefill

    def get_new_batch_prefill(self) -> ScheduleBatch | None:
        """A batch of the chunked request, if there is one, and of those waiting who fit."""
        running = self.running_batch
        if not running.reqs or self.cache.windows is not None:
            running.batch_is_full = False
        if self.chunked_req is None:
            if running.batch_is_full or not self.waiting_queue:
                return None
            if self._num_allocatable_reqs() <= 0:
                running.batch_is_full = True
                return None
        self.policy.sort(self.waiting_queue, running.reqs, self._num_processed_tokens)
        adder = PrefillAdder(self.config, self.cache, running.reqs, self.new_token_ratio.current)
        if self.chunked_req is not None:
            limit = self.policy.shortest_prefill_chunk_limit(
                self.chunked_req, self.waiting_queue, adder.rem_chunk_tokens or 0
            )
            self.chunked_req = adder.add_chunked_req(self.chunked_req, limit)
        self._admit_waiting(adder)
        return self._extend_batch(adder) if adder.can_run_list else None

    def _num_allocatable_reqs(self, num_held_rows: int = 0) -> int:
        """Requests that may join; `num_held_rows` of them have their row already."""
        num_left = self.config.max_running_requests - len(self.running_batch.reqs)
        return min(num_left, self.cache.num_free_rows + num_held_rows)

    def _admit_waiting(self, adder: PrefillAdder) -> None:
        """In the queue's order, up to the first that does not fit."""
        running = self.running_batch
        for request in self.waiting_queue:
            if adder.budget_state() is AddReqResult.OTHER:
                return
            num_held_rows = sum(each.holds_kv for each in adder.can_run_list)
            if len(adder.can_run_list) >= self._num_allocatable_reqs(num_held_rows):
                running.batch_is_full = True
            if running.batch_is_full:
                return
            self.cache.match_for_prefill(request)
            verdict = adder.add_one_req(request, has_chunked_req=self.chunked_req is not None)
            if request not in adder.can_run_list:
                self.cache.give_up_match(request)
            if verdict is AddReqResult.NO_TOKEN:
                running.batch_is_full = bool(adder.can_run_list or running.reqs)
            if verdict is not AddReqResult.CONTINUE:
                return

    def _extend_batch(self, adder: PrefillAdder) -> ScheduleBatch:
        admitted = {*adder.can_run_list}
        self.waiting_queue = [request for request in self.waiting_queue if request not in admitted]
        if adder.new_chunked_req is not None:
            assert self.chunked_req is None, "two requests are cut into chunks"
            self.chunked_req = adder.new_chunked_req
        if self.chunked_req is not None:
            self.chunked_req.num_inflight_middle_chunks += 1
        for request in adder.can_run_list:
            request.is_retracted = False
            if request.num_cached_tokens is None:
                request.num_cached_tokens = request.prefix_len
        self.cache.allocate_extend(adder.can_run_list)
        batch = ScheduleBatch(
            reqs=adder.can_run_list,
            forward_mode=ForwardMode.EXTEND,
            chunked_req=self.chunked_req,
            extend_num_tokens=sum(request.extend_len for request in adder.can_run_list),
        )
        if self.config.is_mixed_chunk and self.running_batch.reqs:
            self._mix_with_running(batch)
        return batch

    def _mix_with_running(self, batch: ScheduleBatch) -> None:
        """Let running requests decode in a batch that prefills, if there is room for them all."""
        running = self.running_batch
        if running.filter(self._reqs_finishing_inflight()):
            running.batch_is_full = False
        if not running.reqs or not self.cache.fits_decode(running.reqs):
            return
        self.cache.allocate_decode(running.reqs)
        batch.decoding_reqs = running.reqs
        batch.reqs = batch.reqs + running.reqs
        batch.forward_mode = ForwardMode.MIXED
        batch.extend_num_tokens += len(running.reqs)
        self.running_batch = ScheduleBatch(batch_is_full=running.batch_is_full)

    # -- decode

    def update_running_batch(self) -> ScheduleBatch | None:
        """Make room for a token of each running request, if need be by retraction; None: wait for memory."""
        running = self.running_batch
        finishing = self._reqs_finishing_inflight()
        is_smaller = running.filter(finishing)
        if not running.reqs:
            running.batch_is_full = False
            return None
        if self.cache.fits_decode(running.reqs):
            self.new_token_ratio.decay_step()
        elif finishing:  # those that end now free theirs
            running.batch_is_full = False
            return None
        else:
            self._retract_decode()
            is_smaller = True
        if is_smaller:
            running.batch_is_full = False
        if not running.reqs:
            return None
        running.forward_mode = ForwardMode.DECODE
        self.cache.allocate_decode(running.reqs)
        return running

    def _reqs_finishing_inflight(self) -> set[Request]:
        """Requests whose last token, by the length of their answer, is on its way."""
        on_their_way = self.result_queue[0].num_tokens if self.result_queue else {}
        return {
            request
            for request in self.running_batch.reqs
            if request in on_their_way and request.next_output_finishes_by_length
        }

    def _retract_decode(self) -> None:
        """Take the requests with the shortest answers, among them the longest prompts, back to the queue."""
        kept = sorted(
            self.running_batch.reqs, key=lambda each: (each.num_output_tokens, -each.num_prompt_tokens), reverse=True
        )
        while len(kept) > 1 and not (self._retracted and self.cache.fits_decode(kept)):
            self._retracted.append(kept.pop())
            self._start_over(self._retracted[-1], len(kept))
        if len(kept) == 1 and not self.cache.fits_decode(kept):
            self._aborted.append(kept.pop())
            self._start_over(self._aborted[-1], 0)
        if len(kept) < len(self.running_batch.reqs):
            self.running_batch.reqs = kept
        self.new_token_ratio.after_retraction(kept)
        for request in self._retracted:
            self._enqueue(request)

    def _start_over(self, request: Request, num_remaining: int) -> None:
        """Drop what it holds, and evict at once for those that stay."""
        self.cache.release(request, checkpoint=False)
        self.cache.evict_to_free(num_remaining * RETRACT_DECODE_STEPS)
        request.retract()

    # -- shared

    def _plan(self, batch: ScheduleBatch | None) -> Plan:
        batch = batch or ScheduleBatch()
        is_decode = batch.forward_mode is ForwardMode.DECODE
        decoding = {*(batch.reqs if is_decode else batch.decoding_reqs)}
        return Plan(
            forward_mode=batch.forward_mode,
            num_tokens={request: 1 if request in decoding else request.extend_len for request in batch.reqs},
            prefix_lens={request: request.prefix_len for request in batch.reqs if request not in decoding},
            retracted=tuple(self._retracted),
            aborted=tuple(self._aborted),
            num_running=len(self.running_batch.reqs),
            num_waiting=len(self.waiting_queue),
            num_free_tokens=self.cache.pool.available_size,
            num_evictable_tokens=self.cache.tree.evictable_size,
            num_free_window_tokens=0 if self.cache.window_pool is None else self.cache.window_pool.available_size,
            num_evictable_window_tokens=0 if self.cache.windows is None else self.cache.windows.evictable_size,
            num_free_states=0 if self.cache.states is None else self.cache.states.num_free,
            num_evictable_states=0 if self.cache.states is None else self.cache.states.states.num_evictable,
            new_token_ratio=self.new_token_ratio.current,
        )
