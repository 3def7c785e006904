"""vLLM's V1 scheduler in plain Python, readable first.

There is no prefill phase and no decode phase. A request has tokens that are known (its prompt, what it has answered,
drafts to verify) and tokens that are computed, and each step lets it catch up by as many as the step's token budget
leaves for it: a long prompt in chunks, an answer by one token a step, a drafting request by one and its drafts.
Running requests come first, in the order of admission, then waiting ones. Where the KV cache is full, the running
request that came last gives up its blocks and starts over.

`schedule()` decides one step and advances `num_computed` at once, as vLLM does; the plan is handed back to
`complete(plan)` when its step is over. Under asynchronous scheduling a step is decided before the output of the one
before it is known: each sampled token is a placeholder until its step completes.

Read from vLLM 0.32 and 0.33: `vllm/v1/core/sched/scheduler.py`, `async_scheduler.py`, `kv_cache_manager.py`.
"""

from bisect import insort
from collections.abc import Iterator
from itertools import takewhile

from conformance.reference.vllm.adapters import AdapterSlots
from conformance.reference.vllm.encoder import Encoder
from conformance.reference.vllm.kv_cache_manager import KVCacheManager
from conformance.reference.vllm.prefill_cadence import PrefillCadence
from conformance.reference.vllm.requests import Plan, Request
from conformance.reference.vllm.states import Chunk, tokens_up_to_state
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.speculation import accepted_drafts


