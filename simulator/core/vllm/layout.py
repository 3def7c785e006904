"""The records of vLLM's KV blocks."""

from simulator.core.record import record

# Four to a cache line: the core spends most of its time waiting for blocks to come from memory.
BLOCK = record(
    [
        ("key_content", "i4"),  # NONE: not cached
        ("key_index", "i4"),
        ("ref_count", "i4"),
        ("next_in_bucket", "i4"),  # oldest first
    ]
)

# A run of blocks: [first, end) of a content in a band of groups of layers, or in some of its lanes.
SEGMENT = record(
    [
        ("key", "i4"),  # content and the band's first group in one
        ("first", "i4"),
        ("end", "i4"),
        ("holders", "i4"),  # requests, 0: free
        ("before", "i4"),  # in the list of free segments; while it is held, what was cut off before `first`
        ("after", "i4"),  # in that list, or in the one of segments without use
        ("next_in_bucket", "i4"),  # oldest first
        ("lane", "i1"),  # the first lane, counted in the band
        ("end_lane", "i1"),
        ("bundle", "i1"),  # while it is free, as below
        ("in_chunks", "i1"),  # 1: of a window
    ]
)

# Of a bundle, what a request let go of at once of a band with several lanes, or of a band with one.
GOES_ON, OPENS, ALONE = 0, 1, 2
MAX_LANES = 127  # as many as `lane` can count

# Layers that share a block table. Groups of a kind are looked up in the prefix cache together.
GROUP = record(
    [
        ("window", "i4"),  # tokens, 0: attends to everything
        ("chunked", "i4"),  # 1: the window is a fixed chunk of positions
        ("cap", "i4"),  # blocks that admission asks for at most, 0: no cap
        ("tail", "i4"),  # blocks in a row that a hit needs in a sliding window
        ("block_ratio", "i4"),  # a block of this group holds so many times the tokens of `block_size`
        ("is_state", "i4"),  # 1: states that the prefix cache keeps, in a table with gaps
        ("is_like_last", "i4"),  # 1: all the above is as in the group before, so their tables begin and end alike
        (
            "asked",
            "i4",
        ),  # the group that a CPU cache is asked for n-th: first those without a window
        ("lanes", "i4"),  # groups from this one on whose blocks are kept as one, a band: like ones, in segments alone
    ]
)
# Of an engine, a LoRA adapter; where it is, each place a part of the one before.
ON_DISK, IN_CPU_MEMORY, ON_GPU = 0, 1, 2
ADAPTER = record(
    [
        ("running", "i4"),  # requests that use it
        ("place", "i4"),
        ("used", "i8"),  # the last step with it
    ]
)
ADAPTERS = record(
    [
        ("num_running", "i4"),  # adapters of running requests
        ("num_on_gpu", "i4"),
        ("num_in_memory", "i4"),  # those on the GPU among them
        ("num_idle", "i4"),
        ("load_s", "f8"),  # what the step that is being decided waits for
    ]
)
# An image in the prompts of a table, of which several requests may have it; token positions.
IMAGE = record(
    [
        ("content", "i4"),  # what is seen
        ("offset", "i4"),  # its placeholder is [offset, end) …
        ("end", "i4"),
        ("first", "i4"),  # … and holds its embeddings in [first, last)
        ("last", "i4"),
        ("embeddings", "i4"),
        ("patches", "f8"),  # rows of the encoder's multiplies
        ("pairs", "f8"),  # of patches, of which one attends to the other
    ]
)
# The images of a request.
IMAGES_OF = record(
    [
        ("start", "i4"),
        ("num", "i4"),
        ("flags", "i4"),  # where its flags begin: 1 of an image that it refers to in the encoder's cache
        ("num_held", "i4"),  # of these
        ("embeddings", "i4"),  # that step `step` encodes for it
        ("step", "i8"),
        ("patches", "f8"),  # of these, as in the next
        ("pairs", "f8"),
    ]
)
# Of an engine, what its encoder does in the step that is decided, and how full its cache is, in embeddings.
ENCODER = record(
    [
        ("budget", "i4"),
        ("planned_budget", "i4"),
        ("num_planned", "i4"),
        ("free_slots", "i4"),
        ("freeable_slots", "i4"),  # free ones, too
        ("embeddings", "i4"),
        ("patches", "f8"),
        ("pairs", "f8"),
        ("num_freed", "i8"),
    ]
)
# A cached image, NONE: none.
CACHED_IMAGE = record(
    [
        ("content", "i4"),
        ("embeddings", "i4"),
        ("references", "i4"),  # requests that refer to it, 0: it may go
        ("freed", "i8"),  # the order in which they may
    ]
)
KIND = record([("first", "i4"), ("count", "i4")])  # places in `group_order`
