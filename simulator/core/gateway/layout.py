"""The records of clients and of the gateway: its settings, its queue, what tenants may still send."""

from simulator.core.record import record

NO_QUEUE, UTILIZATION, CONCURRENCY = 0, 1, 2  # what tells that the fleet is saturated

GATEWAY = record(
    [
        ("detector", "i4"),
        ("round_robin", "i4"),  # 1: tenants of one priority take turns, 0: who came first goes first
        ("queue_depth_threshold", "f8"),  # waiting requests of an engine that saturate it
        ("kv_cache_util_threshold", "f8"),
        ("max_concurrency", "f8"),  # requests in flight at an engine that saturate it
        ("max_requests", "i8"),  # that may wait, of all priorities
        ("band_max_requests", "i8"),  # and of one
        ("ttl_s", "f8"),  # how long a request may wait while some engine takes requests …
        ("no_endpoint_ttl_s", "f8"),  # … and while none does, each counted anew when that changes
        ("is_empty", "i4"),  # 1: no engine took requests when the gateway last looked …
        ("changed_s", "f8"),  # … which it first saw then
        ("dispatch_every_s", "f8"),  # between two looks at a queue that holds requests
        ("sweep_every_s", "f8"),  # between two looks at how long they have waited
        ("next_sweep_s", "f8"),
        ("is_looking", "i4"),  # 1: the next look is among the events
        ("num_held", "i8"),
        ("held_s", "f8"),  # request-seconds in the queue until …
        ("accounted_s", "f8"),  # … then
    ]
)

# Requests of one priority, those that are served first before the others.
BAND = record(
    [
        ("first_flow", "i4"),
        ("num_flows", "i4"),
        ("last_flow", "i4"),  # that had its turn, NONE
        ("num_held", "i8"),
    ]
)

# Requests of one tenant with one priority, in the order in which they came.
FLOW = record([("band", "i4"), ("head", "i4"), ("tail", "i4")])

# What a tenant may still send: two buckets that fill with time.
QUOTA = record(
    [
        ("most_requests", "f8"),
        ("requests_per_s", "f8"),
        ("requests", "f8"),
        ("most_tokens", "f8"),
        ("tokens_per_s", "f8"),
        ("tokens", "f8"),  # of prompts
        ("filled_s", "f8"),  # the buckets are as full as they were then
    ]
)

# How long the client of an attempt waits; there are none where all wait for ever.
CLIENT = record(
    [
        ("patience_s", "f8"),  # until the first token, counted from the first attempt; infinity: for ever
        ("timeout_s", "f8"),  # of this attempt, to the end of its answer
        ("gives_up_s", "f8"),  # when it ends; known once the first attempt has arrived
        ("backoff_s", "f8"),  # before this attempt, from the time-out of the one before
        ("resumes", "i4"),  # the turn that comes after this one was given up, NONE: the session ends
    ]
)
