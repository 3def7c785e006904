"""The copies between GPU and host, compiled: as in `simulator.engines.vllm.connectors.host_tier.HostLink`.

Loads and stores lie in a ring each, in the order in which they are handed to the link: those that the scheduler has
taken note of, those that it has heard of, those under way, of the stores those that wait for the next step.
"""

import math

from simulator.core.jit import kernel, rare_kernel
from simulator.core.state import Arrays
from simulator.core.types import Pool, Tier


@kernel
def copy_s(p: Pool, num_chunks: int) -> float:
    return p.transfer_s + num_chunks * p.chunk_s


@kernel
def begin_s(tier: Tier, free_s: float) -> float:
    return max(free_s, tier.now_s, tier.computed_s)


@kernel
def num_pending(tier: Tier) -> int:
    """Transfers that the scheduler does not know to be over."""
    return int(tier.store_tail - tier.store_done + tier.load_tail - tier.load_done)


@kernel
def has_news(a: Arrays, replica: int, now_s: float) -> bool:
    """Whether a step would hand stores to the link, or take in transfers that are over."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    if tier.store_begun < tier.store_tail and p.is_shared == 0:
        return True
    if tier.store_done < tier.store_tail and a.stores[replica, tier.store_done & p.store_mask].end_s <= now_s:
        return True
    return bool(tier.load_done < tier.load_tail and a.loads[replica, tier.load_done & p.load_mask].end_s <= now_s)


@kernel
def next_end_s(a: Arrays, replica: int) -> float:
    """When the next copy is over that the scheduler does not know to be over; infinity: there is none."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    end_s = math.inf
    if tier.store_told < tier.store_begun:
        end_s = a.stores[replica, tier.store_told & p.store_mask].end_s
    if tier.load_told < tier.load_tail:
        end_s = min(end_s, a.loads[replica, tier.load_told & p.load_mask].end_s)
    return end_s


@kernel
def begin_store(a: Arrays, replica: int) -> None:
    """Hand the next store to the link."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    store = a.stores[replica, tier.store_begun & p.store_mask]
    tier.store_free_s = begin_s(tier, tier.store_free_s) + copy_s(p, store.count)
    store.end_s = tier.store_free_s
    tier.store_begun += 1


@kernel
def bring_forward(a: Arrays, replica: int, first: int) -> int:
    """Move the stores from `first` on that the step waits for before the others of the step; how many there are."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    num_urgent = 0
    for place in range(first, tier.store_tail):
        store = a.stores[replica, place & p.store_mask]
        if store.is_awaited == 0:
            continue
        request, head, count = store.request, store.first, store.count
        for later in range(place, first + num_urgent, -1):
            into, of = a.stores[replica, later & p.store_mask], a.stores[replica, (later - 1) & p.store_mask]
            into.request = of.request
            into.first = of.first
            into.count = of.count
            into.is_awaited = of.is_awaited
        urgent = a.stores[replica, (first + num_urgent) & p.store_mask]
        urgent.request = request
        urgent.first = head
        urgent.count = count
        urgent.is_awaited = 1
        num_urgent += 1
    return num_urgent


@rare_kernel
def before_step(a: Arrays, replica: int, now_s: float) -> float:
    """Begin the stores of the step before; returns when this step may begin."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    tier.now_s = max(tier.now_s, now_s)
    urgent = tier.store_of_step
    if tier.awaits == 1:
        urgent += bring_forward(a, replica, urgent)
    while tier.store_begun < urgent:
        begin_store(a, replica)
    if tier.awaits == 1:
        for place in range(tier.store_told, urgent):
            store = a.stores[replica, place & p.store_mask]
            if store.is_awaited == 1:
                tier.now_s = max(tier.now_s, store.end_s)
        tier.awaits = 0
    return tier.now_s


@rare_kernel
def launch(a: Arrays, replica: int, slot: int, end_s: float) -> None:
    """A step is launched that ends then: its copies follow, and the link tells which are over by now."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    tier.computed_s = max(tier.computed_s, end_s)
    while tier.load_begun < tier.load_tail:
        load = a.loads[replica, tier.load_begun & p.load_mask]
        tier.load_free_s = begin_s(tier, tier.load_free_s) + copy_s(p, load.count)
        load.end_s = tier.load_free_s
        a.offloads[load.request].loading_s += load.end_s - tier.now_s
        tier.load_begun += 1
    tell(a, replica, slot)


@kernel
def tell(a: Arrays, replica: int, slot: int) -> None:
    """With a plan's output: which copies are over by now."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    while tier.store_told < tier.store_begun:
        if a.stores[replica, tier.store_told & p.store_mask].end_s > tier.now_s:
            break
        tier.store_told += 1
    while tier.load_told < tier.load_begun:
        if a.loads[replica, tier.load_told & p.load_mask].end_s > tier.now_s:
            break
        tier.load_told += 1
    a.told[replica, slot, 0] = tier.store_told
    a.told[replica, slot, 1] = tier.load_told
