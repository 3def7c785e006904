"""The radix tree, compiled: as in `simulator.engines.sglang.radix_cache`.

With a drafter that reads the model's states, a place in it stands for a token and the next one.

A node's tokens are those in the spans of some request that has them. A child is found in a hash table by its parent and
the content of the last token of its first page, which names all tokens up to it (`workloads.requests`).
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang import leaves, states, windows
from simulator.core.sglang.layout import TLRU, SGLangArrays
from simulator.core.state import Arrays
from simulator.core.types import Node, SGLangEngine, SGLangPool, Spans

MOMENT = 1e-5  # by which a prefix counts as used before what follows it


@kernel
def now(state: SGLangEngine) -> float:
    state.clock += 1.0
    return float(state.clock)


@kernel
def whole_pages(p: SGLangPool, num_tokens: int) -> int:
    return num_tokens - num_tokens % p.page_size


@kernel
def in_tree(p: SGLangPool, num_tokens: int) -> int:
    """Places that so many tokens take in the tree: of pairs of neighbours, one less."""
    return max(num_tokens - int(p.bigrams), 0)


@kernel
def span_at(spans: Spans, span: int, position: int) -> int:
    """The run that holds a token, looked for from an earlier one on."""
    while spans[span].end <= position:
        span += 1
    return span


@kernel
def key_at(spans: Spans, p: SGLangPool, span: int, position: int) -> int:
    """What tells the page that begins at a position from others after the same prefix."""
    return int(spans[span_at(spans, span, position + p.page_size - 1 + p.bigrams)].content)


# -- children by their first page


@kernel
def bucket_of(p: SGLangPool, parent: int, content: int) -> int:
    mix = (int(content) * 0x9E3779B1 + int(parent) * 0x85EBCA6B) & 0xFFFFFFFF
    return ((mix ^ (mix >> 15)) * 0x2C1B3C6D >> 8) & int(p.bucket_mask)


@kernel
def find_child(t: SGLangArrays, p: SGLangPool, replica: int, parent: int, content: int) -> int:
    child = t.buckets[replica, bucket_of(p, parent, content)]
    while child != NONE and (t.nodes[child].key_content != content or t.nodes[child].parent != parent):
        child = t.nodes[child].next_in_bucket
    return child


@kernel
def enter(t: SGLangArrays, p: SGLangPool, replica: int, node: int) -> None:
    """Make a node findable under its parent."""
    bucket = bucket_of(p, t.nodes[node].parent, t.nodes[node].key_content)
    t.nodes[node].next_in_bucket = t.buckets[replica, bucket]
    t.buckets[replica, bucket] = node


@kernel
def take_out(t: SGLangArrays, p: SGLangPool, replica: int, node: int) -> None:
    """The reverse of `enter`."""
    bucket = bucket_of(p, t.nodes[node].parent, t.nodes[node].key_content)
    at = t.buckets[replica, bucket]
    if at == node:
        t.buckets[replica, bucket] = t.nodes[node].next_in_bucket
        return
    while t.nodes[at].next_in_bucket != node:
        at = t.nodes[at].next_in_bucket
    t.nodes[at].next_in_bucket = t.nodes[node].next_in_bucket


@kernel
def lay_out(t: SGLangArrays, p: SGLangPool, replica: int) -> None:
    """An empty tree in the memory of an engine that is used for the first time."""
    for bucket in range(p.bucket_mask + 1):
        t.buckets[replica, bucket] = NONE
    state = t.engines[replica]
    root = t.nodes[state.root]
    root.parent = root.leaf_place = NONE
    root.lock_ref = 1
    root.last_access = now(state)
    state.num_nodes, state.num_entered = 1, 0
    state.free_node = state.chunked_req = state.last_chunked = NONE
    state.ratio = p.init_ratio
    state.oldest_side = state.newest_side = NONE
    state.num_free_window_pages = p.num_window_pages
    state.num_free_states = p.num_state_slots


@kernel
def new_node(t: SGLangArrays, state: SGLangEngine) -> int:
    """A node of which everything is to be filled in."""
    node = state.free_node
    if node == NONE:
        node = state.root + state.num_nodes
        state.num_nodes += 1
    else:
        state.free_node = t.nodes[node].next_in_bucket
    t.nodes[node].leaf_place = NONE
    return int(node)


@rare_kernel
def split(t: SGLangArrays, p: SGLangPool, spans: Spans, replica: int, child: int, at: int) -> int:
    """Cut a node in two; the front part is new, so that what holds the node still holds all of it."""
    state = t.engines[replica]
    front = new_node(t, state)
    head, tail = t.nodes[front], t.nodes[child]
    take_out(t, p, replica, child)
    head.parent, head.key_content, head.span = tail.parent, tail.key_content, tail.span
    head.start, head.end, head.lock_ref = tail.start, at, tail.lock_ref
    head.priority, head.hit_count, head.history_len = tail.priority, tail.hit_count, tail.history_len
    head.num_children, head.entered = 1, tail.entered
    head.last_access = now(state)
    tail.parent, tail.start = front, at
    tail.span = span_at(spans, tail.span, at + p.bigrams)
    tail.key_content = key_at(spans, p, tail.span, at)
    tail.last_access = now(state)
    enter(t, p, replica, front)
    enter(t, p, replica, child)
    leaves.settle(t, p, state, child)
    if p.kept_window > 0:
        windows.split(t, state, front, child)
    if p.has_states == 1:
        states.begin(t, front)
    return front


@kernel
def shared_end(spans: Spans, p: SGLangPool, node: Node, span: int, end: int) -> int:
    """Up to where a node and a sequence agree, in whole pages; `span` is the sequence's where the node starts."""
    end = min(node.end, end)
    own, position = node.span, int(node.start)
    while position < end:
        if own == span:
            position = end
        elif spans[own].content != spans[span].content:
            break
        else:
            own_end, other_end = spans[own].end - p.bigrams, spans[span].end - p.bigrams
            position = min(own_end, other_end)
            own += int(own_end == position)
            span += int(other_end == position)
    return whole_pages(p, min(position, end))


