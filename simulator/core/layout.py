"""The arrays that the compiled core works on.

Everything is a flat array of records: that is what compiles to plain loads and stores. Request, block and row ids are
global over the fleet: an engine's blocks follow each other, the null block first. Inside the core -1 means "none".
"""

from simulator.core.record import record
from simulator.core.vllm.host_tier.settings import HOST_TIER

NONE = -1
# Words of a compiled router's memory: its stream's seed, how many were drawn; from OWN on they are the router's.
SEED, COUNT, OWN = 0, 1, 2
ROUTER_WORDS = 8  # of that memory, beside one for each engine

# Request.status; from WAITING to SENT it is with an engine, from FINISHED on it has ended. At the gateway it waits for
# an engine that takes requests, HELD in the gateway's queue.
HELD, AT_GATEWAY, NOT_ARRIVED, WAITING, RUNNING, SENT, FINISHED, ABANDONED, TIMED_OUT, LOST = range(-2, 8)
REJECTED = 8  # by the gateway

# Why the waiting queue was not taken further in a step.
NOT_BLOCKED, BLOCKED_BY_KV_BLOCKS, BLOCKED_BY_MAX_NUM_SEQS, BLOCKED_BY_TOKEN_BUDGET, BLOCKED_BY_MAX_LORAS = range(5)
NUM_BLOCK_REASONS = 5

# What `run` came back for.
DONE, REACHED_TIME, NEED_LOG_SPACE, STALLED, PAUSED, NEED_ROUTE, CONTROL = 0, 1, 2, 3, 4, 5, 6

# What an event in the heap is. At one instant the gateway looks at its queue, then the others enter by request id.
NEXT_TURN, LEAVES_FRONT_END, LOOKS = 0, 1, 2

# What a deadline in the other heap is for: the first token must have come by then, or the whole answer.
FIRST_TOKEN, WHOLE_ANSWER = 0, 1

# How far an instant is: over, or with its steps ended and its arrivals to enter.
BETWEEN_INSTANTS, STEPS_ENDED = 0, 1

# ITL histogram: bin k holds gaps in [ITL_MIN_S * ITL_GROWTH**k, ... * ITL_GROWTH); quantiles are good to 0.5 %.
ITL_MIN_S, ITL_GROWTH, ITL_BINS = 1e-6, 1.01, 2400

VLLM, SGLANG = 0, 1  # whose scheduler a pool's engines run
OFFLOADING, NIXL, LMCACHE = 1, 2, 3  # a pool's connector, which brings KV from elsewhere; 0: none
SERVE, PREFILL, DECODE = 0, 1, 2  # what a pool's engines do

CALENDAR_STEPS = 32  # the longest rest of a quiet request, and one
BARELY_LESS = 1.0 - 1e-9  # a bound times this holds in spite of rounding
BRANCHES = 1 << (BRANCH_BITS := 3)  # of a node in the tournament of next steps


# What every step touches comes first, within one cache line.
REQUEST = record(
    [
        ("computed", "i4"),  # tokens; advanced when scheduled, as in vLLM
        ("quiet_until", "i4"),  # decodes up to this `computed` need no block, hash none, end nothing
        ("in_flight", "i4"),
        ("placeholders", "i4"),
        ("stale", "i4"),
        ("output", "i4"),  # tokens delivered
        ("prompt", "i4"),
        ("max_tokens", "i4"),
        ("num_blocks", "i4"),
        ("cached_blocks", "i4"),
        ("status", "i1"),
        ("prefilling", "i1"),  # 1: its last step ended within known tokens
        ("drafts", "i1"),  # speculative tokens that its next step verifies
        ("passed_over", "i1"),  # 1: waits, and was skipped once because its last token was in flight
        ("admission", "i4"),  # counted by its engine; `running` is in this order
        ("last_token_s", "f8"),
        ("row", "i4"),  # of the block table
        ("span_start", "i4"),
        ("previous", "i4"),  # in the waiting queue
        ("next", "i4"),  # there, or in the calendar
        ("replica", "i4"),  # before it arrives: where its session was served last
        ("preemptions", "i4"),
        ("priority", "i4"),
        ("cached_tokens", "i4"),  # prefix hit at first admission
        ("shared_prefix_boundary", "i4"),  # tokens; another request's prefix goes this far, a window's tail is missing
        ("quiet_since", "i4"),  # the last step before its rest in the calendar
        ("next_decode_step", "i4"),  # pipeline parallelism: not decoded before this step
        ("checkpoint", "i4"),  # 1: its last chunk leaves a state at the last block's end before its own
        ("arrival_s", "f8"),  # at the server's door
        ("scheduled_s", "f8"),
        ("first_token_s", "f8"),
        ("finish_s", "f8"),  # when it ended, however it did
        ("api_server_s", "f8"),  # in the queues of its engines' API servers, and for their work on its prompt
        ("api_server_queue_s", "f8"),  # of that, in the queues
    ]
)

