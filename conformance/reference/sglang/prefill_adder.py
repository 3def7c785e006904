"""Which requests join a prefill batch, and with how many tokens: SGLang's `PrefillAdder`.

Three budgets limit a batch: `max_prefill_tokens`, `chunked_prefill_size`, and memory, of which running requests count
with what they are expected to write. All are charged in whole pages.

Read from SGLang 0.5.23: `srt/managers/schedule_policy.py` (`PrefillAdder`), `srt/mem_cache/prefill_budget.py`.
"""

from collections.abc import Sequence
from enum import Enum, auto

from conformance.reference.sglang.kv_cache import KVCache
from simulator.engines.sglang.engine import CLIP_MAX_NEW_TOKENS, EngineConfig
from simulator.engines.sglang.request import Request


class AddReqResult(Enum):
    """Whether another request may be tried."""

    CONTINUE = auto()
    NO_TOKEN = auto()  # memory is spent
    OTHER = auto()  # the batch is full


class PrefillAdder:
    """One prefill batch in the making."""

    def __init__(
        self, config: EngineConfig, cache: KVCache, running: Sequence[Request], new_token_ratio: float
    ) -> None:
        num_mixed_tokens = len(running) if config.is_mixed_chunk else 0
        self.config, self.cache, self.running, self.new_token_ratio = config, cache, running, new_token_ratio
        self.rem_input_tokens = config.max_prefill_tokens - num_mixed_tokens
        self.rem_chunk_tokens = config.chunked_prefill_size
        if self.rem_chunk_tokens is not None:
            self.rem_chunk_tokens -= num_mixed_tokens
        self.current_offset = num_mixed_tokens
        self.total_offset = num_mixed_tokens + sum([self._expected_tokens(request) for request in running])
        self.window_offset = 0
        self.can_run_list: list[Request] = []
        self.new_chunked_req: Request | None = None
        self._answers: list[tuple[float, int]] | None = None  # (tokens left, tokens held), the soonest to end first

    @property
    def rem_total_tokens(self) -> float:
        """Memory that is neither taken nor spoken for."""
        return self.cache.available_and_evictable - self.total_offset

    @property
    def cur_rem_tokens(self) -> int:
        """The same without the answers that are yet to be written."""
        return self.cache.available_and_evictable - self.current_offset

    @property
    def rem_window_tokens(self) -> float:
        """What is left of the pool of windows, without what running requests will write: their windows slide."""
        return self.cache.window_available_and_evictable - self.window_offset

    def budget_state(self) -> AddReqResult:
        """Whether a budget is spent."""
        if self.rem_total_tokens <= 0 or self.cur_rem_tokens <= 0 or self.rem_window_tokens <= 0:
            return AddReqResult.NO_TOKEN
        if self.rem_input_tokens <= 0 or (self.rem_chunk_tokens is not None and self.rem_chunk_tokens <= 0):
            return AddReqResult.OTHER
        return AddReqResult.CONTINUE

    def add_chunked_req(self, request: Request, limit: int | None) -> Request | None:
        """Go on with a request of which a chunk is computed. Returns it where a further chunk is left.

        With a pool of windows, it waits where memory lacks for a chunk.
        """
        assert self.rem_chunk_tokens is not None
        rem_tokens = min(self.rem_chunk_tokens, int(self.rem_total_tokens))
        if self.cache.windows is not None:
            rem_tokens = min(rem_tokens, int(self.rem_window_tokens) - self.config.page_size)
        if rem_tokens <= 0:
            if self.cache.windows is not None:
                return request
            rem_tokens = self.rem_chunk_tokens  # only by going on can it ever give back what it holds
        if limit is not None:
            rem_tokens = min(rem_tokens, limit)
        remaining = request.num_tokens - request.prefix_len
        is_truncated = remaining > rem_tokens
        self._add(request, min(remaining, rem_tokens), 0 if is_truncated else _clipped(request.max_new_tokens))
        return request if is_truncated else None

    def add_one_req(self, request: Request, *, has_chunked_req: bool) -> AddReqResult:
        """Try a waiting request, whose prefix is matched; what does not fit the chunk is left for the next batch."""
        if request.ignore_eos and self.config.disable_radix_cache:
            return self._add_one_req_ignore_eos(request)
        assert request.last_node is not None
        window_lock_start = self.cache.tree.lock(request.last_node)  # what it matched cannot be evicted for it
        extend_len = request.num_tokens - request.prefix_len
        max_new_tokens = _clipped(max(request.max_new_tokens - request.num_output_tokens, 0))
        chunk_limit = self._chunk_limit(extend_len, max_new_tokens)
        if extend_len + max_new_tokens + self.config.page_size >= self.rem_total_tokens or chunk_limit == 0:
            verdict = AddReqResult.NO_TOKEN
        else:
            verdict = self._add_whole_or_chunk(request, extend_len, chunk_limit, has_chunked_req)
        if request in self.can_run_list:
            request.lock, request.window_lock_start = request.last_node, window_lock_start
            return self.budget_state()
        self.cache.tree.unlock(request.last_node, window_lock_start)
        return verdict

    def _chunk_limit(self, extend_len: int, max_new_tokens: int) -> int | None:
        """The most tokens of a chunk, None for no limit: fewer where the pool of windows never holds the whole prompt.

        0 where it does not hold it now.
        """
        windows, page_size = self.cache.windows, self.config.page_size
        needed = self._window_tokens(self.cache.ceil_paged(extend_len), max_new_tokens)
        if windows is None or needed < self.rem_window_tokens:
            return self.rem_chunk_tokens
        if self.rem_chunk_tokens is None or needed < self.config.swa_max_total_num_tokens:
            return 0
        in_pool = int(self.rem_window_tokens) - self._window_tokens(0, max_new_tokens)
        return max(0, min(self.rem_chunk_tokens, in_pool // page_size * page_size))

    def _window_tokens(self, extend_len: int, max_new_tokens: int) -> int:
        """What a prefill takes of the pool of windows: what a chunk computes beyond a window, and that window."""
        if self.cache.windows is None:
            return 0
        window = self.cache.windows.window
        computed = extend_len if self.rem_chunk_tokens is None else min(extend_len, self.rem_chunk_tokens)
        return max(computed - window, 0) + min(extend_len + max_new_tokens, window) + self.config.page_size

    def _add_whole_or_chunk(
        self, request: Request, extend_len: int, chunk_limit: int | None, has_chunked_req: bool
    ) -> AddReqResult:
        input_tokens = self.cache.ceil_paged(extend_len)
        if chunk_limit is None:
            if self.can_run_list and input_tokens >= self.rem_input_tokens:
                return AddReqResult.OTHER
        elif input_tokens > chunk_limit:
            if has_chunked_req and self.config.schedule_policy == "shortest-prefill-first":
                return AddReqResult.OTHER
            chunk = self._whole_pages(request.prefix_len + self._whole_pages(chunk_limit))
            if chunk <= request.prefix_len:
                return AddReqResult.OTHER
            self.new_chunked_req = request
            self._add(request, chunk - request.prefix_len, 0)
            return AddReqResult.CONTINUE
        self._add(request, extend_len, _clipped(request.max_new_tokens))
        return AddReqResult.CONTINUE

    def _add(self, request: Request, extend_len: int, max_new_tokens: int) -> None:
        request.extend_end = request.prefix_len + extend_len
        self.can_run_list.append(request)
        charge = self.cache.ceil_paged(extend_len)
        self.total_offset += charge + self.config.page_size + max_new_tokens
        self.current_offset += charge + self.config.page_size
        self.window_offset += self._window_tokens(charge, max_new_tokens)
        self.rem_input_tokens -= charge
        if self.rem_chunk_tokens is not None:
            self.rem_chunk_tokens -= charge

    # -- answers of a known length, without a radix cache: their memory is foreseen step by step

    def _add_one_req_ignore_eos(self, request: Request) -> AddReqResult:
        extend_len = request.num_tokens - request.prefix_len
        paged_input = self.cache.ceil_paged(extend_len) + self.config.page_size
        if paged_input > min(self.cur_rem_tokens, self.rem_total_tokens):
            return AddReqResult.NO_TOKEN
        if self.cache.windows is None:
            fits = self._fits_until_answers_end(request, self.cur_rem_tokens - paged_input)
        else:
            max_new_tokens = _clipped(max(request.max_new_tokens - request.num_output_tokens, 0))
            fits = self._window_tokens(extend_len, max_new_tokens) <= self.rem_window_tokens
        if not fits:
            return AddReqResult.NO_TOKEN
        if self.rem_chunk_tokens is None or extend_len <= self.rem_chunk_tokens:
            self._add(request, extend_len, _clipped(request.max_new_tokens))
        elif self.rem_chunk_tokens <= 0:
            return AddReqResult.OTHER
        else:
            self.new_chunked_req = request
            self._add(request, self.rem_chunk_tokens, 0)
        return self.budget_state()

    def _fits_until_answers_end(self, request: Request, num_free: int) -> bool:
        """Whether memory lasts until each answer ends, as each gives back what it holds."""
        if self._answers is None:
            answers = [self._answer(each) for each in (request, *self.running, *self.can_run_list)]
            self._answers = sorted((each for each in answers if each[0] > 0), key=lambda each: each[0])
        else:
            self._insert_answer(self._answer(request))
        freed = 0
        for place, (tokens_left, tokens_held) in enumerate(self._answers):
            count = len(self._answers) - place
            if num_free + freed - tokens_left * count <= count:
                return False
            freed += tokens_held
        return True

    def _insert_answer(self, answer: tuple[float, int]) -> None:
        assert self._answers is not None
        if answer[0] <= 0:
            return
        last = max(len(self._answers) - 1, 0)  # SGLang puts the longest before the last one
        place = next((at for at, each in enumerate(self._answers) if answer[0] <= each[0]), last)
        self._answers.insert(place, answer)

    def _answer(self, request: Request) -> tuple[float, int]:
        expected = request.max_new_tokens * (1.0 if request.ignore_eos else self.new_token_ratio)
        return expected - request.num_output_tokens, request.num_tokens

    # -- shared

    def _expected_tokens(self, request: Request) -> float:
        ratio = 1.0 if request.ignore_eos else self.new_token_ratio
        return _clipped(request.max_new_tokens - request.num_output_tokens) * ratio

    def _whole_pages(self, num_tokens: int) -> int:
        return num_tokens // self.config.page_size * self.config.page_size


def _clipped(max_new_tokens: int) -> int:
    return min(max_new_tokens, CLIP_MAX_NEW_TOKENS)
