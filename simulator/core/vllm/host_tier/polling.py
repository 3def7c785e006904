"""How an engine with a host tier goes from step to step, compiled: as vLLM's busy loop over its engine core.

Without one, steps alone are waited for (`replica.fill_pipeline`). With one, an engine that has nothing to compute looks
at its transfers again and again, and steps without work hand copies to the link and take in those that are over.
"""

import math

from simulator.core import occupancy
from simulator.core import replica as replicas
from simulator.core.heap import set_next
from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import LMCACHE, NIXL, NONE, OFFLOADING
from simulator.core.state import Arrays
from simulator.core.vllm import scheduler
from simulator.core.vllm.disaggregation import keeping, reading
from simulator.core.vllm.host_tier import host_link, lmcache, store
from simulator.core.vllm.host_tier.layout import POLL_S


@kernel
def fill_pipeline(a: Arrays, leader: int, now_s: float) -> None:
    """Decide as many steps as vLLM would have in flight."""
    if a.pools[a.replicas[leader].pool].connector > 0:
        go_on(a, leader, now_s)
    else:
        replicas.fill_pipeline(a, leader, now_s)


@kernel
def has_requests(a: Arrays, replica: int) -> bool:
    """Whether vLLM's engine goes on stepping."""
    state, tier = a.replicas[replica], a.tiers[replica]
    return bool(state.num_running + state.num_waiting > 0 or tier.any_ended == 1 or num_pending(a, replica) > 0)


@kernel
def num_pending(a: Arrays, replica: int) -> int:
    """Transfers that the scheduler does not know to be over."""
    if a.pools[a.replicas[replica].pool].connector == NIXL:
        return int(a.sides[replica].num_pending)
    if a.pools[a.replicas[replica].pool].connector == LMCACHE:
        return 0
    return host_link.num_pending(a.tiers[replica])


@kernel
def awaits_transfers(a: Arrays, replica: int) -> bool:
    """Whether one will end that the scheduler does not know to be over."""
    count = num_pending(a, replica)
    if a.pools[a.replicas[replica].pool].connector == NIXL:
        count -= a.sides[replica].num_lost
    return bool(count > 0)


@kernel
def has_news(a: Arrays, replica: int, now_s: float) -> bool:
    """Whether a step would begin transfers, or take in some that are over."""
    if a.pools[a.replicas[replica].pool].connector == NIXL:
        return keeping.has_news(a, replica, now_s)
    if a.pools[a.replicas[replica].pool].connector == LMCACHE:
        return False
    return host_link.has_news(a, replica, now_s)


@kernel
def next_end_s(a: Arrays, replica: int) -> float:
    """When the next transfer is over that the scheduler does not know to be over; infinity: there is none."""
    if a.pools[a.replicas[replica].pool].connector == NIXL:
        return keeping.next_end_s(a, replica)
    if a.pools[a.replicas[replica].pool].connector == LMCACHE:
        return math.inf
    return host_link.next_end_s(a, replica)


@kernel
def launch(a: Arrays, replica: int, slot: int, now_s: float, end_s: float) -> None:
    """A step is launched: its transfers begin, and it hears which are over by now."""
    if a.pools[a.replicas[replica].pool].connector == NIXL:
        reading.launch(a, replica, slot, now_s)
    elif a.pools[a.replicas[replica].pool].connector == LMCACHE:
        lmcache.lengthen(a, replica, slot)
    elif a.pools[a.replicas[replica].pool].is_shared == 1:
        store.launch(a, replica, slot, now_s, end_s)
    else:
        host_link.launch(a, replica, slot, end_s)


@rare_kernel
def go_on(a: Arrays, replica: int, now_s: float) -> None:
    """Step until a step's end, a transfer's or an arrival is to be waited for."""
    state, tier = a.replicas[replica], a.tiers[replica]
    p = a.pools[state.pool]
    if tier.is_blocking == 1:
        tier.is_blocking = 0
        if rests(a, replica, now_s):
            return
    while True:
        has_work = state.num_running + state.num_waiting > 0
        is_needed = has_work or tier.any_ended == 1 or occupancy.is_busy(a, replica)
        if not is_needed and not has_news(a, replica, now_s):
            tier.is_idle = 1
            set_next(a.next_event_s, replica, next_end_s(a, replica))
            return
        tier.is_idle = 0
        tier.may_change = int(awaits_transfers(a, replica) or occupancy.is_busy(a, replica))
        is_executed, num_preempted, blocks = False, 0, True
        if has_requests(a, replica):
            num_before = num_pending(a, replica)
            num_preempted = decide(a, replica, now_s)
            is_executed = tier.decided_work == 1
            tier.may_change |= int(num_pending(a, replica) > num_before)
            blocks = state.num_plans == p.plans_in_flight or not (is_executed or has_requests(a, replica))
        tier.goes_on = int(is_executed or not has_work or num_preempted > 0)
        if blocks:
            oldest = a.plans[replica, state.oldest_plan]
            if oldest.count > 0 or oldest.end_s > now_s:
                tier.is_blocking = 1
                set_next(a.next_event_s, replica, oldest.end_s)
                return
            replicas.complete_empty(a, replica)
        if rests(a, replica, now_s):
            return


@kernel
def decide(a: Arrays, replica: int, now_s: float) -> int:
    """Decide a step and hand it to the GPU, with its copies to the link; returns how many were preempted."""
    state, tier = a.replicas[replica], a.tiers[replica]
    slot = (state.oldest_plan + state.num_plans) % a.pools[state.pool].plans_in_flight
    is_shared = a.pools[state.pool].is_shared == 1
    if is_shared:
        store.settle(a, replica, now_s)
    num_preempted = scheduler.schedule(a, replica, slot, now_s)
    plan = a.plans[replica, slot]
    is_offloading = a.pools[state.pool].connector == OFFLOADING and not is_shared
    start_s = host_link.before_step(a, replica, now_s) if is_offloading else now_s
    tier.decided_work = int(plan.count > 0)
    if plan.count > 0:
        replicas.enter_pipeline(a, replica, slot, start_s)
        launch(a, replica, slot, now_s, plan.end_s)
    else:
        plan.end_s = max(start_s, state.last_end_s) if occupancy.is_busy(a, replica) else start_s
        launch(a, replica, slot, now_s, start_s)
        tier.num_empty_plans += 1
    state.num_plans += 1
    return num_preempted


@kernel
def rests(a: Arrays, replica: int, now_s: float) -> bool:
    """Whether nothing is to be done at once: it looks again later, or, with nothing under way, nothing ever fits."""
    tier = a.tiers[replica]
    if tier.goes_on == 1 or occupancy.is_busy(a, replica):
        return False
    if tier.may_change == 1:
        set_next(a.next_event_s, replica, now_s + POLL_S)
    elif a.pools[a.replicas[replica].pool].connector == NIXL and a.sides[replica].num_lost > 0:
        tier.is_idle = 1  # vLLM would look on and on
        set_next(a.next_event_s, replica, next_end_s(a, replica))
    else:
        a.cursor[0].stalled_request = a.replicas[replica].waiting_head
        if tier.holding_head != NONE:
            a.cursor[0].stalled_request = tier.holding_head
    return True