SPAN = record([("content", "i4"), ("end", "i4")])

REPLICA = record(
    [
        ("pool", "i4"),
        ("leader", "i4"),  # the first of the ranks whose steps begin and end with this one's
        ("first_block", "i4"),  # its null block
        ("num_usable_blocks", "i4"),
        ("num_running", "i4"),  # those in `running` and the quiet ones
        ("num_quiet", "i4"),  # in the calendar
        ("quiet_in_window", "i4"),  # of those, how many are shorter than the window
        ("quiet_context", "i8"),  # their sums in the plan of the latest step
        ("quiet_window_context", "i8"),
        ("num_due", "i4"),  # quiet ones whose blocks change in this step: in line in `running`, behind the others
        ("next_due", "i4"),  # of those, how many have had their turn
        ("num_admitted", "i4"),
        ("restless_until", "i8"),  # the step from which requests may be quiet again
        ("num_waiting", "i4"),
        ("waiting_head", "i4"),
        ("waiting_tail", "i4"),
        ("num_free_blocks", "i4"),
        ("num_cached_free_blocks", "i4"),  # of those, how many keep a block of some prefix
        ("queue_head", "i8"),  # of the free queue: its first place, and one past its last, counted on and on …
        ("queue_tail", "i8"),  # … or its first and its last segment
        ("spare_segment", "i4"),  # the first without use, NONE: the next one was never used
        ("num_segments", "i4"),
        ("num_free_rows", "i4"),
        ("is_laid_out", "i4"),  # 1: a request came, so its blocks, buckets and rows hold what an empty engine's do
        ("num_plans", "i4"),
        ("oldest_plan", "i4"),
        ("block_reason", "i4"),
        ("threshold", "i4"),  # of long prefills in this step, 0 for none
        ("defers", "i4"),  # 1: this step computes no prompts, see `prefill_cadence`
        ("has_prefill", "i4"),  # 1: it admits a request with a prompt to compute
        ("capacity_bound", "i4"),  # 1: the last step that could compute prompts left requests waiting
        ("num_executed", "i8"),  # steps with tokens
        ("last_prefill_step", "i8"),
        (
            "known_waiting",
            "i4",
        ),  # of a server's ranks: waiting when the last step was decided; later ones are not known
        ("wave_step", "i8"),  # of the ranks of a server since the last request came to idle ones; of the first of them
        ("blocked_request", "i4"),  # the head of the queue was found not to fit …
        ("blocked_deficit", "i4"),  # … by so many blocks …
        ("blocked_miss_index", "i4"),  # … and with this first block not cached
        ("blocked_miss_content", "i4"),
        ("freed_at_block", "i8"),
        ("num_freed", "i8"),
        ("num_fresh", "i4"),  # states cached in this step
        ("step", "i8"),
        ("completed_step", "i8"),
        ("stage_free_s", "f8"),  # when the first pipeline stage can take the next step
        ("last_end_s", "f8"),  # of the steps given to the GPU
        ("num_stalls", "i4"),  # of a cold server; kept by the first of several ranks
        ("stalled_s", "f8"),  # when the last of them began
        ("previous_end_s", "f8"),  # of the step before that; kept by the first of several ranks
        ("latest_step_s", "f8"),  # how long the step that was decided last takes, rounding excluded
        ("first_end", "i4"),  # the least of `last_steps`, NONE: not known
        ("num_rows_used", "i4"),  # the first rows, that requests had
        ("least_to_come", "i4"),  # nobody that waits gets fewer steps
        ("round_slot", "i4"),  # the plan of a step that ranks take together, NONE: this rank has nothing to do
        ("last_completion_s", "f8"),
        ("accounted_s", "f8"),  # the integrals below reach to here
    ]
)

