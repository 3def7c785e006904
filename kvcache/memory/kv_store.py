"""KV in a store that all engines share: how many chunks it holds, and how fast a GPU reads and writes them."""

from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import KVLayout
from kvcache.memory.host_memory import GIB, HostMemory, Link, host_link
from kvcache.memory.settings import MemorySettings
from kvcache.shape.architecture import Architecture

REACHED_SHARE = 0.71  # of a network card's rate
REACHED_SOURCE = "measured: Mooncake moves KV of Qwen3-8B at 144 GB/s over 8 cards of 25 GB/s each"
NIC_BYTES_PER_S = 50e9  # one card of 400 Gb/s for each GPU
TRANSFER_S = 0.54e-3
TRANSFER_SOURCE = "measured: what Mooncake takes for the smallest of its transfers, 20 MB"
RATE_GIVEN = "given"
RULES = (
    "policy of the remote KV cache",
    "that of vLLM's MooncakeStoreConnector, with LRU eviction",
    "compared with vLLM 0.32's connector and a cache that is never full; Mooncake's leases and eviction were not "
    "compared",
)
RATE_ASSUMED = "assumed: it serves all engines at the rate of their network cards; --kv-store-rate changes it"


def kv_store(layout: KVLayout, arch: Architecture, gpu: GPU, settings: MemorySettings) -> HostMemory | None:
    """None without a size. Each rank stores its own part of a block, of a latent that all hold the first one alone.

    Read from vLLM 0.32: `distributed/kv_transfer/kv_connector/v1/mooncake/store`.
    """
    if settings.kv_store_size is None:
        return None
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
    rank_bytes = layout.block_bytes()
    chunk_bytes = rank_bytes * (1 if arch.is_mla else ranks)
    num_chunks = int(settings.kv_store_size * GIB) // chunk_bytes
    rate, way = _way(gpu)
    in_all = None if settings.kv_store_rate is None else 1e9 * settings.kv_store_rate
    return HostMemory(
        num_chunks=num_chunks,
        chunk_bytes=chunk_bytes,
        rank_bytes=rank_bytes,
        num_tokens=num_chunks // len(layout.groups) * layout.block_size,
        copied_bytes_per_s=rate,
        transfer_s=TRANSFER_S,
        is_shared=True,
        store_bytes_per_s=in_all,
        store_chunk_s=0.0 if in_all is None else rank_bytes * ranks / in_all,
        link=way,
        more_links=(
            ("start of a transfer to the remote KV cache", f"{1e3 * TRANSFER_S:.3g} ms", TRANSFER_SOURCE),
            (
                "remote KV cache",
                "not limited" if in_all is None else f"{in_all / 1e9:,.4g} GB/s one way, for all engines",
                RATE_ASSUMED if in_all is None else RATE_GIVEN,
            ),
            RULES,
        ),
    )


def _way(gpu: GPU) -> tuple[float, Link]:
    """At which rate a GPU reads, or writes: that of its network card, or of its host link where that is slower."""
    card, (slower, link) = REACHED_SHARE * NIC_BYTES_PER_S, host_link(gpu)
    if slower < card:
        return slower, (
            ("link to the remote KV cache"),
            link[1],
            f"its host link is slower than a 400 Gb/s card: {link[2]}",
        )
    value = f"KV read and written at {card / 1e9:.3g} GB/s one way per GPU"
    return card, ("link to the remote KV cache", value, f"{REACHED_SHARE:.0%} of a 400 Gb/s card, {REACHED_SOURCE}")
