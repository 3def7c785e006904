"""The records of disaggregated prefill/decode."""

from simulator.core.record import record

# Of a request whose prompt is computed in one engine and whose answer in another.
HANDOVER = record(
    [
        ("stage", "i1"),  # 0: to be prefilled, 1: to be decoded
        ("do_remote_prefill", "i1"),  # 1: its KV is to come from elsewhere
        ("asked", "i1"),  # 1: its decode engine has asked for KV that is to be written there
        ("lost", "i1"),  # 1: in vain
        ("offered", "i1"),  # 1: of its row at the prefill engine: KV that can be written
        ("max_tokens", "i4"),  # of its answer, while it is prefilled: there it ends with its first token
        ("source", "i4"),  # the engine that prefilled it, NONE: its decode engine does
        ("row", "i4"),  # of the block table that is kept there
        ("num_blocks", "i4"),
        ("read_blocks", "i4"),  # that come to its decode engine
        ("cached_tokens", "i4"),  # prefix hit there
        ("last_prefill", "i4"),  # before it arrives: where its session was prefilled last …
        ("last_decode", "i4"),  # … and decoded
        ("next_asked", "i4"),  # to be read, offered, or given up
        ("chosen", "i4"),  # the engine for one of the two stages that was chosen for a decider, NONE: none
        ("prefilled_s", "f8"),
        ("known_s", "f8"),  # from when on its prefill engine knows that it is asked for KV
    ]
)

# What an engine waits for: that nobody needs the KV any more that it keeps, that KV to be read has come.
SENT, RECEIVED = 0, 1

# Of a request, for each of the two.
WAIT = record(
    [
        ("next", "i4"),  # in the engine's list
        ("over_s", "f8"),  # when the engine can know that it is over
    ]
)

# Of an engine, for each of the two.
WAITS = record(
    [
        ("head", "i4"),  # of those that are not known to be over, by id
        ("told_head", "i4"),  # of those that a step has heard of, and that nobody has taken note of
        ("told_tail", "i4"),
        ("num_told", "i8"),  # so far
        ("num_taken", "i8"),  # of those, taken note of
        ("next_s", "f8"),  # the earliest of the first list
    ]
)

# Of an engine.
SIDE = record(
    [
        ("pushes", "i4"),  # 1: prefill engines write, 0: decode engines read
        ("asked_head", "i4"),  # KV that the step which is being decided asks for or offers, in this order
        ("asked_tail", "i4"),
        ("given_up_head", "i4"),  # ended before a read, since the latest step was decided
        ("num_pending", "i4"),  # waits that nobody has taken note of
        ("num_lost", "i4"),  # of those, the ones that never end
        ("dispatch_s", "f8"),  # between its step and the request's arrival at its decode engine
        ("lease_s", "f8"),  # how long blocks are kept that nobody comes to read
        ("block_s", "f8"),  # of a read, for each block …
        ("transfer_s", "f8"),  # … and beside
        ("post_s", "f8"),  # of a read to here, for each block
        ("sent_free_s", "f8"),  # when the next read from here can begin
        ("read_free_s", "f8"),  # and the next read to here
        ("looked_s", "f8"),  # when its worker looked for messages last
    ]
)

# Who decides whether a decode engine computes a prompt itself.
PREFIX_BASED, ISL_BOUNDING, PREFILL_LOAD, ISL_OR_LOAD = 1, 2, 3, 4
DECIDING = record(
    [
        ("number", "i4"),  # of its rule
        ("keeps_engine", "i4"),  # 1: the decode engine that it looked at serves the request
        ("sees_load", "i4"),  # 1: what prefill engines have to compute
        ("least_tokens", "f8"),  # to compute, from which on another engine does it …
        ("prompt_tokens", "f8"),  # … of prompts of at least so many
        ("ratio", "f8"),  # … or if they are this share of the prompt
        ("busy", "f8"),  # full steps: a prefill engine that has more to compute is left out
    ]
)