@kernel
def touch_path(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int) -> None:
    if p.kept_window > 0:
        windows.touch(t, p, state, node)
    if p.has_states == 1:
        states.touch(t, state, node)
    time = now(state)
    t.nodes[node].last_access = time
    leaves.settle(t, p, state, node)  # those above have children
    node = t.nodes[node].parent
    while node != NONE:
        time -= MOMENT
        t.nodes[node].last_access = time
        node = t.nodes[node].parent


@rare_kernel
def match_prefix(a: Arrays, p: SGLangPool, replica: int, span: int, num_tokens: int) -> tuple[int, int]:
    """The node at whose end the longest usable prefix of the first `num_tokens` ends, and how far they are known.

    With windows, a prefix can be used where the window before its end is whole; with states, where one is. Splits a
    node to have one there.
    """
    t, end = a.sglang, whole_pages(p, num_tokens)
    state = t.engines[replica]
    node, at = int(state.root), 0
    usable, in_window = node, int(p.kept_window)  # tokens before a node's end without a tombstone
    while at < end:
        span = span_at(a.spans, span, at + p.bigrams)
        child = find_child(t, p, replica, node, key_at(a.spans, p, span, at))
        if child == NONE:
            break
        at = shared_end(a.spans, p, t.nodes[child], span, end)
        is_cut = at < t.nodes[child].end
        node = split(t, p, a.spans, replica, child, at) if is_cut else child
        if p.kept_window > 0:
            in_window = in_window + at - int(t.nodes[node].start) if t.side_nodes[node].is_held == 1 else 0
        if p.has_states == 1:
            usable = node if t.side_nodes[node].is_held == 1 else usable
        elif in_window >= p.kept_window:
            usable = node
        if is_cut:
            break
    if end > 0:
        touch_path(t, p, state, usable)
    return usable, at


@rare_kernel
def insert(
    a: Arrays,
    p: SGLangPool,
    replica: int,
    span: int,
    num_tokens: int,
    priority: int,
    inserted: int,
    protected: int,
    window_start: int,
) -> tuple[int, int]:
    """Make whole pages findable. Returns how many tokens were known before, and the node at the end.

    Tokens up to `protected` are the tree's already; of the others, the request has those from `window_start` on in
    windows. What the tree has there too is freed.
    """
    t, end = a.sglang, whole_pages(p, num_tokens)
    state = t.engines[replica]
    node, at = int(state.root), 0
    while at < end:
        span = span_at(a.spans, span, at + p.bigrams)
        child = find_child(t, p, replica, node, key_at(a.spans, p, span, at))
        if child == NONE:
            break
        t.nodes[child].last_access = now(state)
        at = shared_end(a.spans, p, t.nodes[child], span, end)
        leaves.settle(t, p, state, child)
        is_cut = at < t.nodes[child].end
        node = split(t, p, a.spans, replica, child, at) if is_cut else child
        if p.kept_window > 0 and at > protected:
            give_window(a, p, replica, node, max(protected, int(t.nodes[node].start)), window_start)
        use(t, p, state, node, priority, at > inserted)
    known = at
    if known < end:
        node = add_leaf(a, p, replica, node, span, end, priority)
        if p.kept_window > 0:
            give_window_to_leaf(a, p, replica, node, window_start)
        if p.has_states == 1:
            states.begin(t, node)
        use(t, p, state, node, priority, known + t.nodes[node].end - t.nodes[node].start > inserted)
    if p.kept_window > 0:
        windows.touch(t, p, state, node)
    return known, node


@kernel
def use(t: SGLangArrays, p: SGLangPool, state: SGLangEngine, node: int, priority: int, is_hit: bool) -> None:
    """Count a hit of an insertion, unless the same request has inserted up to here before."""
    of = t.nodes[node]
    of.priority = max(of.priority, priority)
    of.hit_count += int(is_hit)
    leaves.settle(t, p, state, node)


