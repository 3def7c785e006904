"""What LMCache keeps in host memory and loads again, compiled.

As `conformance.reference.vllm.connectors.lmcache` does it.

A step's copies lie in the ring of stores, one place for each request that has any, until the step is over.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.vllm import blocks, plan, prefix
from simulator.core.vllm.host_tier import host_cache, host_link
from simulator.core.vllm.host_tier.layout import T1

IS_NEW, RESUMES = 1, 2  # of a request that was looked up and not planned since


@kernel
def chunk_of(a: Arrays, replica: int, request: int, index: int) -> int:
    """The chunk of a request with that index, or NONE."""
    return host_cache.find(a, replica, content_of(a, replica, request, index), index)


@kernel
def content_of(a: Arrays, replica: int, request: int, index: int) -> int:
    span = a.requests[request].span_start
    end = (index + 1) * a.pools[a.replicas[replica].pool].host_chunk_tokens
    while a.spans[span].end < end:
        span += 1
    return a.spans[span].content


@rare_kernel
def look_up(a: Arrays, replica: int, request: int) -> None:
    """Pin what is found of a request's chunks, up to the first that is not, and use it now, the first foremost."""
    p, off, req = a.pools[a.replicas[replica].pool], a.offloads[request], a.requests[request]
    num_chunks, found = (req.prompt + req.output) // p.host_chunk_tokens, 0
    while found < num_chunks:
        chunk = chunk_of(a, replica, request, found)
        if chunk == NONE:
            break
        host_cache.begin_read(a, replica, chunk)
        found += 1
    for index in range(found - 1, -1, -1):
        host_cache.use(a, replica, chunk_of(a, replica, request, index), T1)
    off.found_chunks = found
    off.is_looked_up = IS_NEW


@kernel
def unpin(a: Arrays, replica: int, request: int, num_chunks: int) -> None:
    for index in range(num_chunks):
        host_cache.end_read(a, replica, chunk_of(a, replica, request, index))


@rare_kernel
def admit(a: Arrays, replica: int, slot: int, request: int, budget: int) -> int:
    """Take the request's blocks for what is found and its next chunk, entering it into the plan; 0: it does not fit."""
    state, req, off = a.replicas[replica], a.requests[request], a.offloads[request]
    p, known = a.pools[state.pool], req.prompt + req.output
    row = a.free_rows[replica, state.num_free_rows - 1]
    hits = prefix.find_hit(a, replica, request, row, known - 1) if p.prefix_caching == 1 else 0
    if off.is_looked_up == 0:
        look_up(a, replica, request)
    found = min(off.found_chunks * p.host_chunk_tokens, known - 1)  # the last token is always computed
    computed = max(found, hits * p.block_size)
    tokens = plan.capped(state.threshold, known - computed)
    if tokens > budget and p.chunked_prefill == 0:
        return 0
    tokens = min(tokens, budget)
    full_tokens = min(known, p.max_model_len) if p.reserve_full_isl == 1 else 0
    if prefix.deficit(a, replica, request, row, hits, full_tokens, computed + tokens) > 0:
        return 0
    prefix.hold_hits(a, replica, request, row, hits)
    state.num_free_rows -= 1
    req.computed = computed
    off.local_blocks = hits
    if req.cached_tokens == NONE:
        req.cached_tokens = computed
        a.totals[replica].queried_tokens += known
        a.totals[replica].hit_tokens += hits * p.block_size
        a.totals[replica].host_hit_tokens += computed - hits * p.block_size
    else:
        off.is_looked_up = RESUMES
    blocks.grow(a, replica, request, blocks.num_blocks_of(computed + tokens, p.block_size))
    blocks.cache(a, replica, request, computed + tokens)
    sampled = plan.schedule_request(a, replica, slot, request, tokens, 0)
    plan.after_scheduling(a, replica, request, sampled)
    return tokens


@rare_kernel
def plan_copies(a: Arrays, replica: int, slot: int) -> None:
    """The copies of a step that was decided, in their order: of those that are new, that resume, that ran."""
    tier, of = a.tiers[replica], a.plans[replica, slot]
    tier.copies_s = 0.0
    count = of.count - of.num_quiet
    num_ran = 0
    while num_ran < count and a.offloads[a.entries[replica, slot, num_ran].request].is_looked_up == 0:
        num_ran += 1
    for kind in (IS_NEW, RESUMES):
        for place in range(num_ran, count):
            entry = a.entries[replica, slot, place]
            if a.offloads[entry.request].is_looked_up == kind:
                begin(a, replica, entry.request, entry.tokens)
    for place in range(num_ran):
        entry = a.entries[replica, slot, place]
        if a.offloads[entry.request].decodes == 0:
            go_on(a, replica, entry.request, entry.tokens)
    a.told[replica, slot, 0] = tier.store_tail