# One step's decisions; its sums price it.
PLAN = record(
    [
        ("count", "i4"),
        ("num_quiet", "i4"),  # of `count`, those without an entry
        ("step", "i8"),
        ("tokens", "i4"),
        ("sampled", "i4"),
        ("decodes", "i4"),
        ("prefill_tokens", "i4"),
        ("decode_context", "i8"),
        ("window_context", "i8"),
        ("prefill_work", "f8"),
        ("window_prefill_work", "f8"),
        ("end_s", "f8"),
        ("num_extending", "i4"),  # of SGLang's entries, the first that prefill
    ]
)
PLAN_ENTRY = record(
    [
        ("request", "i4"),
        ("tokens", "i4"),
        ("sampled", "i4"),
        ("drafts", "i2"),
        ("padded", "i2"),  # 1: a drafting step without drafts, all of which are rejected
    ]
)

# Totals over one replica; `*_s` integrals are over time (request-seconds, block-seconds, seconds).
TOTALS = record(
    [
        ("running_s", "f8"),
        ("waiting_s", "f8"),
        ("used_blocks_s", "f8"),
        ("busy_s", "f8"),
        ("steps", "f8"),
        ("tokens", "f8"),
        ("sequences", "f8"),
        ("sampled", "f8"),
        ("decode_sequences", "f8"),
        ("decode_context", "f8"),
        ("window_context", "f8"),
        ("prefill_tokens", "f8"),
        ("prefill_work", "f8"),
        ("window_prefill_work", "f8"),
        ("prefill_steps", "f8"),
        ("gpu_s", "f8"),
        ("host_bound_s", "f8"),  # time by which the host, not the GPU, lengthened steps
        ("queried_tokens", "f8"),  # prefix cache, first admissions
        ("hit_tokens", "f8"),
        ("host_hit_tokens", "f8"),  # those loaded from host memory
        ("read_tokens", "f8"),  # those read from the engines that computed them …
        ("read_s", "f8"),  # … and the time that this took
        ("preemptions", "f8"),
        ("max_used_blocks", "f8"),
        ("adapters", "f8"),  # LoRA adapters of running requests, at each step
        ("adapter_loads", "f8"),  # into slots of the GPU …
        ("adapter_load_s", "f8"),  # … and the time that steps waited for them
        ("encoder_s", "f8"),  # of steps, for the images that they encode …
        ("embeddings", "f8"),  # … and how many embeddings these have
        ("itl_sum_s", "f8"),  # of all gaps between tokens
        ("blocked_s", "f8", (NUM_BLOCK_REASONS,)),
    ]
)

SAMPLE = record(
    [
        ("time_s", "f8"),
        ("running_s", "f8"),  # integrals over the fleet since time 0
        ("waiting_s", "f8"),
        ("used_blocks_s", "f8"),
        ("running", "i4"),
        ("waiting", "i4"),
        ("used_blocks", "i4"),
        ("cached_blocks", "i4"),  # free, and kept for prefix reuse
        ("preemptions", "i4"),  # since time 0
        ("not_finished", "i4"),
    ]
)