@rare_kernel
def give_window(a: Arrays, p: SGLangPool, replica: int, node: int, start: int, window_start: int) -> None:
    """Hand a tombstone what a request has of its window; free what a node has already."""
    t, state = a.sglang, a.sglang.engines[replica]
    end = int(t.nodes[node].end)
    if t.side_nodes[node].is_held == 1:
        state.num_free_window_pages += max(0, end - max(start, window_start)) // p.page_size
    elif window_start < end:
        if window_start > t.nodes[node].start:
            split(t, p, a.spans, replica, node, window_start)
        windows.add(t, p, state, node)


@rare_kernel
def give_window_to_leaf(a: Arrays, p: SGLangPool, replica: int, leaf: int, window_start: int) -> None:
    """The same of a new leaf, of which the last window becomes a node, so that locks hold no more than that."""
    t, state = a.sglang, a.sglang.engines[replica]
    windows.begin(t, leaf)
    if window_start >= t.nodes[leaf].end:
        return
    if window_start > t.nodes[leaf].start:
        split(t, p, a.spans, replica, leaf, window_start)
    last = int(t.nodes[leaf].end) - (p.kept_window + p.page_size - 1) // p.page_size * p.page_size
    if last > t.nodes[leaf].start:
        windows.add(t, p, state, split(t, p, a.spans, replica, leaf, last))
    windows.add(t, p, state, leaf)


@kernel
def add_leaf(a: Arrays, p: SGLangPool, replica: int, parent: int, span: int, end: int, priority: int) -> int:
    t, state = a.sglang, a.sglang.engines[replica]
    node = new_node(t, state)
    leaf = t.nodes[node]
    leaf.parent, leaf.start, leaf.end = parent, t.nodes[parent].end, end
    leaf.span = span_at(a.spans, span, leaf.start + p.bigrams)
    leaf.key_content = key_at(a.spans, p, leaf.span, leaf.start)
    leaf.lock_ref = leaf.num_children = leaf.hit_count = leaf.history_len = 0
    leaf.priority = priority
    state.num_entered += 1
    leaf.entered = state.num_entered
    leaf.last_access = now(state)
    enter(t, p, replica, node)
    t.nodes[parent].num_children += 1
    become_evictable(a, p, replica, end - leaf.start)
    if p.eviction_policy == TLRU:
        above = node
        while above != NONE:
            t.nodes[above].history_len = max(t.nodes[above].history_len, end)
            above = t.nodes[above].parent
    leaves.update(t, p, state, parent)
    leaves.update(t, p, state, node)
    return node


@kernel
def become_evictable(a: Arrays, p: SGLangPool, replica: int, num_tokens: int) -> None:
    """So many more tokens of the tree may be evicted; fewer, where negative."""
    num_pages = num_tokens // p.page_size
    a.replicas[replica].num_cached_free_blocks += num_pages
    a.replicas[replica].num_free_blocks += num_pages


@rare_kernel
def lock(a: Arrays, p: SGLangPool, replica: int, node: int) -> int:
    """Keep a prefix from eviction until `unlock`, with its last window or state; it may be locked many times.

    Returns where that window starts.
    """
    t, state = a.sglang, a.sglang.engines[replica]
    if p.has_states == 1 and node != state.root:
        states.hold(t, state, node)
    window_start = windows.lock(t, p, state, node) if p.kept_window > 0 else 0
    while node != state.root:
        of = t.nodes[node]
        if of.lock_ref == 0:
            become_evictable(a, p, replica, of.start - of.end)
            leaves.remove(t, p, state, node)
        of.lock_ref += 1
        node = of.parent
    return window_start


@rare_kernel
def unlock(a: Arrays, p: SGLangPool, replica: int, node: int, window_start: int) -> None:
    """Undo one `lock` of the same node, which returned `window_start`."""
    t, state = a.sglang, a.sglang.engines[replica]
    if p.kept_window > 0:
        windows.unlock(t, p, state, node, window_start)
    if p.has_states == 1 and node != state.root:
        states.loosen(t, state, node)
    while node != state.root:
        of = t.nodes[node]
        of.lock_ref -= 1
        if of.lock_ref == 0:
            become_evictable(a, p, replica, of.end - of.start)
            leaves.update(t, p, state, node)
        node = of.parent


@rare_kernel
def evict_leaf(a: Arrays, p: SGLangPool, replica: int) -> None:
    """Free the pages of the leaf that the policy ranks first; there is one."""
    evict(a, p, replica, int(a.sglang.leaves[a.sglang.engines[replica].root]))


@rare_kernel
def evict(a: Arrays, p: SGLangPool, replica: int, node: int) -> None:
    """Free the pages of a leaf."""
    t, state = a.sglang, a.sglang.engines[replica]
    leaf = t.nodes[node]
    if p.kept_window > 0 and t.side_nodes[node].is_held == 1:
        windows.drop(t, p, state, node)
    if p.has_states == 1 and t.side_nodes[node].is_held == 1:
        states.drop(t, state, node)
    leaves.remove(t, p, state, node)
    take_out(t, p, replica, node)
    a.replicas[replica].num_cached_free_blocks -= (leaf.end - leaf.start) // p.page_size
    t.nodes[leaf.parent].num_children -= 1
    leaves.update(t, p, state, leaf.parent)
    leaf.parent = NONE
    leaf.next_in_bucket = state.free_node
    state.free_node = node
