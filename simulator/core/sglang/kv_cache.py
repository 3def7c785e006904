"""What requests hold of the KV cache, compiled: as in `conformance.reference.sglang.kv_cache`.

`num_free_blocks` of an engine counts the pages that are free or could be by eviction, `num_cached_free_blocks` the
latter.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.sglang import tree
from simulator.core.state import Arrays
from simulator.core.types import Replica, Request, SGLangPool, SGLangRequest


@kernel
def ceil_paged(p: SGLangPool, num_tokens: int) -> int:
    """Rounded up to whole pages."""
    return (num_tokens + p.page_size - 1) // p.page_size * p.page_size


@kernel
def pages_of(p: SGLangPool, start: int, end: int) -> int:
    """Pages that a sequence adds when it grows from `start` to `end` tokens."""
    return (end + p.page_size - 1) // p.page_size - (start + p.page_size - 1) // p.page_size


@kernel
def num_tokens_of(req: Request) -> int:
    """Prompt and answer so far."""
    return int(req.prompt + req.output)


# -- prefixes


@kernel
def match(a: Arrays, p: SGLangPool, replica: int, request: int, num_tokens: int) -> None:
    """Find the longest known prefix of a request's first tokens."""
    req, of = a.requests[request], a.sglang.requests[request]
    node = tree.match_prefix(a, p, replica, req.span_start, 0 if p.is_tree_disabled == 1 else num_tokens)
    of.last_node = node
    of.prefix_len = a.sglang.nodes[node].end
    of.matched = min(of.prefix_len, num_tokens_of(req) - 1)


@kernel
def checkpoint(a: Arrays, p: SGLangPool, replica: int, request: int) -> None:
    """Make what its batch has computed findable; its next chunk goes on from there."""
    of = a.sglang.requests[request]
    hand_over(a, p, replica, request, of.extend_end)
    of.prefix_len = of.extend_end


@rare_kernel
def hand_over(a: Arrays, p: SGLangPool, replica: int, request: int, num_tokens: int) -> None:
    """Give tokens to the tree. What it had already is freed, and the lock moves to the new end.

    A node ends where the prompt does, so that an answer can be evicted without it.
    """
    if p.is_tree_disabled == 1:
        return
    req, of = a.requests[request], a.sglang.requests[request]
    span = int(req.span_start)
    num_tokens = tree.whole_pages(p, num_tokens)
    prompt_len = tree.whole_pages(p, req.prompt)
    known, node = tree.insert(a, p, replica, span, num_tokens, 0, of.inserted)
    of.inserted = max(of.inserted, num_tokens)
    if prompt_len < num_tokens:
        tree.insert(a, p, replica, span, prompt_len, 1, prompt_len)
    a.replicas[replica].num_free_blocks += max(0, known - of.protected) // p.page_size
    let_go(a, p, replica, of)
    tree.lock(a, p, replica, node)
    of.lock = of.last_node = node
    of.protected = num_tokens


@kernel
def let_go(a: Arrays, p: SGLangPool, replica: int, of: SGLangRequest) -> None:
    if of.lock != NONE:
        tree.unlock(a, p, replica, of.lock)
    of.lock = NONE


# -- pages


@kernel
def num_free_pages(state: Replica) -> int:
    return int(state.num_free_blocks - state.num_cached_free_blocks)


@rare_kernel
def evict_to_free(a: Arrays, p: SGLangPool, replica: int, num_tokens: int) -> bool:
    """Evict leaves until so many tokens are free; False where they cannot be."""
    state = a.replicas[replica]
    while num_free_pages(state) * p.page_size < num_tokens:
        if a.sglang.engines[replica].num_leaves == 0:
            return False
        tree.evict_leaf(a, p, replica)
    return True


@kernel
def allocate_extend(a: Arrays, p: SGLangPool, replica: int, slot: int) -> bool:
    """Take the pages for the prefill batch in a plan; False where there are too few: SGLang's server ends there."""
    state, plan = a.replicas[replica], a.plans[replica, slot]
    num_tokens, num_pages = 0, 0
    for place in range(plan.count):
        of = a.sglang.requests[a.entries[replica, slot, place].request]
        num_tokens += of.extend_end - of.prefix_len
        num_pages += pages_of(p, of.prefix_len, of.extend_end)
    spare = plan.count * p.page_size if p.page_size > 1 else 0  # as if each began a page
    evict_to_free(a, p, replica, num_tokens + spare)
    if num_pages > num_free_pages(state):
        return False
    state.num_free_blocks -= num_pages
    for place in range(plan.count):
        request = a.entries[replica, slot, place].request
        of = a.sglang.requests[request]
        state.num_running += 1 - of.holds_kv
        of.holds_kv = 1
        a.requests[request].computed = of.extend_end
    return True


@kernel
def num_new_pages(a: Arrays, p: SGLangPool, replica: int, count: int) -> int:
    """What the next token of each of the first `count` running requests takes."""
    if p.page_size == 1:
        return count
    num_pages = 0
    for place in range(count):
        num_pages += int(a.requests[a.running[replica, place]].computed % p.page_size == 0)
    return num_pages


@kernel
def fits_decode(a: Arrays, p: SGLangPool, replica: int, count: int) -> bool:
    """Whether each of the first `count` running requests can have its next token's place, after evicting what must."""
    return evict_to_free(a, p, replica, num_new_pages(a, p, replica, count) * p.page_size)


@kernel
def allocate_decode(a: Arrays, p: SGLangPool, replica: int, count: int) -> None:
    """Take the places of one token of each running request, which fit."""
    evict_to_free(a, p, replica, count * p.page_size)  # as if each began a page
    a.replicas[replica].num_free_blocks -= num_new_pages(a, p, replica, count)


@rare_kernel
def release(a: Arrays, p: SGLangPool, replica: int, request: int, to_tree: bool) -> None:
    """Give up all that a request holds; the tree keeps what it can, where it is to."""
    req, of = a.requests[request], a.sglang.requests[request]
    state = a.replicas[replica]
    if to_tree:
        hand_over(a, p, replica, request, min(req.computed, num_tokens_of(req)))
    state.num_free_blocks += pages_of(p, of.protected, req.computed)
    let_go(a, p, replica, of)
    state.num_running -= 1
    of.holds_kv = 0
