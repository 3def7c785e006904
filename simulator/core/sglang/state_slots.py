"""The pool of SSM and linear-attention states, compiled: as in `conformance.reference.sglang.state_slots`."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang import leaves, states, tree
from simulator.core.state import Arrays
from simulator.core.types import SGLangPool


@rare_kernel
def evict_to_free(a: Arrays, p: SGLangPool, replica: int, num_slots: int) -> None:
    """Take states from the tree until so many slots are free; a leaf goes with its tokens."""
    t, state = a.sglang, a.sglang.engines[replica]
    node = int(state.oldest_side)
    while node != NONE and state.num_free_states < num_slots:
        newer = int(t.side_nodes[node].newer)
        if t.side_nodes[node].lock_ref == 0:
            if t.nodes[node].leaf_place != NONE:
                tree.evict(a, p, replica, node)
            else:
                states.drop(t, state, node)
        node = newer


@kernel
def take(a: Arrays, p: SGLangPool, replica: int, num_slots: int) -> None:
    """The pool has enough for the running requests (`EngineConfig`)."""
    state = a.sglang.engines[replica]
    if state.num_free_states < num_slots:
        evict_to_free(a, p, replica, num_slots)
    state.num_free_states -= num_slots


# -- a request's own


@rare_kernel
def copy_matched(a: Arrays, p: SGLangPool, replica: int, request: int) -> None:
    """Give a request that is about to be admitted a slot for the state that it matched, which is kept meanwhile."""
    of, own = a.sglang.requests[request], a.sglang.state_requests[request]
    if of.prefix_len > 0 and own.holds_state == 0:
        tree.lock(a, p, replica, of.last_node)
        take(a, p, replica, 1)
        tree.unlock(a, p, replica, of.last_node, 0)
        own.holds_state = 1


@kernel
def give_back(a: Arrays, replica: int, request: int) -> None:
    """Undo that, as it was not admitted."""
    own = a.sglang.state_requests[request]
    a.sglang.engines[replica].num_free_states += own.holds_state
    own.holds_state = 0


@rare_kernel
def bind(a: Arrays, p: SGLangPool, replica: int, slot: int) -> None:
    """Give each request of a prefill batch what it lacks."""
    needed = 0
    for place in range(a.plans[replica, slot].count):
        own = a.sglang.state_requests[a.entries[replica, slot, place].request]
        needed += 1 - own.holds_state + p.num_tracking_slots - own.num_tracking_slots
        own.holds_state = 1
        own.num_tracking_slots = p.num_tracking_slots
    take(a, p, replica, needed)


@kernel
def free_slots(a: Arrays, replica: int, request: int) -> None:
    """Free its slots."""
    own = a.sglang.state_requests[request]
    a.sglang.engines[replica].num_free_states += own.holds_state + own.num_tracking_slots
    own.holds_state = own.num_tracking_slots = own.tracked = own.previous = 0


# -- what is tracked


@rare_kernel
def track_extend(a: Arrays, p: SGLangPool, request: int) -> None:
    """Note after how many tokens a prefill tracks the state: its last chunk boundary, or where a branch begins."""
    of, own = a.sglang.requests[request], a.sglang.state_requests[request]
    start, count = int(of.prefix_len), int(of.extend_end - of.prefix_len)
    if p.num_tracking_slots == 0 or count < p.state_chunk:
        return
    tracked = start + count // p.state_chunk * p.state_chunk
    at_kernel_chunk = start + count // p.kernel_chunk * p.kernel_chunk
    end = of.extend_end if tracked == at_kernel_chunk else tracked + 1
    branch = int(own.branching)
    if start < branch < end and (branch - start) % p.state_chunk == 0:
        tracked = branch
    own.tracked = tracked


@kernel
def track_decode(a: Arrays, p: SGLangPool, request: int, num_tokens: int) -> None:
    """Note that a batch that decodes has tracked the state, if it has come to a multiple of the interval."""
    if p.num_tracking_slots > 0 and num_tokens % p.track_interval == 0:
        a.sglang.state_requests[request].tracked = num_tokens


@kernel
def track_verified(a: Arrays, p: SGLangPool, request: int, end: int, tokens: int) -> None:
    """The same of a batch that has computed several tokens up to `end`, at the last multiple that it passed."""
    if p.num_tracking_slots > 0 and end // p.track_interval != (end - tokens) // p.track_interval:
        own = a.sglang.state_requests[request]
        own.previous = own.tracked
        own.tracked = end // p.track_interval * p.track_interval


# -- the tree's


@rare_kernel
def state_to_hand_over(a: Arrays, p: SGLangPool, replica: int, request: int, num_tokens: int, is_last: int) -> int:
    """Have a state for the tree. Returns up to where it gets the request's tokens; 0: nothing."""
    own = a.sglang.state_requests[request]
    if p.num_tracking_slots > 0:
        end = num_tokens
        num_tokens = int(own.tracked)
        if is_last == 1 and num_tokens > end:  # past the answer's end; the state before it needs a slot of its own
            num_tokens = int(own.previous) if p.num_tracking_slots == 2 and own.previous <= end else 0
    if num_tokens > 0 and is_last == 0:
        take(a, p, replica, 1)  # for the state that the tree gets, or for the next one to be tracked
    own.tracked = own.previous = 0
    return num_tokens


@rare_kernel
def give_state(a: Arrays, p: SGLangPool, replica: int, request: int, node: int, is_new: bool, is_last: int) -> None:
    """Give the node where the request's tokens end the state, unless it has one."""
    t, state, own = a.sglang, a.sglang.engines[replica], a.sglang.state_requests[request]
    if not is_new and node != state.root:
        t.nodes[node].last_access = tree.now(state)
        leaves.settle(t, p, state, node)
    if node == state.root or t.side_nodes[node].is_held == 1:
        states.touch(t, state, node)
        if is_last == 0:
            state.num_free_states += 1
        return
    states.add(t, state, node)
    if is_last == 1 and p.num_tracking_slots > 0:
        own.num_tracking_slots -= 1
    elif is_last == 1:
        own.holds_state = 0
