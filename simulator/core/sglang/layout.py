"""The arrays of SGLang's engines.

Node ids are global over the fleet: an engine's nodes follow each other, the root first.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.record import record

# What a batch computes; from EXTEND on it prefills.
NO_BATCH, DECODE, EXTEND, MIXED = 0, 1, 2, 3

# `schedule_policy` by its place among the engine's; from LPM on, policies look at prefix hits.
FCFS, LOF, RANDOM, ROUTING_KEY, LPM, DFS_WEIGHT, HRRN, SHORTEST_PREFILL_FIRST = 0, 1, 2, 3, 4, 5, 6, 7
# `radix_eviction_policy` by its place here.
EVICTION_POLICIES = ("lru", "lfu", "slru", "priority", "tlru")
LRU, LFU, SLRU, PRIORITY, TLRU = 0, 1, 2, 3, 4

MATCHED_AT_MOST = 128  # waiting requests; where there are more, lpm and hrrn take them as they came

# What the engines of a pool have in common.
POOL = record(
    [
        ("page_size", "i4"),
        ("num_pages", "i4"),
        ("context_len", "i4"),
        ("max_running_requests", "i4"),
        ("max_prefill_tokens", "i4"),
        ("chunked_prefill_size", "i4"),  # NONE: a prompt is never cut
        ("is_mixed_chunk", "i4"),
        ("is_tree_disabled", "i4"),
        ("schedule_policy", "i4"),
        ("eviction_policy", "i4"),
        ("tail_tokens", "i4"),  # tlru: what is kept for the next turn, beyond the branch's length
        ("bucket_mask", "i4"),
        ("kept_window", "i4"),  # tokens of a sequence that the pool of windows keeps; 0: there is none
        ("num_window_pages", "i4"),
        ("has_states", "i4"),
        ("num_state_slots", "i4"),
        ("num_tracking_slots", "i4"),  # of each request; 0: the tree gets the states that requests go on from
        ("state_chunk", "i4"),  # tokens between states that a prefill can track
        ("kernel_chunk", "i4"),
        ("track_interval", "i4"),  # tokens of a sequence after which its state is tracked while it decodes
        ("draft_tokens", "i4"),  # the most of a request that a batch accepts
        ("draft_width", "i4"),  # tokens that are verified of one, its own among them
        ("draft_reserve", "i4"),  # places that it holds past its own
        ("bigrams", "i4"),  # 1: the tree knows each token by the next one too
        ("init_ratio", "f8"),
        ("min_ratio", "f8"),
        ("ratio_decay", "f8"),
    ]
)

ENGINE = record(
    [
        ("root", "i4"),
        ("num_nodes", "i4"),  # that were ever used; those given up are a list
        ("free_node", "i4"),
        ("num_entered", "i4"),  # nodes that were put under a parent so far
        ("num_leaves", "i4"),  # in the heap of those that may be evicted
        ("batch_size", "i4"),  # the running batch's
        ("batch_is_full", "i4"),
        ("chunked_req", "i4"),
        ("has_aborts", "i4"),  # a client has gone since the last decision
        ("last_mode", "i4"),  # of the latest batch …
        ("last_slot", "i4"),  # … its plan …
        ("last_chunked", "i4"),  # … and the request that it leaves with chunks to go
        ("num_sorts", "i4"),
        ("num_queue_entries", "i4"),
        ("kept_extend_tokens", "i4"),  # what the running batch prefilled when it began, as SGLang's keeps it
        ("num_processed_tokens", "i8"),
        ("clock", "f8"),
        ("ratio", "f8"),  # new_token_ratio
        # a prefill batch in the making: SGLang's PrefillAdder
        ("total_offset", "f8"),
        ("current_offset", "i8"),
        ("rem_input_tokens", "i8"),
        ("rem_chunk_tokens", "i8"),
        ("new_chunked_req", "i4"),
        # the pool of windows
        ("num_free_window_pages", "i4"),
        ("num_evictable_window_pages", "i4"),
        ("window_offset", "i8"),  # what the batch in the making takes of it
        ("oldest_side", "i4"),  # of the nodes that have their tokens there, or a state, by their last use
        ("newest_side", "i4"),
        ("num_free_states", "i4"),
        ("num_evictable_states", "i4"),
    ]
)

# Of its tokens, [0, protected) belong to the tree, which `lock` keeps; [protected, computed) are its own. With drafts,
# it holds places up to `reserved`. One cache line.
REQUEST = record(
    [
        ("max_new_tokens", "i4"),
        ("prefix_len", "i4"),
        ("extend_end", "i4"),
        ("last_node", "i4"),
        ("lock", "i4"),
        ("protected", "i4"),
        ("inserted", "i4"),  # up to which it has put its own tokens into the tree
        ("matched", "i4"),
        ("reserved", "i4"),
        ("inflight_chunks", "i4"),  # before the last, computed and not yet processed
        ("holds_kv", "i1"),
        ("is_retracted", "i1"),  # and not yet admitted again
        ("gone_as", "i1"),  # the status that it will end with, as its client has gone; 0: nobody has
        ("is_aborted", "i1"),  # its scheduler knows: its next output is its last
        ("routing_key", "i4"),  # by its place among all, in the order of their names; 0: none
        ("queue_entry", "i4"),  # the how-manieth entry of the waiting queue it was
        ("arrival_processed_tokens", "i8"),
    ]
)

# Positions [start, end) of a sequence, after its parent's. One cache line.
NODE = record(
    [
        ("last_access", "f8"),
        ("parent", "i4"),
        ("key_content", "i4"),  # of the last token of its first page: by the law of spans it names all before it, too
        ("next_in_bucket", "i4"),
        ("span", "i4"),  # of some request that has this prefix: the one that holds `start`
        ("start", "i4"),
        ("end", "i4"),
        ("lock_ref", "i4"),
        ("num_children", "i4"),
        ("leaf_place", "i4"),  # in the heap of leaves, or NONE
        ("hit_count", "i4"),
        ("priority", "i4"),
        ("history_len", "i4"),  # how deep the branch has ever been
        ("entered", "i4"),  # when it was put under its parent, in the order of all
        ("weight", "i4"),  # waiting requests at it or below, while a queue is sorted by them
    ]
)


# What a request has where layers with sliding windows have a pool of their own: its tokens from `start` on.
WINDOW_REQUEST = record(
    [
        ("start", "i4"),
        ("lock_start", "i4"),  # up to which `lock` holds windows, from the end on
        ("branching", "i4"),  # how far the tree knew it, where windows made its prefix shorter; 0: they did not
        ("extend_batches", "i4"),
        ("decode_batches", "i4"),
    ]
)

# What a request has where layers have states.
STATE_REQUEST = record(
    [
        (
            "branching",
            "i4",
        ),  # the last chunk boundary up to which the tree knew it, beyond its prefix; 0: there is none
        ("tracked", "i4"),  # tokens after which its latest tracked state is; 0: there is none
        ("previous", "i4"),  # the same of the state before it
        ("holds_state", "i4"),
        ("num_tracking_slots", "i4"),
    ]
)

# What a node has in a pool beside that of all tokens: its own in windows, or the state at its end.
SIDE_NODE = record(
    [
        ("older", "i4"),  # the node that was used before
        ("newer", "i4"),
        ("lock_ref", "i4"),
        ("is_held", "i4"),  # 0: nothing
    ]
)


class SGLangArrays(NamedTuple):
    """All state of SGLang's engines; where a fleet has none, next to nothing."""

    pools: NDArray[np.void]  # [pools]
    engines: NDArray[np.void]  # [R]
    requests: NDArray[np.void]  # [attempts * n]
    nodes: NDArray[np.void]  # engine by engine
    window_requests: NDArray[np.void]  # as `requests`, if some pool has windows of its own
    state_requests: NDArray[np.void]  # as `requests`, if some pool has states
    side_nodes: NDArray[np.void]  # as `nodes`, if some pool has either
    leaves: NDArray[np.int32]  # heaps, each at the place of its engine's nodes
    buckets: NDArray[np.int32]  # [R, bucket_mask + 1]
    order: NDArray[np.int32]  # [n], a queue while it is sorted
    sort_key: NDArray[np.float64]  # of each there
    contents: NDArray[np.int32]  # a hash table of how prompts begin
    key_counts: NDArray[np.int32]  # [routing keys], requests of each in a running batch
    shuffles: NDArray[np.int64]  # [R, WORDS], the state of Python's generator in each server; no rows unless random