@kernel
def begin(a: Arrays, replica: int, request: int, tokens: int) -> None:
    """Of a request that was just admitted."""
    tier, off, req = a.tiers[replica], a.offloads[request], a.requests[request]
    p = a.pools[a.replicas[replica].pool]
    found = off.found_chunks
    off.is_looked_up, off.found_chunks, off.decodes = 0, 0, 0
    off.seen_tokens = min(req.computed, req.prompt)
    off.next_chunk = found
    first = off.local_blocks * p.block_size
    is_loaded = req.computed - tokens > first
    if is_loaded:
        loading_s = host_link.copy_s(p, found - first // p.host_chunk_tokens)
        tier.copies_s += loading_s
        off.loading_s += loading_s
    enter(a, replica, request, found, is_loaded)


@kernel
def go_on(a: Arrays, replica: int, request: int, tokens: int) -> None:
    """Of a request that ran."""
    off, req = a.offloads[request], a.requests[request]
    first = min(req.computed - tokens, off.seen_tokens)
    tokens = min(tokens, req.prompt + req.output - first)  # a token in flight is not known
    off.seen_tokens = first + tokens
    if tokens == 1:  # also where it is a prompt's last
        off.decodes = 1
    enter(a, replica, request, 0, False)


@kernel
def enter(a: Arrays, replica: int, request: int, pinned: int, is_loaded: bool) -> None:
    """Store what it has filled since, and let go what was pinned for it."""
    tier, off = a.tiers[replica], a.offloads[request]
    p = a.pools[a.replicas[replica].pool]
    last = off.seen_tokens // p.host_chunk_tokens
    count = last - off.next_chunk if off.decodes == 0 else 0
    if count <= 0 and pinned == 0:
        return
    job = a.stores[replica, tier.store_tail & p.store_mask]
    job.request = request
    job.first = off.next_chunk
    job.count = max(count, 0)
    job.pinned = pinned
    job.is_loaded = int(is_loaded)
    tier.store_tail += 1
    if count > 0:
        tier.copies_s += host_link.copy_s(p, count)
        off.next_chunk = last


@kernel
def lengthen(a: Arrays, replica: int, slot: int) -> None:
    """The step waits for its copies."""
    state, copies_s = a.replicas[replica], a.tiers[replica].copies_s
    state.stage_free_s += copies_s
    state.last_end_s += copies_s
    a.plans[replica, slot].end_s += copies_s


@rare_kernel
def take_in(a: Arrays, replica: int, slot: int) -> None:
    """A step is over with its copies."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    for place in range(tier.store_done, a.told[replica, slot, 0]):
        job = a.stores[replica, place & p.store_mask]
        if job.is_loaded == 1:
            unpin(a, replica, job.request, job.pinned)
    while tier.store_done < a.told[replica, slot, 0]:
        job = a.stores[replica, tier.store_done & p.store_mask]
        if job.is_loaded == 0:
            unpin(a, replica, job.request, job.pinned)
        store(a, replica, job.request, job.first, job.count)
        tier.store_done += 1


@kernel
def store(a: Arrays, replica: int, request: int, first: int, count: int) -> None:
    """Copy chunks, also those that are there: room is made for all of them first, and those it is not had for go."""
    cache, copied = a.caches[a.tiers[replica].cache], 0
    while copied < count and (cache.num_free > copied or evict_oldest(a, replica)):
        copied += 1
    for index in range(first, first + copied):
        content = content_of(a, replica, request, index)
        if host_cache.find(a, replica, content, index) == NONE:
            chunk = host_cache.insert(a, replica, content, index)
            host_cache.append(a, replica, chunk, T1)
            host_cache.end_write(a, replica, chunk)


@kernel
def evict_oldest(a: Arrays, replica: int) -> bool:
    """Let the chunk go that was used longest ago; False: a request was told of each."""
    cache = a.caches[a.tiers[replica].cache]
    chunk = cache.oldest[T1]
    while chunk != NONE and a.chunks[a.tiers[replica].cache, chunk].reads > 0:
        chunk = a.chunks[a.tiers[replica].cache, chunk].newer
    if chunk == NONE:
        return False
    cache.num_free += 1
    cache.num_idle -= 1
    host_cache.take_out(a, replica, chunk)
    host_cache.remove(a, replica, chunk)
    return True


@kernel
def end(a: Arrays, replica: int, request: int) -> None:
    """A request has ended, before it was admitted or after."""
    off = a.offloads[request]
    if off.is_looked_up != 0:
        unpin(a, replica, request, off.found_chunks)
    off.is_looked_up, off.found_chunks = 0, 0
