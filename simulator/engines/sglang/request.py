"""One request in SGLang's engine."""

from dataclasses import dataclass

from simulator.engines.sglang.radix_cache import TreeNode
from simulator.engines.sglang.token_spans import Spans


@dataclass(kw_only=True, eq=False)
class Request:
    """Token counts, and what its tokens are: whether two requests share a prefix is decided by `spans`.

    Of its tokens, [0, cache_protected_len) belong to the radix tree, which `lock` keeps; [cache_protected_len, kv_len)
    are its own, of which layers with sliding windows have those from `window_start` on. A batch computes
    [prefix_len, extend_end).
    """

    id: int
    spans: Spans  # of prompt and answer
    num_prompt_tokens: int
    max_new_tokens: int
    num_tokens_to_stop: int | None = None  # of the answer, which then ends by a stop token; None: by its length
    ignore_eos: bool = False
    routing_key: str = ""
    num_output_tokens: int = 0
    prefix_len: int = 0
    extend_end: int = 0
    num_matched_prefix_tokens: int = 0
    last_node: TreeNode | None = None  # at the end of what the tree has of it
    lock: TreeNode | None = None
    window_lock_start: int = 0  # up to which the lock holds windows, from the end on
    cache_protected_len: int = 0
    cache_inserted_len: int = 0  # up to which it has put its own tokens into the tree
    kv_len: int = 0
    committed_len: int = 0  # of those, the tokens that are known to be computed; the others may be drafts
    window_start: int = 0
    branching_len: int | None = None  # how far the tree knew it, where windows or states made its prefix shorter
    holds_state: bool = False  # a slot of its own, with the state that its batches go on from
    num_tracking_slots: int = 0  # those in which states are kept for the tree …
    tracked_len: int | None = None  # … after so many tokens, the latest …
    previous_tracked_len: int | None = None  # … and the one before it
    num_extend_batches: int = 0
    num_decode_batches: int = 0
    holds_kv: bool = False  # a row of the table of running requests
    num_inflight_middle_chunks: int = 0  # chunks before the last, computed and not yet processed
    queue_entry: int = 0  # the how-manieth entry of the waiting queue it was
    arrival_processed_tokens: int = 0  # what the engine had prefilled by then
    num_cached_tokens: int | None = None  # prefix hit at first admission
    num_retractions: int = 0
    is_retracted: bool = False  # and not yet admitted again
    is_aborted: bool = False  # its client has gone: the next output is its last
    is_finished: bool = False

    @property
    def num_tokens(self) -> int:
        """Prompt and answer so far."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def extend_len(self) -> int:
        """Tokens that its batch computes."""
        return self.extend_end - self.prefix_len

    @property
    def next_output_finishes_by_length(self) -> bool:
        return self.num_output_tokens + 1 >= self.max_new_tokens

    @property
    def has_all_outputs(self) -> bool:
        """Whether its latest tokens end it; some of several may come after its last."""
        return self.num_output_tokens >= self.longest_answer or self.is_aborted

    @property
    def longest_answer(self) -> int:
        """Tokens after which it ends, however it does."""
        stop = self.num_tokens_to_stop
        return self.max_new_tokens if stop is None else min(stop, self.max_new_tokens)

    def retract(self) -> None:
        """Forget what was computed; what was answered is kept, and computed again."""
        self.prefix_len = self.extend_end = self.cache_protected_len = self.cache_inserted_len = 0
        self.num_matched_prefix_tokens = self.num_inflight_middle_chunks = 0
        self.num_extend_batches = self.num_decode_batches = 0
        self.last_node = self.branching_len = self.tracked_len = self.previous_tracked_len = None
        self.num_retractions += 1
        self.is_retracted = True
