"""What stays in a store that engines share when one of them is gone, compiled."""

from simulator.core.jit import rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.vllm.host_tier import host_cache
from simulator.core.vllm.host_tier.content import chunk_of


@rare_kernel
def let_go(a: Arrays, replica: int) -> None:
    """An engine is gone, and the store that it shares stays: what it read may go, what it wrote never came."""
    tier, p = a.tiers[replica], a.pools[a.replicas[replica].pool]
    for place in range(tier.load_done, tier.load_tail):
        job = a.loads[replica, place & p.load_mask]
        for index in range(job.first, job.first + job.count):  # such a store has one group
            host_cache.end_read(a, replica, chunk_of(a, replica, job.request, index))
    for place in range(tier.store_settled, tier.store_begun):
        chunk = a.stores[replica, place & p.store_mask].first
        while chunk != NONE:
            following = a.chunks[a.tiers[replica].cache, chunk].next_in_store
            host_cache.take_out(a, replica, chunk)
            host_cache.remove(a, replica, chunk)
            a.caches[a.tiers[replica].cache].num_free += 1
            chunk = following
