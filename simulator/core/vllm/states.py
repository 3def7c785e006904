"""States that the prefix cache keeps at block ends, compiled: vLLM's cache mode `align`.

A group of such states has a table like a window's of two tokens, but with gaps (`NONE`): a chunk over several blocks
leaves one state at its end, and where the kernel can, a second one at the last block's end before.
"""

from simulator.core.jit import kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.types import Pool, Request


@kernel
def prefill_end(req: Request) -> int:
    """Where a request's prompt ends, or what it computes again once it was preempted."""
    return max(req.prompt, req.prompt + req.output - 1)


@kernel
def up_to_state(p: Pool, req: Request, start: int, tokens: int) -> int:
    """A chunk of prefill shortened to end where the state must be cached; 0: it has to wait for a larger budget."""
    last = prefill_end(req)
    if start >= last:
        return tokens
    size, end = p.block_size, start + tokens
    block = start // size
    crosses = start == block * size and (last - 1) // size > block
    leaves_state = p.state_checkpoints == 1 and crosses and end >= last
    if end < last:
        aligned = end // size * size
        most = p.token_budget
        if p.long_prefill_token_threshold > 0:
            most = min(most, p.long_prefill_token_threshold)
        if aligned > start or size <= most:  # a larger block is computed in several chunks
            end = aligned
    found = end
    if not leaves_state:
        stop = (req.prompt + req.output - 1) // size * size
        if start < stop < end:
            found = stop
        stop = (block + 1) * size
        if start > block * size and stop < end:
            found = min(found, stop)
    shared = req.shared_prefix_boundary
    if start < shared < end:
        stop = start + (shared - start) // size * size
        if start < stop:
            found = min(found, stop)
    return max(found - start, 0)


@kernel
def leaves_checkpoint(p: Pool, req: Request, start: int, end: int) -> int:
    """1 if a chunk leaves a state at the last block's end before its own, in a block of its own."""
    if p.state_checkpoints == 0 or start % p.block_size != 0:
        return 0
    is_kept = end >= prefill_end(req) or p.retention_interval != 0
    return 1 if is_kept and (end - 1) // p.block_size > start // p.block_size else 0


@kernel
def leave_gap(a: Arrays, req: Request, first: int, last: int) -> int:
    """Enter gaps for all of a table's new places but those that get a state; returns the first of these."""
    taken = max(last - 1 - req.checkpoint, first)
    for index in range(first, taken):
        a.tables[req.row, index] = NONE
    return taken


@kernel
def close_gaps(a: Arrays, row: int, first: int, last: int) -> int:
    """Move a table's states in [first, last) to its end, before they are let go; returns where they begin."""
    start = last
    for index in range(last - 1, first - 1, -1):
        if a.tables[row, index] != NONE:
            start -= 1
            a.tables[row, start] = a.tables[row, index]
    return start


# -- states of this step: they are computed when it is over, so that a hit can go on from them in the next only


@kernel
def note_fresh(a: Arrays, replica: int, request: int, num_cached: int) -> None:
    """Note what a request has cached since it had `num_cached` blocks; in older releases, its prompt's end again."""
    p = a.pools[a.replicas[replica].pool]
    req = a.requests[request]
    for index in range(num_cached, req.cached_blocks):
        note_block(a, replica, req, index)
    if p.states_are_fresh_once == 1 or req.checkpoint == 1 or req.cached_blocks == 0:
        return
    if req.cached_blocks == (req.prompt - 1) // p.block_size:
        note_block(a, replica, req, req.cached_blocks - 1)


@kernel
def note_block(a: Arrays, replica: int, req: Request, index: int) -> None:
    state = a.replicas[replica]
    p = a.pools[state.pool]
    if index < a.table_starts[req.row, p.first_state]:
        return
    block = a.tables[req.row, p.first_state * p.row_blocks + index]
    if block != NONE and a.blocks[block].key_content != NONE:
        a.fresh_states[replica, state.num_fresh, 0] = a.blocks[block].key_content
        a.fresh_states[replica, state.num_fresh, 1] = a.blocks[block].key_index
        state.num_fresh += 1


@kernel
def is_fresh(a: Arrays, replica: int, row: int, hits: int) -> bool:
    """Whether a hit of so many blocks, entered in the table `row`, ends with a state of this step."""
    state = a.replicas[replica]
    p = a.pools[state.pool]
    block = a.blocks[a.tables[row, p.first_state * p.row_blocks + hits - 1]]
    for place in range(state.num_fresh):
        of = a.fresh_states[replica, place]
        if of[0] == block.key_content and of[1] == block.key_index:
            return True
    return False
