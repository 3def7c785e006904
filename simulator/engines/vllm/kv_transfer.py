"""vLLM's `--kv-transfer-config`: what keeps KV outside of the GPUs, with its settings."""

import json
from dataclasses import dataclass
from typing import Literal

from msgspec import field

from files.documents import Json, parse_json
from files.errors import HeadcountError
from files.names import UnknownNameError, shortened
from files.schema import AtLeastOne, Positive, Strict, typed
from kvcache.memory.settings import LMCacheMemory
from simulator.engines.vllm.connectors.host_cache import EVICTION_POLICIES, LRU

OFFLOADING, NIXL, LMCACHE = "OffloadingConnector", "NixlConnector", "LMCacheConnectorV1"
STORE = "MooncakeStoreConnector"
NIXL_PUSH = "NixlPushConnector"
PUSHING = ("MooncakeConnector", "MoRIIOConnector")  # prefill engines write into decode engines
KV_BOTH = "kv_both"
_PREFIX = "lmcache."
SHARED = "a remote KV cache"
# LMCache's settings that decide otherwise where they are given, and are not off (`v1/config.py` of 0.5.6).
LMCACHE_S_OWN = {
    "use_layerwise": "copies layer by layer",
    "save_decode_cache": "storing the KV of answers",
    "save_unfull_chunk": "storing a prompt's last tokens that fill no chunk",
    "enable_blending": "blending",
    "enable_p2p": "reading from other engines",
    "enable_pd": "disaggregated prefill/decode through LMCache",
    "remote_url": SHARED,
    "remote_storage_plugins": SHARED,
    "storage_plugins": "a custom storage backend",
    "local_disk": "KV on a disk",
    "gds_path": "KV on a disk",
    "min_retrieve_tokens": "a least number of tokens to load",
    "max_tokens_per_load": "a largest number of tokens to load",
    "priority_limit": "storing by priority",
}
# Those with which LMCache 0.5.6 itself fails (conformance/components/probes/lmcache_loading_probe.py).
LMCACHE_FAILS = {
    "enable_async_loading": "LMCache 0.5.6 frees a chunk's memory at its first hit, and its second ends the engine",
}


@dataclass(frozen=True, kw_only=True)
class KVTransfer:
    """A connector that keeps KV outside of the GPUs."""

    eviction_policy: str = LRU
    cpu_bytes_to_use: float | None = None  # None: `--kv-offloading-size` says it
    lmcache: LMCacheMemory | None = None  # of LMCacheConnectorV1
    is_store: bool = False  # MooncakeStoreConnector; neither: OffloadingConnector

    def __str__(self) -> str:
        """As vLLM takes it."""
        if self.is_store:
            return json.dumps({"kv_connector": STORE, "kv_role": KV_BOTH})
        if self.lmcache is None:
            return json.dumps({"kv_connector_extra_config": {"eviction_policy": self.eviction_policy}})
        extra: dict[str, float] = {"lmcache.max_local_cpu_size": self.lmcache.max_local_cpu_size}
        if self.lmcache.chunk_size != LMCacheMemory.chunk_size:
            extra["lmcache.chunk_size"] = self.lmcache.chunk_size
        return json.dumps({"kv_connector": LMCACHE, "kv_role": KV_BOTH, "kv_connector_extra_config": extra})

    @property
    def label(self) -> str:
        """Such as `host memory by ARC`."""
        if self.lmcache is not None:
            return f"LMCache with {self.lmcache.max_local_cpu_size:g} GiB per GPU"
        if self.is_store:
            return "remote KV cache (Mooncake)"
        return f"offloading with {self.eviction_policy.upper()} eviction"


class _Extra(Strict, frozen=True, kw_only=True):
    """What vLLM's `OffloadingConnector` takes; of what is not simulated, the default alone."""

    cpu_bytes_to_use: Positive | None = None
    eviction_policy: Literal[EVICTION_POLICIES] = LRU  # type: ignore[valid-type]
    spec_name: Literal["CPUOffloadingSpec"] = "CPUOffloadingSpec"
    blocks_per_chunk: Literal[1] = 1
    store_threshold: Literal[0, 1] = 0  # every chunk is stored
    offload_prompt_only: bool = True
    self_describing_kv_events: bool = False


class _LMCacheExtra(Strict, frozen=True, kw_only=True):
    """What is simulated of LMCache's settings, with its defaults; they stand beside vLLM's under `lmcache.`."""

    max_local_cpu_size: Positive = LMCacheMemory.max_local_cpu_size  # GiB of each GPU
    chunk_size: AtLeastOne = LMCacheMemory.chunk_size
    local_cpu: Literal[1] = 1
    cache_policy: Literal["LRU"] = "LRU"