class Scheduler:
    """Decides, step by step, which request computes how many tokens in which blocks."""

    plan_type = Plan

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.blocks = KVCacheManager(config)
        self.running: list[Request] = []
        self.waiting: list[Request] = []  # in the order of admission
        self.step = 0
        self.adapters = AdapterSlots(config.adapters) if config.adapters else None
        self.encoder = Encoder(config.encoder)
        self.cadence = PrefillCadence(config)
        self._threshold, self._scan_ends = 0, False
        self._drops_stale_output = False  # of preempted requests

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self.running or self.num_waiting)

    def add_request(self, request: Request) -> None:
        self._enqueue(self.waiting, request)

    def _enqueue(self, queue: list[Request], request: Request) -> None:
        if self._by_priority:
            insort(queue, request, key=lambda waiting: waiting.rank)
        else:
            queue.append(request)

    def schedule(self, *, throttle_prefills: bool = False) -> Plan:
        """`throttle_prefills`: the ranks of a server are between two steps that compute prompts."""
        self.step += 1
        self.blocks.new_step()
        self.encoder.new_step()
        self.cadence.open_step(self.running, throttle_prefills=throttle_prefills)
        plan = self.plan_type(step=self.step)
        self._threshold = self._long_prefill_token_threshold()
        budget = self._schedule_running(plan, self.config.token_budget)
        if not plan.preempted:
            self._schedule_waiting(plan, budget)
        self.cadence.close_step(plan, self.waiting)
        self._advance(plan)
        plan.encoded = self.encoder.encoded
        plan.free_blocks = self.blocks.pool.num_free
        plan.num_running, plan.num_waiting = len(self.running), self.num_waiting
        plan.num_adapters = len({request.adapter for request in self.running}) if self.adapters else 0
        return plan

    def complete(self, plan: Plan) -> list[Request]:
        """Process a step's output, a token for each sampled request and its right drafts; returns who finished."""
        finished = []
        for request, num_tokens in plan.num_scheduled_tokens.items():
            request.num_in_flight_tokens -= num_tokens
            is_stale = request.num_stale_output_tokens > 0
            request.num_stale_output_tokens -= num_tokens if is_stale else 0
            if request.is_finished or (is_stale and self._drops_stale_output):  # a step that was one too many
                continue
            self.encoder.cache.free_computed(request)
            if request not in plan.sampled:
                continue
            num_accepted = self._verify(request, plan, is_stale)
            if self._deliver_tokens(request, 1 + num_accepted, is_stale):
                finished.append(request)
            elif not self.config.async_scheduling:
                request.num_spec_tokens = self.config.num_speculative_tokens
        for request in finished:
            self._finish(request)
        return finished

    def abort(self, request: Request) -> None:
        """Take out a request whose client has gone (vLLM: `finish_requests`), and free its blocks at once.

        What they cache stays findable. A step in flight goes on; what it samples for the request is dropped.
        """
        assert not request.is_finished, "a request ends once"
        self._finish(request)

    @property
    def _by_priority(self) -> bool:
        return self.config.scheduling_policy == "priority"

    def _long_prefill_token_threshold(self) -> int:
        """It keeps a long prompt from starving others, so a request alone is not held to it."""
        alone = len(self.running) + self.num_waiting <= 1
        return 0 if alone and self.config.threshold_spares_lone_request else self.config.long_prefill_token_threshold

    def _capped(self, num_tokens: int) -> int:
        return min(num_tokens, self._threshold) if self._threshold else num_tokens

    # -- running requests

    def _schedule_running(self, plan: Plan, budget: int) -> int:
        slots = self.config.draft_slots
        index, self._scan_ends = 0, False
        while index < len(self.running) and budget > slots:
            request = self.running[index]
            num_new_tokens = self._want(request, budget - slots)
            if self.cadence.defers and request.is_prefill_chunk:
                num_new_tokens = 0
            images = self.encoder.plan(request, request.num_computed_tokens, num_new_tokens)
            num_new_tokens = images.num_new_tokens
            if num_new_tokens == 0:  # nothing to compute now; the scan goes on
                index += 1
                continue
            for victim, place in self._allocate_or_preempt(request, num_new_tokens, plan):
                refund = plan.num_scheduled_tokens.pop(victim, 0)
                plan.num_drafts.pop(victim, None)
                self.encoder.unschedule(victim)
                budget += refund + slots if refund else 0
                if refund or (place < index and self.config.skipped_victim_shifts_scan):
                    index -= 1
            if self._scan_ends:
                break
            if not request.is_running:  # it preempted itself
                if not self.config.scan_goes_past_self_preemption:
                    break
                continue
            plan.num_scheduled_tokens[request] = num_new_tokens
            self.cadence.has_prefill |= request.is_prefill_chunk
            self.encoder.commit(request, images)
            num_drafts = self._num_drafts(request, num_new_tokens)
            if num_drafts > 0:
                plan.num_drafts[request] = num_drafts
            request.num_spec_tokens = 0
            budget -= num_new_tokens + slots
            index += 1
        return budget

    def _want(self, request: Request, budget: int) -> int:
        placeholders, computed = request.num_output_placeholders, request.num_computed_tokens
        if placeholders > 0 and computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens:
            return 0  # the token that ends it is in flight already
        if self.step < request.next_decode_eligible_step:
            return 0
        wanted = self._capped(request.num_tokens + request.num_spec_tokens + placeholders - computed)
        wanted = min(wanted, budget, self.config.max_model_len - 1 - computed)
        return self._up_to_state(request, computed, wanted)

    def _up_to_state(self, request: Request, start: int, num_tokens: int) -> int:
        """The tokens of a chunk, as many as states allow that the prefix cache keeps."""
        chunk = Chunk(start, start + num_tokens, request.prefill_end)
        return tokens_up_to_state(self.config, chunk, request.num_tokens, request.table.shared_prefix_boundary)

    def _num_drafts(self, request: Request, num_new_tokens: int) -> int:
        known = request.num_tokens + request.num_output_placeholders
        return min(request.num_computed_tokens + num_new_tokens - known, request.num_spec_tokens)

    def _allocate_or_preempt(self, request: Request, num_new_tokens: int, plan: Plan) -> Iterator[tuple[Request, int]]:
        """Give the request its blocks, preempting until they are free, itself in the end; who was, from which place."""
        num_tokens = request.num_computed_tokens + num_new_tokens
        chunk = Chunk(request.num_computed_tokens, num_tokens, request.prefill_end)
        self.blocks.free_skipped(request.table, request.num_computed_tokens - request.num_in_flight_tokens)
        while not self.blocks.allocate(request.table, chunk, self._with_lookahead(num_tokens)):
            victim = self._victim()
            if not self._may_preempt(victim):
                self._scan_ends = True
                return
            place = self.running.index(victim)
            self._stop_running(place)
            self._preempt(victim)
            plan.preempted.append(victim)
            yield victim, place
            if victim is request:
                return
        self._cache(request, num_tokens)

    def _cache(self, request: Request, num_tokens: int) -> None:
        """Make what its first `num_tokens` tokens fill findable, as far as tokens are known that the hashes cover."""
        num_hashed = request.num_tokens - self.config.hash_lookahead_tokens
        self.blocks.cache(request.table, min(num_tokens, num_hashed))

    def _with_lookahead(self, num_tokens: int) -> int:
        return min(num_tokens + self.config.num_lookahead_tokens, self.config.max_model_len)

    def _victim(self) -> Request:
        if self._by_priority:
            return max(self.running, key=lambda request: (request.priority, request.arrival_s))
        return self.running[-1]

    def _may_preempt(self, _: Request) -> bool:
        """Whether preempting it frees its blocks at once."""
        return True

    def _preempt(self, request: Request) -> None:
        """Free everything and recompute later; outputs are kept, and one in flight is still delivered."""
        self.blocks.free(request.table)
        self.encoder.cache.free(request)
        request.num_computed_tokens = 0
        request.num_spec_tokens = 0
        request.num_stale_output_tokens = request.num_in_flight_tokens
        request.num_output_placeholders = 0
        request.num_preemptions += 1
        request.is_running = request.is_passed_over = False
        if self._by_priority:
            self._enqueue(self.waiting, request)
        else:
            self.waiting.insert(self._num_passed_over(), request)

    def _num_passed_over(self) -> int:
        """How many at the head of the queue go before a preempted request: older releases keep them apart."""
        if self.config.passed_over_keep_place:
            return 0
        return sum(1 for _ in takewhile(lambda request: request.is_passed_over, self.waiting))

    # -- waiting requests

    def _schedule_waiting(self, plan: Plan, budget: int) -> None:
        slots, adapters = self.config.draft_slots, self._running_adapters(plan)
        joins = bool(plan.num_scheduled_tokens), any(request.is_prefill_chunk for request in plan.num_scheduled_tokens)
        for request in list(self.waiting):
            if budget <= slots or len(self.running) >= self.config.max_num_seqs:
                break
            if request.num_stale_output_tokens > 0:  # resuming now could sample a token twice: skipped, not blocking
                request.is_passed_over = True
                continue
            if self._exceeds_max_loras(request, adapters):  # skipped, not blocking
                request.is_passed_over = True
                continue
            num_new_tokens = self._admit(request, budget - slots, plan, *joins)
            if num_new_tokens is None:  # the encoder has no place for its next image: skipped, not blocking
                request.is_passed_over = True
                continue
            if num_new_tokens == 0:
                break
            self.waiting.remove(request)
            self._use_adapter(request, plan, adapters)
            self.running.append(request)
            plan.num_scheduled_tokens[request] = num_new_tokens
            budget -= num_new_tokens + slots

    def _running_adapters(self, plan: Plan) -> set[int | None]:
        """LoRA adapters that count towards `max_loras` as waiting requests are looked at."""
        counted = self.running if self.config.idle_adapters_count else plan.num_scheduled_tokens
        return {request.adapter for request in counted}

    def _exceeds_max_loras(self, request: Request, running: set[int | None]) -> bool:
        adapters = self.config.adapters
        return adapters is not None and request.adapter not in running and len(running) == adapters.max_loras

    def _use_adapter(self, request: Request, plan: Plan, used: set[int | None]) -> None:
        """A waiting request begins to run, beside others with the adapters `used`."""
        if self.adapters is not None and request.adapter is not None and request.adapter not in used:
            num_read, num_copied = self.adapters.activate(request.adapter, used)
            plan.adapters_loaded = plan.adapters_loaded[0] + num_read, plan.adapters_loaded[1] + num_copied
        used.add(request.adapter)

    def _stop_running(self, place: int) -> None:
        request = self.running.pop(place)
        if (
            self.adapters
            and request.adapter is not None
            and all(other.adapter != request.adapter for other in self.running)
        ):
            self.adapters.release(request.adapter, self.step)

    def _admit(self, request: Request, budget: int, plan: Plan, any_runs: bool, any_prefills: bool) -> int | None:
        """Take the request's blocks for its next chunk; 0 if it does not fit, None if its next image does not."""
        hit = self.blocks.find_hit(request.table, request.num_tokens)
        computed = hit.num_tokens + self._found_elsewhere(request, hit.num_tokens)
        is_prefill = computed < request.num_tokens - 1
        num_new_tokens, is_padded = request.num_tokens - computed, False
        if num_new_tokens == 1 and not any_prefills and self._pads(any_runs, computed):
            num_padded = 1 + self.config.num_speculative_tokens
            has_room = self._has_room_to_pad(computed + num_padded)
            if (has_room and num_padded > budget) or not (has_room or self.config.prefix_hit_joins_drafting):
                return 0  # rather not scheduled than not padded
            if has_room:
                is_padded, num_new_tokens = True, num_padded
        num_new_tokens = self._capped(num_new_tokens)
        is_cut = num_new_tokens > budget and not self.config.enable_chunked_prefill
        if is_cut or (is_prefill and self.cadence.defers):
            return 0
        num_new_tokens = self._up_to_state(request, computed, min(num_new_tokens, budget))
        if num_new_tokens == 0:
            return 0
        images = self.encoder.plan(request, computed, num_new_tokens)
        num_new_tokens = images.num_new_tokens
        if num_new_tokens == 0:
            return None
        num_tokens = computed + num_new_tokens
        is_admitted = self.blocks.admit(
            request.table,
            hit,
            Chunk(computed, num_tokens, request.prefill_end),
            num_tokens=self._with_lookahead(num_tokens),
            full_tokens=self._reserved_tokens(request),
            watermark=self.config.watermark_blocks if self.running else 0,
        )
        if not is_admitted:
            self.encoder.cache.free(request)
            return 0
        self.encoder.commit(request, images)
        request.num_computed_tokens = computed
        request.is_running = True
        self.cadence.has_prefill |= is_prefill
        if request.num_cached_tokens is None:
            request.num_cached_tokens = computed
        if is_padded:
            plan.num_drafts[request] = self.config.num_speculative_tokens
            plan.padded.add(request)
        self._cache(request, num_tokens)
        return num_new_tokens

    def _found_elsewhere(self, _request: Request, _num_local_tokens: int) -> int:
        """Tokens beyond a prefix hit on the GPU that are loaded within the step."""
        return 0

    def _reserved_tokens(self, request: Request) -> int:
        """What must fit for a request to be admitted, beside its next chunk; 0: nothing."""
        return min(request.num_tokens, self.config.max_model_len) if self.config.scheduler_reserve_full_isl else 0

    def _pads(self, any_runs: bool, num_hit_tokens: int) -> bool:
        """Whether a request with one token left is widened to a drafting step, as the others of the step are."""
        joins = any_runs or (num_hit_tokens > 0 and self.config.prefix_hit_joins_drafting)
        return self.config.speculation is not None and joins

    def _has_room_to_pad(self, num_tokens: int) -> bool:
        return num_tokens + self.config.prefix_hit_joins_drafting <= self.config.max_model_len  # a sampled one too

    # -- shared

    def _advance(self, plan: Plan) -> None:
        for request, num_tokens in plan.num_scheduled_tokens.items():
            request.num_computed_tokens += num_tokens
            request.num_in_flight_tokens += num_tokens
            known = request.num_tokens + request.num_output_placeholders
            request.is_prefill_chunk = request.num_computed_tokens < known
            if request.is_prefill_chunk:
                continue
            plan.sampled.add(request)
            if self.config.async_scheduling:
                request.num_output_placeholders += 1 + plan.num_drafts.get(request, 0)
                request.num_spec_tokens = self.config.num_speculative_tokens
                request.next_decode_eligible_step = self.step + self.config.decode_stagger

    def _verify(self, request: Request, plan: Plan, is_stale: bool) -> int:
        """How many drafts were right; the others are taken back, unless the request has started over."""
        num_drafts = plan.num_drafts.get(request, 0)
        if num_drafts == 0 or self.config.speculation is None:
            return 0
        num_accepted = 0
        if request not in plan.padded:
            rates = self.config.speculation.rates[:num_drafts]
            num_accepted = accepted_drafts(request.id, request.num_output_tokens, rates)
        if not is_stale:
            request.num_computed_tokens -= num_drafts - num_accepted
            if self.config.async_scheduling:
                request.num_output_placeholders -= num_drafts - num_accepted
        return num_accepted

    def _deliver_tokens(self, request: Request, num_tokens: int, is_stale: bool) -> bool:
        """Append tokens up to the one that ends the request; whether there is one."""
        ends_at = min(request.max_tokens, self.config.max_model_len - request.num_prompt_tokens)
        num_tokens = min(num_tokens, ends_at - request.num_output_tokens)
        request.num_output_tokens += num_tokens
        if self.config.async_scheduling and not is_stale:
            request.num_output_placeholders -= num_tokens
        if self.config.caches_on_delivery and request.is_running:
            self._cache(request, request.num_tokens - 1)  # all but the latest token are computed
        return request.num_output_tokens >= ends_at

    def _finish(self, request: Request) -> None:
        request.is_finished = True
        self.encoder.cache.free(request)
        if request.is_running:
            self._stop_running(self.running.index(request))
            self.blocks.free(request.table)
        else:
            self.waiting.remove(request)
