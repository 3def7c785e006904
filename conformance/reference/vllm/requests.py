"""A request as vLLM's scheduler keeps it, and what one of its steps decided."""

from dataclasses import dataclass, field
from typing import NamedTuple

from conformance.reference.vllm.kv_cache_manager import BlockTables


class Image(NamedTuple):
    """One image of a prompt: its tokens are [offset, end), those that hold its embeddings [first, last)."""

    content: int  # what is seen
    offset: int
    end: int
    first: int
    last: int
    embeddings: int


@dataclass(kw_only=True, eq=False)
class Request:
    """One sequence in the engine; token counts only, since no token's value decides anything."""

    id: int
    num_prompt_tokens: int
    max_tokens: int
    priority: int = 0  # the lower, the sooner
    arrival_s: float = 0.0
    table: BlockTables
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    num_in_flight_tokens: int = 0
    num_stale_output_tokens: int = 0
    num_spec_tokens: int = 0  # drafts that its next step verifies
    next_decode_eligible_step: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int | None = None  # prefix hit at first admission
    is_prefill_chunk: bool = False
    is_running: bool = False
    is_passed_over: bool = False  # waits, and was skipped once because its last token was in flight
    is_finished: bool = False
    adapter: int | None = None  # LoRA
    images: tuple[Image, ...] = ()  # in the order of their tokens
    do_remote_prefill: bool = False  # the KV of its prompt is to be read from another engine
    do_remote_decode: bool = False  # another engine will read its KV

    @property
    def rank(self) -> tuple[int, float, int]:
        """Its place under the priority policy."""
        return self.priority, self.arrival_s, self.id

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def prefill_end(self) -> int:
        """Where its prompt ends, or what it computes again once it was preempted."""
        return max(self.num_prompt_tokens, self.num_tokens - 1)


@dataclass(kw_only=True)
class Plan:
    """What one `schedule()` call decided; token counts by request, in scheduling order."""

    step: int
    num_scheduled_tokens: dict[Request, int] = field(default_factory=dict)
    num_drafts: dict[Request, int] = field(default_factory=dict)
    padded: set[Request] = field(default_factory=set)  # drafting steps without drafts: all of them are rejected
    sampled: set[Request] = field(default_factory=set)
    preempted: list[Request] = field(default_factory=list)
    free_blocks: int = 0
    num_adapters: int = 0  # LoRA adapters of running requests
    adapters_loaded: tuple[int, int] = (0, 0)  # that the step waits for: read from disk, copied to the GPU
    encoded: dict[Request, list[int]] = field(default_factory=dict)  # places of the images that the step encodes
    num_running: int = 0
    num_waiting: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.num_scheduled_tokens
