"""The records of the router's view and of its own index of prefixes."""

from simulator.core.record import record

# What a router knows of an engine. What no router in use reads is not kept up.
ENGINE_VIEW = record(
    [
        ("routable", "i1"),  # 1: a candidate, 0: no request may go there
        ("outstanding", "i4"),  # requests sent there and not ended
        ("weight", "f8"),  # how much it serves beside the others
        ("sent", "i4"),  # requests since its metrics were last scraped
        ("waiting", "i4"),  # as last scraped, and the next two
        ("running", "i4"),
        ("kv_usage", "f8"),  # share of its blocks in use
        ("outstanding_tokens", "i8"),  # prompts of the outstanding requests
        ("active_tokens", "i8"),  # of those, in whole chunks, what several share counted once
        ("held_tokens", "i8"),  # the same, what several share counted for each
        ("shared_tokens", "i4"),  # of the prompt to route: those that outstanding requests hold there
        ("prefill_tokens", "i8"),  # of those, not cached as the router believes, and without a first token yet
        ("matched_tokens", "i4"),  # of the prompt to route: leading ones that the router's own index has for it
        ("matched_at", "i4"),  # how many requests had been sent when the last of these were first sent there
        ("known_tokens", "i8"),  # of all prompts, in the router's own index
        ("cached_tokens", "i4"),  # of the prompt to route: leading ones that the engine has cached
    ]
)
REQUEST_VIEW = record(
    [
        ("prompt_tokens", "i4"),
        ("last", "i4"),  # the engine where the session was served last, NONE
        ("session", "i4"),  # the same for all turns
        ("pool_role", "i4"),  # of the engines that it may go to: SERVE, PREFILL or DECODE
        ("now_s", "f8"),
    ]
)

# How the router's view is kept up.
ROUTING = record(
    [
        ("router", "i8"),  # address of the compiled router, 0: Python decides
        ("sees_metrics", "i8"),  # 1: what engines report of themselves
        ("sees_tokens", "i8"),  # 1: tokens of outstanding requests are counted
        ("sees_active", "i8"),  # 1: what outstanding requests share is counted once …
        ("held_chunk_tokens", "i8"),  # … in whole chunks of so many tokens
        ("num_sent", "i8"),  # requests so far
        ("sees_cache", "i8"),  # 1: the engines' caches are looked up
        ("scrape_every_s", "f8"),  # 0: metrics are those of the moment
        ("next_scrape_s", "f8"),  # infinity: metrics are not scraped in advance
        ("chunk_tokens", "i8"),  # of the router's own index, 0: none is kept
        ("most_chunks", "i8"),  # that a list of the index holds
        ("lifetime_s", "f8"),  # of what it holds, from the last time it was sent
        ("only_changes", "i8"),  # 1: a scrape waits until some engine's requests have changed
    ]
)

# What the router's own index knows of a content, and of an engine.
KNOWN_PREFIX = record(
    [
        ("tokens", "i4"),  # sent there up to here, counted from the prompt's start; 0: none, or forgotten
        ("sent_at", "i4"),  # how many requests had been sent when that many tokens first were
        ("num_active", "i4"),  # outstanding requests that hold some of it
        ("active_tokens", "i4"),  # what they hold of it
    ]
)
RUN = record(
    [
        ("chunks", "i4"),  # that are held, 0: it is not in its list
        ("newer", "i4"),  # contents
        ("older", "i4"),
        ("renewed_s", "f8"),
    ]
)
RUN_LIST = record([("newest", "i4"), ("oldest", "i4"), ("chunks", "i8")])
