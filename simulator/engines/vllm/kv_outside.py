"""Which of vLLM's arguments for KV outside of the GPUs go together."""

from typing import Protocol

from files.errors import HeadcountError
from files.names import UnknownNameError, nearest_hint, shortened
from kvcache.memory.settings import LMCacheMemory
from kvcache.releases import KV_OFFLOADING
from simulator.engines.values import Gibibytes
from simulator.engines.vllm.kv_transfer import KVTransfer

MOST_HOST_GIB = 16_384  # of any server's memory
MOST_STORE_GIB = 131_072
KV_OFFLOADING_BACKENDS = ("native", "lmcache")  # vLLM's KVOffloadingBackend, config/cache.py of 0.32


class KVArguments(Protocol):
    """Those of vLLM's arguments that place KV outside of the GPUs."""

    @property
    def kv_store_size(self) -> float | None: ...
    @property
    def kv_store_rate(self) -> float | None: ...
    @property
    def kv_transfer_config(self) -> KVTransfer | None: ...
    @property
    def kv_offloading_size(self) -> float | None: ...
    @property
    def kv_offloading_backend(self) -> str: ...
    @property
    def vllm_version(self) -> str: ...
    @property
    def lmcache(self) -> LMCacheMemory | None: ...


def check_kv_store(args: KVArguments) -> None:
    """Raise HeadcountError for a shared store that is not simulated so."""
    if args.kv_store_size is None:
        if args.kv_store_rate is not None:
            raise HeadcountError("kv_store_rate needs a remote KV cache; also give --kv-store-size GIB")
        if args.kv_transfer_config is not None and args.kv_transfer_config.is_store:
            raise HeadcountError("kv_transfer_config: the remote KV cache needs a size; also give --kv-store-size GIB")
        return
    try:
        Gibibytes(MOST_STORE_GIB).check(args.kv_store_size)
    except ValueError as error:
        raise HeadcountError(f"kv_store_size: {error}") from None
    if args.kv_store_rate is not None and not 0 < args.kv_store_rate < float("inf"):
        raise HeadcountError(f"kv_store_rate is {args.kv_store_rate:g} GB/s; it must be above 0")
    if args.kv_offloading_size is not None:
        raise HeadcountError(
            "a remote KV cache is not simulated together with --kv-offloading-size; leave one of them out"
        )
    if args.kv_transfer_config is not None and not args.kv_transfer_config.is_store:
        raise HeadcountError(
            f"a remote KV cache is not simulated together with {args.kv_transfer_config.label}; leave "
            "--kv-transfer-config out, or give MooncakeStoreConnector there"
        )


def check_kv_offloading(args: KVArguments) -> None:
    """Raise HeadcountError for host memory that is not simulated so."""
    known, given = KV_OFFLOADING_BACKENDS, shortened(args.kv_offloading_backend, 40)
    if args.kv_offloading_backend not in known:
        raise UnknownNameError(f"no kv_offloading_backend {given!r}; {nearest_hint(given, known)}")
    if args.lmcache is not None and args.kv_offloading_size is not None:
        raise HeadcountError(
            "kv_transfer_config: LMCacheConnectorV1 has a size of its own, lmcache.max_local_cpu_size; leave "
            "--kv-offloading-size out"
        )
    if args.kv_offloading_size is None:
        has_size = args.lmcache is not None or args.kv_store_size is not None
        if args.kv_transfer_config is not None and not has_size:
            raise HeadcountError(
                "kv_transfer_config: CPU KV-cache offloading needs a size; also give --kv-offloading-size GIB"
            )
        return
    try:
        Gibibytes(MOST_HOST_GIB).check(args.kv_offloading_size)
    except ValueError as error:
        raise HeadcountError(f"kv_offloading_size: {error}") from None
    if args.kv_offloading_backend != "native":
        raise HeadcountError(
            f"kv_offloading_backend '{given}' is not simulated, native is; leave --kv-offloading-backend out, or "
            "give LMCache within the engine, LMCacheConnectorV1, by --kv-transfer-config"
        )
    if not KV_OFFLOADING.holds_in(args.vllm_version):
        raise HeadcountError(
            f"kv_offloading_size: vLLM has it from {KV_OFFLOADING.first} on; leave --kv-offloading-size out, or "
            "give a later --vllm-version"
        )
