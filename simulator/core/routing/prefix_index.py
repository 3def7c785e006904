"""The router's own guess of the engines' prefix caches, updated as it routes.

It knows a prompt in runs: the chunks whose last token lies in one span. The chunks of a run are sent together, so they
are equally old, and what an engine has of a content is a number of leading tokens. The least recently sent chunks are
forgotten first, the first of a run before its others; a run that has lost some matches nothing any more.
"""

import math

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays


@kernel
def match(a: Arrays, request: int, now_s: float) -> None:
    """Show for each engine how many leading tokens of the prompt were sent there and not forgotten."""
    chunk = a.routing[0].chunk_tokens
    limit = a.requests[request].prompt // chunk * chunk
    if a.routing[0].lifetime_s < math.inf:
        for owner in range(a.run_lists.shape[0]):
            forget_old(a, owner, now_s)
    num_left = a.engine_views.shape[0]
    for engine in range(num_left):
        a.matching[engine] = engine
        a.engine_views[engine].matched_tokens = 0
        a.engine_views[engine].matched_at = 0
        a.engine_views[engine].known_tokens = a.run_lists[min(engine, a.run_lists.shape[0] - 1)].chunks * chunk
    span, begin = a.requests[request].span_start, 0
    while begin < limit and num_left > 0:
        end = min(a.spans[span].end, limit) // chunk * chunk
        if end > begin:
            num_left = match_run(a, a.spans[span].content, begin, end, num_left)
        begin, span = end, span + 1


@kernel
def match_run(a: Arrays, content: int, begin: int, end: int, count: int) -> int:
    """Follow the first `count` of `matching`, which have all tokens up to `begin`; returns how many have up to `end`.

    These are the first of `matching` then.
    """
    num_left = 0
    for place in range(count):
        engine = a.matching[place]
        view, known = a.engine_views[engine], a.known_prefixes[content, engine]
        if known.tokens > begin:
            view.matched_tokens = min(known.tokens, end)
            view.matched_at = known.sent_at
            a.matching[num_left] = engine
            num_left += int(known.tokens >= end)
    return num_left


@kernel
def learn(a: Arrays, request: int, engine: int, now_s: float) -> None:
    """The engine will have this prompt."""
    chunk = a.routing[0].chunk_tokens
    owner = min(engine, a.run_lists.shape[0] - 1)
    limit = a.requests[request].prompt // chunk * chunk
    span, begin = a.requests[request].span_start, 0
    while begin < limit:
        end = min(a.spans[span].end, limit) // chunk * chunk
        if end > begin:
            known = a.known_prefixes[a.spans[span].content, engine]
            if end > known.tokens:
                known.tokens, known.sent_at = end, a.routing[0].num_sent
            renew(a, owner, a.spans[span].content, (end - begin) // chunk, now_s)
        begin, span = end, span + 1
    while a.run_lists[owner].chunks > a.routing[0].most_chunks:
        forget_oldest(a, owner, a.run_lists[owner].chunks - a.routing[0].most_chunks)


# -- what outstanding requests hold, in whole chunks


@kernel
def count_shared(a: Arrays, request: int) -> None:
    """Show for each engine how much of the prompt its outstanding requests hold already."""
    for engine in range(a.engine_views.shape[0]):
        a.engine_views[engine].shared_tokens = 0
    chunk = a.routing[0].held_chunk_tokens
    limit = a.requests[request].prompt // chunk * chunk
    span, begin = a.requests[request].span_start, 0
    while begin < limit:
        end, content = min(a.spans[span].end, limit) // chunk * chunk, a.spans[span].content
        for engine in range(a.engine_views.shape[0] if end > begin and a.num_holding[content] > 0 else 0):
            held = a.known_prefixes[content, engine].active_tokens
            a.engine_views[engine].shared_tokens += min(held, end - begin)
        begin, span = end, span + 1


@kernel
def hold(a: Arrays, request: int, engine: int) -> None:
    """An outstanding request more: what is held of a content is the most that one of them holds."""
    chunk = a.routing[0].held_chunk_tokens
    limit = a.requests[request].prompt // chunk * chunk
    a.engine_views[engine].held_tokens += limit
    span, begin = a.requests[request].span_start, 0
    while begin < limit:
        end = min(a.spans[span].end, limit) // chunk * chunk
        if end > begin:
            known = a.known_prefixes[a.spans[span].content, engine]
            known.num_active += 1
            a.num_holding[a.spans[span].content] += 1
            a.engine_views[engine].active_tokens += max(end - begin - known.active_tokens, 0)
            known.active_tokens = max(end - begin, known.active_tokens)
        begin, span = end, span + 1


@kernel
def let_go(a: Arrays, request: int, engine: int) -> None:
    """An outstanding request less: a content is let go with the last that holds some of it."""
    chunk = a.routing[0].held_chunk_tokens
    limit = a.requests[request].prompt // chunk * chunk
    a.engine_views[engine].held_tokens -= limit
    span, begin = a.requests[request].span_start, 0
    while begin < limit:
        end = min(a.spans[span].end, limit) // chunk * chunk
        if end > begin:
            known = a.known_prefixes[a.spans[span].content, engine]
            known.num_active -= 1
            a.num_holding[a.spans[span].content] -= 1
            if known.num_active == 0:
                a.engine_views[engine].active_tokens -= known.active_tokens
                known.active_tokens = 0
        begin, span = end, span + 1


# -- lists of runs by when they were last sent: one for each engine, or one for all


@kernel
def renew(a: Arrays, owner: int, content: int, chunks: int, now_s: float) -> None:
    """Make a run the newest of its list."""
    run, order = a.runs[content, owner], a.run_lists[owner]
    if run.chunks > 0:
        unlink(a, owner, content)
    order.chunks += max(chunks - run.chunks, 0)
    run.chunks = max(chunks, run.chunks)
    run.renewed_s = now_s
    run.older, run.newer = order.newest, NONE
    if order.newest == NONE:
        order.oldest = content
    else:
        a.runs[order.newest, owner].newer = content
    order.newest = content


@kernel
def unlink(a: Arrays, owner: int, content: int) -> None:
    run, order = a.runs[content, owner], a.run_lists[owner]
    if run.older == NONE:
        order.oldest = run.newer
    else:
        a.runs[run.older, owner].newer = run.newer
    if run.newer == NONE:
        order.newest = run.older
    else:
        a.runs[run.newer, owner].older = run.older


@kernel
def forget_old(a: Arrays, owner: int, now_s: float) -> None:
    """Forget what was not sent for a lifetime."""
    order = a.run_lists[owner]
    while order.oldest != NONE and a.runs[order.oldest, owner].renewed_s + a.routing[0].lifetime_s < now_s:
        forget_oldest(a, owner, a.runs[order.oldest, owner].chunks)


@kernel
def forget_oldest(a: Arrays, owner: int, chunks: int) -> None:
    """Forget so many chunks of the oldest run, or all of them."""
    order = a.run_lists[owner]
    content = order.oldest
    run = a.runs[content, owner]
    if a.run_lists.shape[0] == 1:
        for engine in range(a.engine_views.shape[0]):
            a.known_prefixes[content, engine].tokens = 0
    else:
        a.known_prefixes[content, owner].tokens = 0
    forgotten = min(chunks, run.chunks)
    order.chunks -= forgotten
    run.chunks -= forgotten
    if run.chunks == 0:
        unlink(a, owner, content)
