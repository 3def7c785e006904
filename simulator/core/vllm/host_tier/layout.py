"""The records of host tiers."""

from simulator.core.record import record

NUM_LISTS = 4
T1, T2, B1, B2 = range(NUM_LISTS)  # of ARC; LRU has the first alone
POLL_S = 2.0**-10  # vLLM's 1 ms between two looks at transfers while nothing else is to do; exact in sums

# Of a request in an engine with a connector.
OFFLOAD = record(
    [
        ("next_chunk", "i4"),  # to be offered …
        ("prefill_end", "i4"),  # … of this many tokens, to a store that engines share …
        ("next_unsaved", "i4"),  # … which has those before this one
        ("known_blocks", "i4"),  # as of the latest step that scheduled it
        ("num_stores", "i4"),  # under way
        ("loading", "i1"),  # 1: its load is under way, 2: over, 3: under way, though the request has ended
        ("holds", "i1"),  # 1: waits among those that hold blocks
        ("keeps_row", "i1"),  # 1: it has ended, and the next plan reads its block table
        ("was_aborted", "i1"),
        ("local_blocks", "i4"),  # before those loaded
        ("preempted_step", "i4"),
        ("next_ended", "i4"),
        ("next_deferred", "i4"),
        ("notes", "i8"),  # where its part of `used_chunks` begins …
        ("note_bytes", "i4"),  # … and how long it is
        ("rank", "i8"),  # by when it saw its first chunk, see `ranks`; 0: it saw none
        ("fence_step", "i8"),  # its blocks are free once so many steps with work are over
        ("is_looked_up", "i1"),  # it was, and was not admitted since, see `lmcache` and `store`; of LMCache …
        ("found_chunks", "i4"),  # … and these are pinned
        ("seen_tokens", "i4"),  # by LMCache's tracker, which has stored those before `next_chunk`
        ("decodes", "i1"),  # 1: LMCache stores nothing of it any more
        ("loading_s", "f8"),  # what its loads took, from the launch of the step that asked for them
    ]
)

# What lies in one engine's host memory, or in the store that engines share.
CACHE = record(
    [
        ("is_laid_out", "i1"),
        ("num_records", "i4"),  # that were used before
        ("free_chunk", "i4"),
        ("num_free", "i4"),
        ("num_idle", "i4"),  # chunks that nothing reads or writes
        ("oldest", "i4", (NUM_LISTS,)),  # of each list, by their last use
        ("newest", "i4", (NUM_LISTS,)),
        ("lengths", "i4", (NUM_LISTS,)),
        ("target_t1_size", "f8"),
        ("num_ranked", "i4"),  # chunks in the heap …
        ("latest_rank", "i8"),  # … see `ranks`
        ("offer", "i4"),  # number of the latest …
        ("num_protected", "i4"),  # … and how many of its chunks are idle
        ("free_s", "f8", (2,)),  # of a shared store: when it has given, and taken, what it was asked for
    ]
)

# Of an engine with a connector; places in the rings of transfers count on and on.
TIER = record(
    [
        ("cache", "i4"),  # where its chunks lie: in memory of its own, or in one store for all engines
        ("holding_head", "i4"),
        ("holding_tail", "i4"),
        ("ended_head", "i4"),  # since the latest step was decided, by id
        ("ended_tail", "i4"),
        ("any_ended", "i1"),  # 1: some request has, since then
        ("deferred_head", "i4"),  # ended, with blocks that a step in flight writes
        ("deferred_tail", "i4"),
        ("is_fenced", "i1"),  # 1: this step hands out a block that is being stored
        ("any_preempted", "i1"),
        ("awaits", "i1"),  # 1: this step waits for stores
        ("is_idle", "i1"),  # 1: it has nothing to do but transfers
        ("is_blocking", "i1"),  # 1: it waits for the end of its oldest step …
        ("goes_on", "i1"),  # … and decides the next at once, or …
        ("decided_work", "i1"),  # 1: the step decided last has work
        ("may_change", "i1"),  # … looks again a while later, since something was under way
        ("num_empty_plans", "i4"),  # in flight
        ("num_steps", "i8"),  # with work
        ("num_steps_over", "i8"),
        ("store_done", "i8"),
        ("store_told", "i8"),
        ("store_begun", "i8"),
        ("store_of_step", "i8"),
        ("store_tail", "i8"),
        ("store_settled", "i8"),  # those before are in the store that engines share
        ("load_done", "i8"),
        ("load_told", "i8"),
        ("load_begun", "i8"),
        ("load_tail", "i8"),
        ("now_s", "f8"),  # when the latest step was launched
        ("computed_s", "f8"),  # when the steps that were launched are over
        ("load_free_s", "f8"),
        ("store_free_s", "f8"),
        ("copies_s", "f8"),  # by which LMCache's copies lengthen the step decided last
    ]
)
CHUNK = record(
    [
        ("key_content", "i4"),
        ("key_index", "i4"),  # `content.place_of`; of a ghost, which ARC remembers: -1 minus it
        ("reads", "i4"),  # transfers that read it; -1: it is being written
        ("list", "i4"),
        ("rank", "i8"),  # see `ranks`
        ("rank_index", "i4"),
        ("place", "i4"),  # in the heap
        ("next_in_bucket", "i4"),
        ("older", "i4"),
        ("newer", "i4"),  # or the next free one
        ("offer", "i4"),  # the latest that it was part of
        ("source", "i4"),  # the block that it is written from
        ("next_in_store", "i4"),
    ]
)
TRANSFER = record(
    [
        ("request", "i4"),
        ("first", "i4"),  # block index of a load, in each group; chunk of a store
        ("count", "i4"),
        ("is_awaited", "i4"),
        ("pinned", "i4"),  # of LMCache: chunks that are let go with it …
        ("is_loaded", "i4"),  # … 1: before anything is stored
        ("held_blocks", "i4"),  # of a shared store: of its request …
        ("row", "i4"),  # … in this table, which is its own now; NONE: the request still has it
        ("num_chunks", "i4"),  # of a shared store: of its request
        ("tokens", "i4"),  # of a load: that its request has then
        ("num_preemptions", "i4"),  # of a shared store: of its request when it was asked for
        ("asked_s", "f8"),
        ("computed_s", "f8"),
        ("end_s", "f8"),
    ]
)
