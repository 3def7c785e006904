"""Which of vLLM's arguments for KV outside of the GPUs go together."""

from files.errors import HeadcountError
from files.names import UnknownNameError, nearest_hint, shortened
from kvcache.releases import KV_OFFLOADING
from simulator.engines.values import Gibibytes
from simulator.engines.vllm.kv_transfer import KVTransfer

MOST_HOST_GIB = 16_384  # of any server's memory
MOST_STORE_GIB = 131_072
KV_OFFLOADING_BACKENDS = ("native", "lmcache")  # vLLM's KVOffloadingBackend, config/cache.py of 0.32


def check_kv_store(
    size: float | None, rate: float | None, transfer: KVTransfer | None, offloading_size: float | None
) -> None:
    """Raise HeadcountError for a shared store that is not simulated so."""
    if size is None:
        if rate is not None:
            raise HeadcountError("kv_store_rate needs a remote KV cache; also give --kv-store-size GIB")
        if transfer is not None and transfer.is_store:
            raise HeadcountError("kv_transfer_config: the remote KV cache needs a size; also give --kv-store-size GIB")
        return
    _check_size("kv_store_size", size, MOST_STORE_GIB)
    if rate is not None and not 0 < rate < float("inf"):
        raise HeadcountError(f"kv_store_rate is {rate:g} GB/s; it must be above 0")
    if offloading_size is not None:
        raise HeadcountError(
            "a remote KV cache is not simulated together with --kv-offloading-size; leave one of them out"
        )
    if transfer is not None and not transfer.is_store:
        raise HeadcountError(
            f"a remote KV cache is not simulated together with {transfer.label}; leave "
            "--kv-transfer-config out, or give MooncakeStoreConnector there"
        )


def check_kv_offloading(
    size: float | None, backend: str, transfer: KVTransfer | None, vllm_version: str, *, has_store: bool
) -> None:
    """Raise HeadcountError for host memory that is not simulated so."""
    has_lmcache = transfer is not None and transfer.lmcache is not None
    known, given = KV_OFFLOADING_BACKENDS, shortened(backend, 40)
    if backend not in known:
        raise UnknownNameError(f"no kv_offloading_backend {given!r}; {nearest_hint(given, known)}")
    if has_lmcache and size is not None:
        raise HeadcountError(
            "kv_transfer_config: LMCacheConnectorV1 has a size of its own, lmcache.max_local_cpu_size; leave "
            "--kv-offloading-size out"
        )
    if size is None:
        has_size = has_lmcache or has_store
        if transfer is not None and not has_size:
            raise HeadcountError(
                "kv_transfer_config: CPU KV-cache offloading needs a size; also give --kv-offloading-size GIB"
            )
        return
    _check_size("kv_offloading_size", size, MOST_HOST_GIB)
    if backend != "native":
        raise HeadcountError(
            f"kv_offloading_backend '{given}' is not simulated, native is; leave --kv-offloading-backend out, or "
            "give LMCache within the engine, LMCacheConnectorV1, by --kv-transfer-config"
        )
    if not KV_OFFLOADING.holds_in(vllm_version):
        raise HeadcountError(
            f"kv_offloading_size: vLLM has it from {KV_OFFLOADING.first} on; leave --kv-offloading-size out, or "
            "give a later --vllm-version"
        )


def _check_size(name: str, size: float, most: float) -> None:
    try:
        Gibibytes(most).check(size)
    except ValueError as error:
        raise HeadcountError(f"{name}: {error}") from None
