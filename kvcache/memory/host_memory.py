"""KV in host memory: how many chunks vLLM's `--kv-offloading-size` or LMCache holds, and how fast a GPU copies them."""

from dataclasses import dataclass

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import KVLayout
from kvcache.memory.settings import LMCacheMemory, MemorySettings
from kvcache.shape.architecture import Architecture

GIB = 2**30
PAGE_BYTES = 4096  # a chunk begins on a page of host memory (vLLM `SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT`)
COPIED_SHARE = 25 / 32  # of a host link's rate, one way: 50 of 64 GB/s on H100, 25 of 32 on A100 and L40S
COPIED_SOURCE = "measured: vLLM and LMCache copy KV at 50 of 64 GB/s on H100, at 25 of 32 GB/s on A100 and L40S"
FASTEST_MEASURED_BYTES_PER_S = 6.4e10
UNKNOWN_LINK_BYTES_PER_S = 3.2e10  # PCIe Gen4 x16, which most GPUs have at least


Link = tuple[str, str, str]  # an assumption: name, value, source


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """What host memory holds of one engine's KV, or a store of all engines', in chunks over all ranks of an engine."""

    num_chunks: int
    blocks_per_chunk: int = 1
    chunk_bytes: int  # in host memory, of all ranks
    rank_bytes: int  # of a chunk, that one GPU copies
    num_tokens: int  # of prompts; of layers with a window, a prompt's last tokens take chunks besides
    has_windows: bool = False
    copied_bytes_per_s: float  # by one GPU, one way
    link: Link  # its rate
    transfer_s: float = 0.0  # before the first byte of a copy
    is_shared: bool = False  # a store of all engines
    store_bytes_per_s: float | None = None  # that it gives to all engines, and takes; None: no limit
    store_chunk_s: float = 0.0
    more_links: tuple[Link, ...] = ()  # what else is assumed of the way

    @property
    def num_bytes(self) -> int:
        """Taken of the host's memory by one engine, or of the store by all."""
        return self.num_chunks * self.chunk_bytes

    @property
    def chunk_s(self) -> float:
        """How long the copy of a chunk takes."""
        return self.rank_bytes / self.copied_bytes_per_s


def host_memory(layout: KVLayout, arch: Architecture, gpu: GPU, settings: MemorySettings) -> HostMemory | None:
    """Read from vLLM 0.33: `CPUOffloadingSpec`, `build_offloading_config`; None without a size.

    A latent that every rank holds is kept once, apart from AMD's GPUs, whose ranks share no host memory.
    """
    if settings.lmcache is not None:
        return _of_lmcache(settings.lmcache, layout, arch, gpu, settings)
    if settings.kv_offloading_size is None:
        return None
    tp, pp = settings.tensor_parallel_size, settings.pipeline_parallel_size
    is_kept_once = arch.is_mla and tp > 1 and pp == 1 and not gpu.is_amd
    rank_bytes = layout.block_bytes()  # vLLM takes the first stage's for all
    chunk_bytes = -(-rank_bytes * (1 if is_kept_once else tp * pp) // PAGE_BYTES) * PAGE_BYTES
    num_chunks = int(settings.kv_offloading_size * GIB) // chunk_bytes
    rate, link = host_link(gpu)
    num_full = sum(group.window is None for group in layout.groups)
    return HostMemory(
        num_chunks=num_chunks,
        chunk_bytes=chunk_bytes,
        rank_bytes=rank_bytes,
        num_tokens=num_chunks // (num_full or len(layout.groups)) * layout.block_size,
        has_windows=num_full < len(layout.groups),
        copied_bytes_per_s=rate,
        link=link,
    )


def _of_lmcache(
    given: LMCacheMemory, layout: KVLayout, arch: Architecture, gpu: GPU, settings: MemorySettings
) -> HostMemory:
    """Each rank keeps its own part of a chunk; of a latent that all hold, the first one alone (`LocalCPUBackend`).

    Raises HeadcountError for chunks that are no whole number of blocks.
    """
    if given.chunk_size % layout.block_size:
        raise HeadcountError(
            f"lmcache.chunk_size is {given.chunk_size}; it must be a multiple of the block size, {layout.block_size}"
        )
    blocks = given.chunk_size // layout.block_size
    rank_bytes = -(-blocks * layout.block_bytes() // PAGE_BYTES) * PAGE_BYTES
    ranks = 1 if arch.is_mla else settings.tensor_parallel_size * settings.pipeline_parallel_size
    num_chunks = int(given.max_local_cpu_size * GIB) // rank_bytes
    rate, link = host_link(gpu)
    return HostMemory(
        num_chunks=num_chunks,
        blocks_per_chunk=blocks,
        chunk_bytes=rank_bytes * ranks,
        rank_bytes=rank_bytes,
        num_tokens=num_chunks * given.chunk_size,
        copied_bytes_per_s=rate,
        link=link,
    )


def host_link(gpu: GPU) -> tuple[float, Link]:
    """At which rate KV is copied, one way, and where that is known from."""
    link = gpu.host_link_bytes_per_s
    if link is None:
        source = f"assumed: {COPIED_SHARE:.0%} of PCIe Gen4 x16, since the host link of {gpu.name} is not known"
    else:
        holds = (
            COPIED_SOURCE if link <= FASTEST_MEASURED_BYTES_PER_S else f"assumed to be as over PCIe, {COPIED_SOURCE}"
        )
        source = f"{COPIED_SHARE:.0%} of {link / 1e9:,.0f} GB/s ({gpu.source['host_link_bytes_per_s']}), {holds}"
    rate = COPIED_SHARE * (link or UNKNOWN_LINK_BYTES_PER_S)
    return rate, ("host link", f"KV copied at {rate / 1e9:.3g} GB/s one way per GPU", source)
