"""The arrays of disaggregated prefill/decode before a run; empty where all engines do both."""

import math

import numpy as np
from numpy.typing import NDArray

from simulator.core.layout import NONE
from simulator.core.types import AnyArray
from simulator.core.vllm.disaggregation import layout
from simulator.fleet.deciders import Decider
from simulator.fleet.fleet import Fleet
from workloads.requests import RequestTable

_PARAMETERS = (
    ("least_tokens", "nonCachedTokens"), ("prompt_tokens", "promptTokens"), ("least_tokens", "eff_isl_threshold"),
    ("ratio", "eff_isl_ratio_threshold"), ("busy", "prefill_busy_threshold"),
)  # fmt: skip


def disaggregated_arrays(fleet: Fleet, table: RequestTable, memory_words: int) -> dict[str, AnyArray]:
    """By their names in `layout.Arrays`."""
    requests, engines = table.num_requests * table.num_attempts * fleet.num_legs, fleet.num_engines
    if not fleet.is_disaggregated:
        requests = engines = memory_words = 0
    handovers = np.zeros(requests, layout.HANDOVER)
    for name in ("source", "row", "last_prefill", "last_decode", "next_asked", "chosen"):
        handovers[name] = NONE
    sides, lists = np.zeros(engines, layout.SIDE), np.zeros((engines, 2), layout.WAITS)
    sides["asked_head"] = sides["asked_tail"] = sides["given_up_head"] = NONE
    lists["head"] = lists["told_head"] = lists["told_tail"] = NONE
    sides["pushes"], sides["looked_s"] = fleet.handover.pushes, -math.inf
    lists["next_s"] = math.inf
    pools = [pool for pool in fleet.pools for _ in range(pool.num_engines)]
    for side, pool in zip(sides, pools, strict=False):  # there are none where all engines do both
        assert pool.nic is not None
        side["dispatch_s"], side["lease_s"] = fleet.handover.dispatch_s, fleet.handover.lease_s
        for name in ("block_s", "transfer_s", "post_s"):
            side[name] = getattr(pool.nic, name)
    return {
        "handovers": handovers,
        "waits": np.zeros((requests, 2), layout.WAIT),
        "wait_lists": lists,
        "sides": sides,
        "decode_memory": np.zeros(memory_words, np.int64),
        "deciding": deciding(fleet.handover.decider),
    }


def deciding(decider: Decider | None) -> NDArray[np.void]:
    """A decider as the core has it; empty without one."""
    found = np.zeros(int(decider is not None), layout.DECIDING)
    if decider is not None:
        rule, values = decider.rule, decider.values
        found["number"], found["keeps_engine"], found["sees_load"] = rule.number, rule.keeps_engine, rule.sees_load
        for name, key in _PARAMETERS:
            if key in values:
                found[name] = values[key]
    return found
