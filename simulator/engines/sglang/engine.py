"""What SGLang's scheduler decides by, once every default is known."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from files.errors import HeadcountError
from kvcache.memory.state_pools import EXTRA_BUFFER, STATES_PER_REQUEST, STRATEGIES
from simulator.engines.sglang.eviction import EVICTION_POLICIES, TailBudget
from simulator.engines.vllm.speculation import Speculation

CACHE_AWARE_POLICIES = ("lpm", "dfs-weight", "hrrn", "shortest-prefill-first")
SCHEDULE_POLICIES = ("fcfs", "lof", "random", "routing-key", *CACHE_AWARE_POLICIES)

WINDOW_EVICTION_INTERVAL = 128  # tokens that leave a window before they are given up: SGLANG_SWA_EVICTION_INTERVAL
CLIP_MAX_NEW_TOKENS = 4096  # most tokens that an answer counts for at admission: SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION
RETRACT_DECODE_STEPS = (
    20  # tokens of room for each request that stays when one is retracted: SGLANG_RETRACT_DECODE_STEPS
)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One engine, under the names of SGLang's arguments.

    Raises `ValueError` for what SGLang refuses or this room does not know. Read from SGLang 0.5.23:
    `srt/managers/scheduler.py`, `schedule_policy.py`, `tp_worker.py`.
    """

    max_total_num_tokens: int
    context_len: int
    max_running_requests: int
    page_size: int = 1
    chunked_prefill_size: int | None = 8192  # None: a prompt is never cut
    max_prefill_tokens: int = 16384
    schedule_policy: str = "fcfs"
    schedule_conservativeness: float = 1.0
    enable_mixed_chunk: bool = False
    disable_overlap_schedule: bool = False
    disable_radix_cache: bool = False
    radix_eviction_policy: str = "lru"
    radix_eviction_tail: TailBudget = field(default_factory=TailBudget)
    random_seed: int = 0  # of the policy `random`
    sliding_window_size: int | None = None  # of layers with a pool of their own, of `swa_max_total_num_tokens`
    swa_max_total_num_tokens: int = 0
    max_mamba_cache_size: int = 0  # states of SSM or linear-attention layers that its pool holds; 0: no such layers
    mamba_radix_cache_strategy: str = EXTRA_BUFFER
    mamba_chunk_size: int = 64  # tokens after which a layer's kernel can hand out its state
    mamba_track_interval: int = 256  # tokens of an answer after which a state is kept for the tree
    speculation: Speculation | None = None  # drafts, in as many steps as its `num_speculative_tokens`
    pipeline_parallel_size: ClassVar[int] = 1  # pipeline stages are not simulated
    host_tier: ClassVar[None] = None  # HiCache is not simulated
    num_gpu_blocks: ClassVar[int] = 0  # of vLLM's, none

    def __post_init__(self) -> None:
        self._check_choice("schedule_policy", SCHEDULE_POLICIES)
        self._check_choice("radix_eviction_policy", EVICTION_POLICIES)
        for name in ("max_total_num_tokens", "context_len", "max_running_requests", "page_size", "max_prefill_tokens"):
            if getattr(self, name) < 1:
                raise HeadcountError(f"{name} is {getattr(self, name)}; give at least 1")
        self._check_chunks()
        if self.sliding_window_size and self.swa_max_total_num_tokens <= self.sliding_window_size + self.page_size:
            raise HeadcountError(
                f"swa_max_total_num_tokens is {self.swa_max_total_num_tokens}; give more than a window and a page "
                f"({self.sliding_window_size + self.page_size})"
            )
        if self.max_mamba_cache_size:
            self._check_states()
        if self.schedule_conservativeness < 0:
            raise HeadcountError(f"schedule_conservativeness is {self.schedule_conservativeness}; give at least 0")
        if self.disable_radix_cache and self.schedule_policy == "shortest-prefill-first":
            raise HeadcountError("shortest-prefill-first needs the radix cache; choose another schedule_policy")

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            raise HeadcountError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(choices)}")

    def _check_chunks(self) -> None:
        size = self.chunked_prefill_size
        if size is None:
            return
        if size < 1 or size % self.page_size:
            raise HeadcountError(
                f"chunked_prefill_size is {size}; give a multiple of the page size ({self.page_size}), or None for no "
                "chunks"
            )
        if self.is_mixed_chunk and size <= self.max_running_requests + self.page_size:
            raise HeadcountError(
                f"with enable_mixed_chunk, {self.max_running_requests} running requests leave no page of "
                f"chunked_prefill_size ({size}) to a prompt; raise it or lower max_running_requests"
            )

    def _check_states(self) -> None:
        self._check_choice("mamba_radix_cache_strategy", STRATEGIES)
        if self.sliding_window_size:
            raise HeadcountError("pools of sliding windows and of states together are not simulated with SGLang")
        if not self.tracks_states and not self.disable_radix_cache:
            if self.page_size > 1:
                raise HeadcountError(f"no_buffer needs page_size 1, not {self.page_size}; give 1")
            if not self.disable_overlap_schedule:
                raise HeadcountError("no_buffer needs disable_overlap_schedule; set it, or choose extra_buffer")
        if self.tracks_states:
            chunk, page = self.mamba_chunk_size, self.page_size
            if max(chunk, page) % min(chunk, page) or self.mamba_track_interval % page:
                raise HeadcountError(
                    f"page_size is {page}; with states, it must divide mamba_chunk_size ({chunk}) or be a multiple of "
                    f"it, and divide mamba_track_interval ({self.mamba_track_interval})"
                )
        width = self.speculation.width if self.speculation else 1
        if self.tracks_states and self.mamba_track_interval < width:
            raise HeadcountError(
                f"mamba_track_interval is {self.mamba_track_interval}; {width} tokens are verified at once, give as "
                "many or more"
            )
        least = self.states_per_request * self.max_running_requests
        if self.max_mamba_cache_size < least:
            raise HeadcountError(
                f"max_mamba_cache_size is {self.max_mamba_cache_size}; {self.max_running_requests} running requests "
                f"take {least} states, {self.states_per_request} each; lower max_running_requests"
            )

    def with_pages(self, pages: int) -> "EngineConfig":
        """The same with another KV cache, divided in the same way."""
        tokens = pages * self.page_size
        if self.max_mamba_cache_size:
            slots = max(self.states_per_request, self.max_mamba_cache_size * tokens // self.max_total_num_tokens)
            running = min(self.max_running_requests, slots // self.states_per_request)
            return replace(self, max_total_num_tokens=tokens, max_mamba_cache_size=slots, max_running_requests=running)
        if self.sliding_window_size is None:
            return replace(self, max_total_num_tokens=tokens)
        least = self.sliding_window_size + 2 * self.page_size
        windowed = max(least, self.swa_max_total_num_tokens * tokens // self.max_total_num_tokens)
        windowed = windowed // self.page_size * self.page_size
        return replace(self, max_total_num_tokens=tokens, swa_max_total_num_tokens=windowed)

    @property
    def is_mixed_chunk(self) -> bool:
        """Whether running requests decode in the batches that prefill."""
        return self.enable_mixed_chunk and self.chunked_prefill_size is not None

    @property
    def tracks_states(self) -> bool:
        """Whether states are kept for the tree while a request is computed, besides the one it goes on from."""
        return self.mamba_radix_cache_strategy == EXTRA_BUFFER and not self.disable_radix_cache

    @property
    def num_tracking_slots(self) -> int:
        """Slots of each request for such states: with the overlap schedule, two take turns."""
        return self.plans_in_flight if self.tracks_states and self.max_mamba_cache_size else 0

    @property
    def states_per_request(self) -> int:
        """What the pool of states has for each running request."""
        return 1 if self.disable_radix_cache else STATES_PER_REQUEST + self.num_tracking_slots

    @property
    def mamba_cache_chunk_size(self) -> int:
        """Tokens between states that a prefill can keep."""
        return max(self.mamba_chunk_size, self.page_size)

    @property
    def state_track_interval(self) -> int:
        """Tokens of a sequence after which its state is kept while it decodes."""
        return math.lcm(self.mamba_cache_chunk_size, self.mamba_track_interval)

    @property
    def plans_in_flight(self) -> int:
        """How many batches may be decided and not yet processed."""
        return 1 if self.disable_overlap_schedule else 2

    @property
    def num_speculative_tokens(self) -> int:
        """Most drafts of a request that a step accepts, if they are right."""
        return self.speculation.num_speculative_tokens if self.speculation else 0

    @property
    def draft_reserve(self) -> int:
        """Tokens past its own for which each decoding request holds places; 0 without drafts.

        Those of two verifications, as the result of one may not be known yet; in pages of several tokens, each branch
        of a tree has its own (`mem_cache/allocation_sizing.py`).
        """
        if self.speculation is None:
            return 0
        steps, topk, page = self.num_speculative_tokens, self.speculation.topk, self.page_size
        drafted = steps * topk
        if page > 1 and topk > 1:
            drafted = (steps + 2 * (page - 1)) // page * page * topk
        return 2 * max(drafted, self.speculation.width)

    @property
    def tree_has_bigrams(self) -> bool:
        """Whether the tree knows each token by the next one too, as a drafter's cache depends on both.

        Not where it holds states (`unified_tree_core.py`).
        """
        reads_states = self.speculation is not None and self.speculation.method == "eagle"
        return reads_states and not self.max_mamba_cache_size

    @property
    def effective_policy(self) -> str:
        """`schedule_policy`, where there is a tree to look at."""
        is_blind = self.disable_radix_cache and self.schedule_policy in CACHE_AWARE_POLICIES
        return "fcfs" if is_blind else self.schedule_policy

    @property
    def num_usable_blocks(self) -> int:
        """Pages."""
        return self.max_total_num_tokens // self.page_size

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest request, under vLLM's name."""
        return self.max_req_len

    @property
    def max_num_seqs(self) -> int:
        """Most requests of a batch, under vLLM's name."""
        return self.max_running_requests

    @property
    def max_num_batched_tokens(self) -> int:
        """Most tokens of a batch: prompts that are never cut are taken whole."""
        whole = max(self.max_prefill_tokens, 0) + self.max_req_len
        width = self.speculation.width if self.speculation else 1
        return max(self.chunked_prefill_size or whole, self.max_running_requests * width)

    @property
    def max_prompt_tokens(self) -> int:
        """Of the longest prompt that SGLang takes."""
        return self.max_req_len - 6

    @property
    def max_req_len(self) -> int:
        """Tokens of the longest request, its answer included."""
        return min(self.context_len, self.max_total_num_tokens) - 1

    def accepted_new_tokens(self, num_prompt_tokens: int, max_new_tokens: int) -> int:
        """How long an answer may become. Raises `ValueError` for a prompt that SGLang rejects."""
        if num_prompt_tokens >= self.max_req_len - 5:
            raise HeadcountError(
                f"a prompt of {num_prompt_tokens:,} tokens is too long: SGLang takes less than {self.max_req_len - 5:,}"
                "; raise context_len or max_total_num_tokens, or send a shorter one"
            )
        paged_prompt = -(-num_prompt_tokens // self.page_size) * self.page_size
        in_context = self.max_req_len - num_prompt_tokens - 1
        in_memory = self.max_total_num_tokens - paged_prompt - self.page_size - 1
        return max(0, min(max_new_tokens, in_context, in_memory))
