"""vLLM's `--kv-transfer-config`: what keeps KV outside of the GPUs, with its settings."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import field

from boundary.documents import parse_json
from boundary.names import UnknownNameError, shortened
from boundary.schema import Positive, Strict, typed
from simulator.engines.vllm.connectors.host_cache import EVICTION_POLICIES, LRU

OFFLOADING, NIXL = "OffloadingConnector", "NixlConnector"
PUSHING = ("NixlPushConnector", "MooncakeConnector", "MoRIIOConnector")  # prefill engines write into decode engines
KV_BOTH = "kv_both"


@dataclass(frozen=True, kw_only=True)
class KVTransfer:
    """A connector that keeps KV outside of the GPUs."""

    eviction_policy: str = LRU
    cpu_bytes_to_use: float | None = None  # None: `--kv-offloading-size` says it

    def __str__(self) -> str:
        """As vLLM takes it."""
        return json.dumps({"kv_connector_extra_config": {"eviction_policy": self.eviction_policy}})

    @property
    def label(self) -> str:
        """Such as `host memory by ARC`."""
        return f"host memory by {self.eviction_policy.upper()}"


class _Extra(Strict, frozen=True, kw_only=True):
    """What vLLM's `OffloadingConnector` takes; of what is not simulated, the default alone."""

    cpu_bytes_to_use: Positive | None = None
    eviction_policy: Literal[EVICTION_POLICIES] = LRU  # type: ignore[valid-type]
    spec_name: Literal["CPUOffloadingSpec"] = "CPUOffloadingSpec"
    blocks_per_chunk: Literal[1] = 1
    store_threshold: Literal[0, 1] = 0  # every chunk is stored
    offload_prompt_only: bool = True
    self_describing_kv_events: bool = False


class _Config(Strict, frozen=True, kw_only=True):
    kv_connector: str = OFFLOADING
    kv_role: str = KV_BOTH
    kv_connector_extra_config: _Extra = field(default_factory=_Extra)
    engine_id: Any = None  # what decides nothing
    kv_buffer_device: Any = None
    kv_load_failure_policy: Any = None


@dataclass(frozen=True)
class KVTransferConfig:
    """vLLM's JSON object."""

    name: str = "JSON"

    def read(self, given: Any) -> KVTransfer | None:
        """None where it says nothing that is not the default. Raises ValueError for another connector or setting."""
        if isinstance(given, KVTransfer):
            return given
        settings = given if isinstance(given, dict) else parse_json(str(given), "the text")
        connector = settings.get("kv_connector", OFFLOADING) if isinstance(settings, dict) else OFFLOADING
        if connector in (NIXL, "NixlPullConnector"):
            raise ValueError(f"{connector}: prefill and decode apart are asked for by --pools; leave it out")
        if connector in PUSHING:
            raise ValueError(
                f"{connector}: prefill engines that push KV are not simulated, only decode engines that read it, as "
                f"with {NIXL}: give --pools instead"
            )
        if connector != OFFLOADING:  # before its settings, which are its own
            raise UnknownNameError(
                f"kv_connector '{shortened(str(connector), 40)}' is not simulated; KV in host memory is, by "
                f"{OFFLOADING}: give --kv-offloading-size GIB instead"
            )
        config = typed(settings, _Config, "")
        if config.kv_role != KV_BOTH:
            raise ValueError(f"kv_role must be {KV_BOTH} with {OFFLOADING}, which stores and loads")
        extra = config.kv_connector_extra_config
        if not extra.offload_prompt_only:
            raise ValueError("offload_prompt_only false (answers are stored too) is not simulated; leave it out")
        return KVTransfer(eviction_policy=extra.eviction_policy, cpu_bytes_to_use=extra.cpu_bytes_to_use)