# What the engines of a pool have in common.
POOL = record(
    [
        ("engine", "i4"),  # VLLM or SGLANG
        ("ranks", "i4"),  # engines of a server, whose steps begin and end together; they follow each other
        ("api_servers", "i4"),  # of a server, each of which takes one request after the other
        ("block_size", "i4"),  # tokens in a block of the group with the smallest
        ("max_model_len", "i4"),
        ("max_num_seqs", "i4"),
        ("max_num_batched_tokens", "i4"),
        ("token_budget", "i4"),
        ("plans_in_flight", "i4"),
        ("pipeline_stages", "i4"),
        ("decode_stagger", "i4"),  # steps between two decodes of a request, 0: none
        ("first_group", "i4"),
        ("num_groups", "i4"),
        ("first_kind", "i4"),
        ("num_kinds", "i4"),
        ("num_windows", "i4"),  # groups with a window, or with states that the prefix cache keeps
        ("num_states", "i4"),  # those of states
        ("first_state", "i4"),  # the first of these
        ("state_checkpoints", "i4"),
        ("states_are_fresh_once", "i4"),
        ("row_blocks", "i4"),  # of the block table, per group
        ("in_segments", "i4"),  # 1: blocks are kept as `vllm.segments`
        ("retention_interval", "i4"),  # of a window's cached tails in tokens, NONE: every block is kept
        ("speculative_tokens", "i4"),
        ("lookahead_tokens", "i4"),
        ("draft_slots", "i4"),
        ("drops_last_hit", "i4"),
        ("hash_lookahead_tokens", "i4"),
        ("caches_on_delivery", "i4"),
        ("prefix_hit_joins_drafting", "i4"),
        ("passed_over_keep_place", "i4"),
        ("takes_quiet_steps", "i4"),  # 1: one token a step, delivered before or with the next
        ("prefix_caching", "i4"),
        ("cache_unit", "i4"),  # blocks of `block_size` at whose multiples prefix hits end: a whole one of every group
        ("asynchronous", "i4"),
        ("bucket_mask", "i4"),
        ("queue_mask", "i4"),
        ("by_priority", "i4"),
        ("long_prefill_token_threshold", "i4"),
        ("threshold_spares_lone_request", "i4"),
        ("prefill_interval", "i4"),  # steps from one that computes prompts to the next; 1: every one does
        ("prefill_interval_counts_own_steps", "i4"),
        ("skipped_victim_shifts_scan", "i4"),
        ("scan_goes_past_self_preemption", "i4"),
        ("chunked_prefill", "i4"),
        ("reserve_full_isl", "i4"),
        ("watermark_blocks", "i4"),
        ("window", "i4"),  # of sliding-window layers, tokens
        ("role", "i4"),  # SERVE, PREFILL or DECODE
        ("connector", "i4"),  # OFFLOADING, NIXL or LMCACHE, 0: none
        ("defers_frees", "i4"),  # 1: blocks that a step in flight writes are not free: something may be loaded there
        ("drops_stale", "i4"),  # 1: what was in flight of a preempted request is not delivered
        ("max_loras", "i4"),  # LoRA adapters in a step, 0: the engine has none
        ("max_cpu_loras", "i4"),
        ("idle_adapters_count", "i4"),  # 1: adapters of running requests without tokens in this step count, too
        ("encoder_budget", "i4"),  # embeddings of images in a step, 0: all prompts are text
        *HOST_TIER,
        # step time: see simulator.latency.tables
        ("ingress_request_s", "f8"),
        ("ingress_token_s", "f8"),
        ("ingress_s", "f8"),
        ("decode_base_s", "f8"),
        ("context_s", "f8"),
        ("window_context_s", "f8"),
        ("prefill_s", "f8"),
        ("window_prefill_s", "f8"),
        ("host_base_s", "f8"),
        ("host_sequence_s", "f8"),
        ("stream_sequence_s", "f8"),
        ("gap_s", "f8"),
        ("cold_start_s", "f8"),
        ("cold_stalls", "i4"),
        ("cold_apart_s", "f8"),
        ("shortest_step_s", "f8"),  # no step takes less, rounding excluded
        ("adapter_s", "f8"),  # of a step, for each adapter of running requests
        ("adapter_load_s", "f8"),  # from CPU memory to a slot on the GPU
        ("adapter_read_s", "f8"),  # from disk to CPU memory
        ("encoder_floor_s", "f8"),  # of a step that encodes images, at least …
        ("encoder_start_s", "f8"),  # … else this …
        ("encoder_patch_s", "f8"),  # … for each of their patches …
        ("encoder_pair_s", "f8"),  # … and each pair of them that attends
    ]
)

# The fleet's own state, between two calls of `run`.
CURSOR = record(
    [
        ("now_s", "f8"),
        ("sample_every_s", "f8"),
        ("next_sample_s", "f8"),
        ("num_samples", "i8"),
        ("next_open", "i8"),
        ("next_free", "i8"),  # first request of the shared queue that no client took yet
        ("heap_size", "i8"),
        ("has_clients", "i8"),  # 1: somebody does not wait for ever
        ("num_deadlines", "i8"),
        ("num_arrived", "i8"),
        ("num_finished", "i8"),  # that ended, cancelled ones too
        ("num_exhausted", "i8"),  # sessions that ended: no further turn
        ("log_size", "i8"),
        ("stalled_request", "i8"),
        ("num_touched", "i8"),
        ("itl_count", "f8"),
        ("phase", "i8"),  # of the present instant
        ("control_s", "f8"),  # when Python acts next, after the steps that end then
        ("is_closed", "i8"),  # 1: no engine takes requests, so that they wait at the gateway
        ("unrouted", "i8"),  # the request that waits for Python's decision, NONE
        ("chosen", "i8"),  # that decision
        ("log_steps", "i8"),
        ("may_lag", "i8"),  # 1: engines may be behind the fleet's time, see `lag`
        ("num_unforeseen", "i8"),  # requests that ended while their engine lagged: never any
        ("log_reserve", "i8"),  # words that the steps of one instant may take
    ]
)

HEAP_ENTRY = record([("time_s", "f8"), ("request", "i4"), ("kind", "i4")])
