"""The records of prefill and decode apart."""

from simulator.core.layout import record

# Of a request whose prompt is computed in one engine and whose answer in another.
HANDOVER = record(
    [
        ("stage", "i1"),  # 0: to be prefilled, 1: to be decoded
        ("do_remote_prefill", "i1"),  # 1: its KV is to be read
        ("max_tokens", "i4"),  # of its answer, while it is prefilled: there it ends with its first token
        ("source", "i4"),  # the engine that prefilled it
        ("row", "i4"),  # of the block table that is kept there
        ("num_blocks", "i4"),
        ("cached_tokens", "i4"),  # prefix hit there
        ("last_prefill", "i4"),  # before it arrives: where its session was prefilled last …
        ("last_decode", "i4"),  # … and decoded
        ("next_kept", "i4"),
        ("next_read", "i4"),
        ("prefilled_s", "f8"),
        ("received_s", "f8"),  # when the read is over
        ("sent_s", "f8"),  # when its source knows that nobody needs its KV there any more
    ]
)

# Of an engine. Both lists of requests are by id: those with KV that is kept, those with KV on its way here.
SIDE = record(
    [
        ("kept_head", "i4"),
        ("read_head", "i4"),
        ("asked_head", "i4"),  # reads of the step that is being decided, in the order of the decisions
        ("asked_tail", "i4"),
        ("given_up_head", "i4"),  # ended before a read, since the latest step was decided
        ("sent_head", "i4"),  # told of, and not yet taken note of
        ("sent_tail", "i4"),
        ("received_head", "i4"),
        ("received_tail", "i4"),
        ("num_pending", "i4"),  # in all of these but `asked` and `given_up`
        ("num_sent", "i8"),  # told of so far
        ("num_received", "i8"),
        ("num_sent_taken", "i8"),  # of those, taken note of
        ("num_received_taken", "i8"),
        ("next_sent_s", "f8"),  # the earliest of its list
        ("next_received_s", "f8"),
        ("dispatch_s", "f8"),  # between its step and the request's arrival at its decode engine
        ("lease_s", "f8"),  # how long blocks are kept that nobody comes to read
        ("block_s", "f8"),  # of a read, for each block …
        ("transfer_s", "f8"),  # … and beside
        ("post_s", "f8"),  # of a read to here, for each block
        ("sent_free_s", "f8"),  # when the next read from here can begin
        ("read_free_s", "f8"),  # and the next read to here
    ]
)
