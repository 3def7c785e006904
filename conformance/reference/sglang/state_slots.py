"""The pool of SSM and linear-attention states: one slot for each running request, those tracked for it, the tree's.

A request goes on from a state of its own, which begins as a copy of the tree's. With `extra_buffer`, others are tracked
beside it, at the last chunk boundary of a prefill and every so many tokens of an answer; the tree gets these. With
`no_buffer`, the tree gets a copy of the state itself, and at the end the state.

Read from SGLang 0.5.23: `srt/mem_cache/unified_cache/components/mamba.py`, `memory_pool.py` (`HybridReqToTokenPool`),
`allocation.py`, `srt/managers/schedule_batch.py`, `scheduler_components/batch_result_processor.py`.
"""

from collections.abc import Callable, Sequence

from simulator.engines.sglang.engine import EngineConfig
from simulator.engines.sglang.radix_cache import RadixCache, TreeNode
from simulator.engines.sglang.request import Request
from simulator.engines.sglang.tree_states import TreeStates


class StateSlots:
    """Free slots, and what requests and the tree do with the others."""

    def __init__(
        self, config: EngineConfig, tree: RadixCache, states: TreeStates, evict: Callable[[TreeNode], None]
    ) -> None:
        self.config, self.tree, self.states = config, tree, states
        self.num_free = config.max_mamba_cache_size
        self._evict = evict

    def evict_to_free(self, num_slots: int) -> None:
        """Take states from the tree until so many slots are free; a leaf goes with its tokens."""
        while self.num_free < num_slots and (node := self.states.next_unlocked()):
            if node in self.tree.leaves:
                self._evict(node)
            else:
                self.drop(node)

    def drop(self, node: TreeNode) -> None:
        """Take a node's state from it."""
        self.states.drop(node)
        self.num_free += 1

    def _take(self, num_slots: int) -> None:
        self.evict_to_free(num_slots)
        self.num_free -= num_slots
        assert self.num_free >= 0, "the pool of states is too small for the running requests"

    # -- a request's own

    def copy_matched(self, request: Request) -> None:
        """Give a request that is about to be admitted a slot for the state that it matched, which is kept meanwhile."""
        if request.prefix_len == 0 or request.holds_state:
            return
        assert request.last_node is not None
        self.tree.lock(request.last_node)
        self._take(1)
        self.tree.unlock(request.last_node)
        request.holds_state = True

    def give_back(self, request: Request) -> None:
        """Undo that, as it was not admitted."""
        self.num_free += request.holds_state
        request.holds_state = False

    def bind(self, requests: Sequence[Request]) -> None:
        """Give each request of a prefill batch what it lacks."""
        num_tracking = self.config.num_tracking_slots
        needed = sum((not each.holds_state) + num_tracking - each.num_tracking_slots for each in requests)
        self._take(needed)
        for request in requests:
            request.holds_state, request.num_tracking_slots = True, num_tracking

    def release(self, request: Request) -> None:
        """Free its slots."""
        self.num_free += request.holds_state + request.num_tracking_slots
        request.holds_state, request.num_tracking_slots = False, 0
        request.tracked_len = request.previous_tracked_len = None

    # -- what is tracked

    def track_extend(self, request: Request) -> None:
        """Note after how many tokens a prefill tracks the state: its last chunk boundary, or where a branch begins."""
        chunk, kernel_chunk = self.config.mamba_cache_chunk_size, self.config.mamba_chunk_size
        if not self.config.tracks_states or request.extend_len < chunk:
            return
        request.tracked_len = request.prefix_len + request.extend_len // chunk * chunk
        at_kernel_chunk = request.prefix_len + request.extend_len // kernel_chunk * kernel_chunk
        end = request.extend_end if request.tracked_len == at_kernel_chunk else request.tracked_len + 1
        branch = request.branching_len
        if branch is not None and request.prefix_len < branch < end and (branch - request.prefix_len) % chunk == 0:
            request.tracked_len = branch

    def track_decode(self, request: Request) -> None:
        """Note that a batch that decodes has tracked the state, if it has come to a multiple of the interval."""
        if self.config.tracks_states and request.num_tokens % self.config.state_track_interval == 0:
            request.tracked_len = request.num_tokens

    def track_verified(self, request: Request, num_tokens: int) -> None:
        """The same of a batch that has computed so many tokens at once, at the last multiple that it passed."""
        interval, end = self.config.state_track_interval, request.num_tokens - 1
        if self.config.tracks_states and end // interval != (end - num_tokens) // interval:
            request.previous_tracked_len, request.tracked_len = request.tracked_len, end // interval * interval

    def branching_len(self, request: Request, known_len: int) -> int | None:
        """The last chunk boundary up to which the tree knows a request, beyond what it can use."""
        chunk = self.config.mamba_cache_chunk_size
        return branch if (branch := known_len // chunk * chunk) > request.prefix_len else None

    # -- the tree's

    def hand_over(self, request: Request, num_tokens: int, *, is_last: bool) -> int:
        """Have a state for the tree. Returns up to where it gets the request's tokens; 0: nothing."""
        if self.config.tracks_states:
            num_tokens = self._tracked(request, num_tokens) if is_last else request.tracked_len or 0
        if num_tokens > 0 and not is_last:
            self._take(1)  # for the state that the tree gets, or for the next one to be tracked
        request.tracked_len = request.previous_tracked_len = None
        return num_tokens

    def _tracked(self, request: Request, num_tokens: int) -> int:
        """The tokens of the latest state that is not past the answer's end; 0: none. The one before it needs a slot."""
        known = (request.tracked_len, request.previous_tracked_len)[: self.config.num_tracking_slots]
        return next((length for length in known if length is not None and length <= num_tokens), 0)

    def settle(self, request: Request, *, had_state: bool, is_last: bool) -> None:
        """The tree has the state now, or had one already."""
        if not is_last:
            self.num_free += had_state
        elif not had_state and self.config.tracks_states:
            request.num_tracking_slots -= 1
        elif not had_state:
            request.holds_state = False
