"""The arrays of prefill and decode apart before a run; empty where all engines do both."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.core.layout import NONE
from simulator.core.vllm.apart import layout
from simulator.fleet.fleet import Fleet
from workloads.requests import RequestTable


def apart_arrays(fleet: Fleet, table: RequestTable, memory_words: int) -> dict[str, NDArray[Any]]:
    """By their names in `layout.Arrays`."""
    handovers = np.zeros(table.num_requests * table.num_attempts if fleet.is_apart else 0, layout.HANDOVER)
    for name in ("source", "row", "last_prefill", "last_decode", "next_kept", "next_read"):
        handovers[name] = NONE
    sides = np.zeros(fleet.num_engines if fleet.is_apart else 0, layout.SIDE)
    for name in layout.SIDE.names or ():
        if name.endswith(("_head", "_tail")):
            sides[name] = NONE
    sides["next_sent_s"] = sides["next_received_s"] = math.inf
    pools = [pool for pool in fleet.pools for _ in range(pool.num_engines)]
    for side, pool in zip(sides, pools, strict=False):  # there are none where all engines do both
        assert pool.nic is not None
        side["dispatch_s"], side["lease_s"] = fleet.handover.dispatch_s, fleet.handover.lease_s
        for name in ("block_s", "transfer_s", "post_s"):
            side[name] = getattr(pool.nic, name)
    decode_memory = np.zeros(memory_words if fleet.is_apart else 0, np.int64)
    return {"handovers": handovers, "sides": sides, "decode_memory": decode_memory}
