"""A simulation's state, as the arrays that its compiled functions share."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from files.compiling.machine_code import ArrayTable

if TYPE_CHECKING:
    from simulator.core.sglang.layout import SGLangArrays


class ArrayFields(NamedTuple):
    """The arrays of `Arrays`; shapes use R engines, n requests, S sequences per engine, the most of any pool.

    Attempts of clients that try again are rows too: n first ones, n second ones, …; with pushes as many for prefill.
    """

    pools: NDArray[np.void]  # [pools]
    cursor: NDArray[np.void]  # [1]
    requests: NDArray[np.void]  # [attempts * n]
    clients: NDArray[np.void]  # [attempts * n], or none
    next_turn: NDArray[np.int32]  # [n], NONE: the session ends
    think_s: NDArray[np.float64]  # [n]
    open_order: NDArray[np.int32]  # requests with a given arrival time, by that time
    shared_queue: NDArray[np.int32]  # requests that any free client takes next
    spans: NDArray[np.void]
    replicas: NDArray[np.void]  # [R]
    api_server_free_s: NDArray[np.float64]  # [R, API servers of a server], of the first of its ranks: when each is free
    totals: NDArray[np.void]  # [R]
    next_event_s: NDArray[np.float64]  # tournament of `heap`: when each oldest step ends
    routing: NDArray[np.void]  # [1]
    engine_views: NDArray[np.void]  # [R]
    request_view: NDArray[np.void]  # [1], of the request to route
    known_prefixes: NDArray[np.void]  # [contents, R] if the router keeps an index, and the next four
    matching: NDArray[np.int32]  # [R] if it matches prompts: first those engines that have all of one so far
    num_holding: NDArray[np.int32]  # [contents] if it counts what outstanding requests share: by how many
    runs: NDArray[np.void]  # [contents, lists]
    run_lists: NDArray[np.void]  # [R], or [1]: one for all engines
    sessions: NDArray[np.int32]  # [n] if the router sees them
    prefill_charges: NDArray[np.int32]  # [attempts * n] if the router sees tokens: what each adds to `prefill_tokens`
    gateways: NDArray[np.void]  # [1] if there are quotas or a queue before the router, and the next six
    bands: NDArray[np.void]  # by priority
    flows: NDArray[np.void]  # band by band, by tenant
    flow_of: NDArray[np.int32]  # [n]
    queued_s: NDArray[np.float64]  # [attempts * n], when each came to the queue last
    quotas: NDArray[np.void]  # of each tenant, if any has one
    tenant_of: NDArray[np.int32]  # [n]
    touched: NDArray[np.int32]  # [R], replicas that schedule at the present instant
    router_memory: NDArray[np.int64]  # what the compiled router keeps between decisions
    router_parameters: NDArray[np.float64]  # in the order of its PARAMETERS
    running: NDArray[np.int32]  # [R, S], in admission order, but for the quiet ones
    decode_fast_forward: NDArray[
        np.int32
    ]  # [R, CALENDAR_STEPS], lists of quiet requests by the step that must see them, or NONE
    free_rows: NDArray[np.int32]  # [R, S + 1]
    last_steps: NDArray[np.int32]  # [R, S + 1], by row: its request ends in no earlier step of its engine
    tables: NDArray[np.int32]  # [R * (S + 1), groups * blocks of the longest request], group by group
    table_starts: NDArray[np.int32]  # [R * (S + 1), groups], where blocks begin: the window has passed the rest
    skip_at: NDArray[np.int32]  # [R * (S + 1)], processed tokens from which a window has passed a further block
    groups: NDArray[np.void]  # pool by pool
    kinds: NDArray[np.void]  # pool by pool, full attention first
    group_order: NDArray[np.int32]  # pool by pool: its groups, counted from its first, by kind
    blocks: NDArray[np.void]  # engine by engine; none where all pools keep them in segments
    segments: NDArray[np.void]  # as many, in their place
    fresh_states: NDArray[np.int32]  # [R, 3 S, 2], keys of states cached in this step: up to three by each request
    free_queue: NDArray[np.int32]  # [R, queue_mask + 1], rings of blocks, NONE where one was taken from the middle
    queue_places: NDArray[np.int32]  # of each block that lies in its engine's ring
    buckets: NDArray[np.int32]  # [R, bucket_mask + 1]
    plans: NDArray[np.void]  # [R, plans in flight]
    entries: NDArray[np.void]  # [R, plans in flight, S]
    adapter_of: NDArray[
        np.int32
    ]  # [attempts * n], the LoRA adapter of each request if there are any, and the next three
    adapters: NDArray[np.void]  # [R, adapters]
    adapter_states: NDArray[np.void]  # [R]
    idle_adapters: NDArray[np.int32]  # [R, S], of running requests without tokens in this step, where they do not count
    images: NDArray[np.void]  # of all prompts, none where all are text, as of the next five
    images_of: NDArray[np.void]  # [attempts * n]
    image_flags: NDArray[np.int8]  # by attempt, of each of its images
    planned_images: NDArray[np.int32]  # [R, images of a request, 2], of the request that is looked at
    encoders: NDArray[np.void]  # [R]
    encoder_cache: NDArray[np.void]  # [R, most images that fit]
    tiers: NDArray[np.void]  # [R]; what follows is empty without host tiers
    caches: NDArray[np.void]  # [R], or [1]: a store that all engines share; C below
    offloads: NDArray[np.void]  # [attempts * n]
    used_chunks: NDArray[np.uint8]  # [notes, bits of all requests' blocks]
    chunks: NDArray[np.void]  # [C, chunks]
    chunk_heap: NDArray[np.int32]  # [C, chunks]
    chunk_buckets: NDArray[np.int32]  # [C, chunk_mask + 1]
    stores: NDArray[np.void]  # [R, store_mask + 1], ring
    loads: NDArray[np.void]  # [R, load_mask + 1], ring
    told: NDArray[np.int64]  # [R, plans in flight, 2], how many stores and loads a plan's output tells to be over
    fences: NDArray[np.int32]  # of each block: stores that read it though nobody may hold it
    handed_out: NDArray[np.int32]  # of each block: the latest step that gave it to a request
    registered: NDArray[np.int32]  # of each place in `tables`: the step of its block; NONE: none. Empty without windows
    handovers: NDArray[np.void]  # [attempts * n] if disaggregated, and the next four
    waits: NDArray[np.void]  # [attempts * n, 2]
    wait_lists: NDArray[np.void]  # [R, 2]
    sides: NDArray[np.void]  # [R]
    decode_memory: NDArray[np.int64]  # the compiled router's, for decode engines
    deciding: NDArray[np.void]  # [1] if a decider says which prompts decode engines compute themselves
    heap: NDArray[np.void]  # events, by time
    deadlines: NDArray[np.void]  # by time, at most one of each request; those of ended requests are passed over
    samples: NDArray[np.void]
    itl_histogram: NDArray[np.float64]  # [ITL_BINS]
    step_time: NDArray[np.float64]  # [pools, 3, max_num_batched_tokens + 1]: without, with prefill, floor
    sampling_time: NDArray[np.float64]  # [pools, S + 1]
    shared_time: NDArray[np.float64]  # [pools, ranks * max_num_batched_tokens + 1], by the tokens of all ranks
    acceptance_limits: NDArray[np.int64]  # [pools, speculative tokens], by position
    log: NDArray[np.int32]  # steps, for --steps-out
    sglang: "SGLangArrays"


class Arrays(ArrayFields, ArrayTable):
    """All state of one run."""