class _Config(Strict, frozen=True, kw_only=True):
    kv_connector: str = OFFLOADING
    kv_role: str = KV_BOTH
    kv_connector_extra_config: Json = field(default_factory=dict)
    engine_id: object = None  # what decides nothing
    kv_buffer_device: object = None
    kv_load_failure_policy: object = None


@dataclass(frozen=True)
class KVTransferConfig:
    """vLLM's JSON object."""

    name: str = "JSON"

    def read(self, given: object) -> KVTransfer | None:
        """None where it says nothing that is not the default. Raises ValueError for another connector or setting."""
        if isinstance(given, KVTransfer):
            return given
        settings = given if isinstance(given, dict) else parse_json(str(given), "the text")
        connector = settings.get("kv_connector", OFFLOADING) if isinstance(settings, dict) else OFFLOADING
        _check_connector(connector)
        config = typed(settings, _Config, "")
        if config.kv_role != KV_BOTH:
            raise HeadcountError(f"kv_role must be {KV_BOTH} with {connector}, which stores and loads")
        if connector == STORE:
            if config.kv_connector_extra_config:
                name = shortened(next(iter(config.kv_connector_extra_config)), 40)
                raise HeadcountError(f"{STORE}: {name} is not simulated; leave kv_connector_extra_config out")
            return KVTransfer(is_store=True)
        if connector == LMCACHE:
            return KVTransfer(lmcache=_lmcache(config.kv_connector_extra_config))
        extra = typed(config.kv_connector_extra_config, _Extra, "", "kv_connector_extra_config")
        if not extra.offload_prompt_only:
            raise HeadcountError("offload_prompt_only false (answers are stored too) is not simulated; leave it out")
        return KVTransfer(eviction_policy=extra.eviction_policy, cpu_bytes_to_use=extra.cpu_bytes_to_use)


def _check_connector(connector: object) -> None:
    """Raise HeadcountError for one that is not simulated, with what is."""
    if connector in (NIXL, "NixlPullConnector"):
        raise HeadcountError(f"{connector}: disaggregated prefill/decode is set by --pools; leave it out")
    if connector == NIXL_PUSH:
        raise HeadcountError(f"{connector} is asked for by --pools with --kv-transfer push; leave it out")
    if connector in PUSHING:
        raise HeadcountError(
            f"{connector} is not simulated; of connectors by which prefill engines push, {NIXL_PUSH} is: give --pools "
            "with --kv-transfer push instead"
        )
    if connector == "LMCacheMPConnector":
        raise HeadcountError(
            "LMCacheMPConnector: LMCache in a process of its own, which engines share, is not simulated; "
            f"{LMCACHE}, within each engine, is"
        )
    if connector not in (OFFLOADING, LMCACHE, STORE):  # before its settings, which are its own
        raise UnknownNameError(
            f"kv_connector '{shortened(str(connector), 40)}' is not simulated; CPU KV-cache offloading is, by "
            f"{OFFLOADING}: give --kv-offloading-size GIB instead"
        )


def _lmcache(extra: dict[str, object]) -> LMCacheMemory:
    """Of LMCache's settings. Raises HeadcountError for one that is not simulated."""
    for name, why in LMCACHE_FAILS.items():
        if extra.get(f"{_PREFIX}{name}"):
            raise HeadcountError(f"{_PREFIX}{name}: {why}; leave it out")
    for name, what in LMCACHE_S_OWN.items():
        if extra.get(f"{_PREFIX}{name}"):
            instead = ", or give --kv-store-size instead of LMCache" if what == SHARED else ""
            raise HeadcountError(f"{_PREFIX}{name}: {what} is not simulated; leave it out{instead}")
    other = next((name for name in extra if not name.startswith(_PREFIX)), None)
    if other is not None:
        raise HeadcountError(
            f"kv_connector_extra_config: {shortened(other, 40)!r} is no setting of LMCache; they begin with {_PREFIX}"
        )
    given = {name.removeprefix(_PREFIX): int(value) if value is True else value for name, value in extra.items()}
    known = {name: value for name, value in given.items() if name not in LMCACHE_S_OWN | LMCACHE_FAILS}
    read = typed(known, _LMCacheExtra, "", name="lmcache")
    return LMCacheMemory(max_local_cpu_size=read.max_local_cpu_size, chunk_size=read.chunk_size)
