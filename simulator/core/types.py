"""What kernels are given beside all `Arrays`: single records, and single arrays.

A record is a row of the array that its name tells, and has the fields of that array's layout.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Record:
    """An `np.record`: a row of some array. The compiler reads its fields from the layout, which mypy cannot."""

    if TYPE_CHECKING:

        def __getattribute__(self, field: str) -> Any: ...
        def __setattr__(self, field: str, value: Any) -> None: ...
        def __setitem__(self, field: str, value: object) -> None: ...


class Request(Record):
    """A row of `Arrays.requests`: `layout.REQUEST`."""


class Replica(Record):
    """A row of `Arrays.replicas`, what an engine is doing: `layout.REPLICA`."""


class Pool(Record):
    """A row of `Arrays.pools`, what engines of a pool have in common: `layout.POOL`."""


class Plan(Record):
    """A row of `Arrays.plans`, a step that was decided: `layout.PLAN`."""


class Cursor(Record):
    """The row of `Arrays.cursor`, the fleet's own state: `layout.CURSOR`."""


class Gateway(Record):
    """The row of `Arrays.gateways`: `gateway.layout.GATEWAY`."""


class Tier(Record):
    """A row of `Arrays.tiers`, an engine's host tier: `vllm.host_tier.layout.TIER`."""


class Transfer(Record):
    """A row of `Arrays.stores` or `Arrays.loads`, blocks that are copied: `vllm.host_tier.layout.TRANSFER`."""


class Decider(Record):
    """The row of `Arrays.deciding`: `vllm.disaggregation.layout.DECIDING`."""


class EngineView(Record):
    """A row of `Arrays.engine_views`, an engine as routers see it: `routing.layout.ENGINE_VIEW`."""


class RequestView(Record):
    """The row of `Arrays.request_view`, a request as routers see it: `routing.layout.REQUEST_VIEW`."""


class RouterParameters(Record):
    """A compiled router's parameters by their names."""


class Segment(Record):
    """A row of `Arrays.segments`, a run of blocks: `vllm.layout.SEGMENT`."""


class SGLangPool(Record):
    """A row of `SGLangArrays.pools`: `sglang.layout.POOL`."""


class SGLangEngine(Record):
    """A row of `SGLangArrays.engines`, what an engine keeps beside its `Replica`: `sglang.layout.ENGINE`."""


class SGLangRequest(Record):
    """A row of `SGLangArrays.requests`, what a request has beside its `Request`: `sglang.layout.REQUEST`."""


class Node(Record):
    """A row of `SGLangArrays.nodes`, in the radix tree: `sglang.layout.NODE`."""


Requests: TypeAlias = NDArray[np.void]
"""`Arrays.requests`."""
Blocks: TypeAlias = NDArray[np.void]
"""`Arrays.blocks`, or what a kernel needs of them."""
Groups: TypeAlias = NDArray[np.void]
"""`Arrays.groups`, the groups of layers that share a block table."""
Spans: TypeAlias = NDArray[np.void]
"""`Arrays.spans`, the runs of content that prompts and answers consist of."""
Heap: TypeAlias = NDArray[np.void]
"""`Arrays.heap` or `Arrays.deadlines`: requests by the time at which something happens to them."""
EngineViews: TypeAlias = NDArray[np.void]
"""`Arrays.engine_views`, the engines as routers see them."""

Running: TypeAlias = NDArray[np.int32]
"""`Arrays.running`: of each engine, the ids of the requests that run."""
Calendar: TypeAlias = NDArray[np.int32]
"""`Arrays.decode_fast_forward`: of each engine, the quiet requests by the step that must see them."""
Buckets: TypeAlias = NDArray[np.int32]
"""`Arrays.buckets`: of each engine, a hash table of what it has cached."""
FreeQueue: TypeAlias = NDArray[np.int32]
"""`Arrays.free_queue`: of each engine, the ring of its free blocks."""
QueuePlaces: TypeAlias = NDArray[np.int32]
"""`Arrays.queue_places`: where each free block is in its engine's ring."""
BlockTables: TypeAlias = NDArray[np.int32]
"""`Arrays.tables`: the ids of each running request's blocks."""
Tournament: TypeAlias = NDArray[np.float64]
"""`Arrays.next_event_s`: when the engines' oldest steps end, the first to end at the root."""
StepLog: TypeAlias = NDArray[np.int32]
"""`Arrays.log`: the words of what steps did."""
RouterMemory: TypeAlias = NDArray[np.int64]
"""What a compiled router keeps between decisions; the first words are its stream of random numbers."""
QueueOrder: TypeAlias = NDArray[np.int32]
"""`SGLangArrays.order`: the requests of a queue while it is sorted."""
Generator: TypeAlias = NDArray[np.int64]
"""A row of `SGLangArrays.shuffles`: the state of a server's random numbers."""
AnyArray: TypeAlias = NDArray[Any]
"""An array of `Arrays`, of any of its types."""
