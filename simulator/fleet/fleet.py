"""Pools of servers that are alike, behind one router."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from files.errors import HeadcountError
from files.names import shortened
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.adapters import Adapters
from simulator.engines.vllm.connectors.pulling import KV_BOTH, KV_CONSUMER, KV_PRODUCER, LEASE_S, Nic
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.deciders import Decider
from simulator.fleet.flow_control import FlowControl
from simulator.fleet.pool_sizes import DECODE, PREFILL, ROLES, SERVE
from simulator.fleet.router import RouterFactory, check_router
from simulator.latency.step_time import StepTimes

AnyEngine = EngineConfig | SGLangConfig


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Servers of one deployment.

    A server of a mixture of experts under attention data parallelism is `data_parallel_size` engines, each with its
    own scheduler and blocks, which share the experts: their steps begin and end together. The router sees engines.
    """

    engine: AnyEngine
    step_times: StepTimes
    num_servers: int = 1
    data_parallel_size: int = 1
    api_servers: int = 1  # of a server: each takes one request after the other
    role: str = SERVE
    nic: Nic | None = None  # an engine's way to the others, where disaggregated
    weight: float = 1.0  # how much an engine of it serves beside one of another pool, for routers that see weights

    def __post_init__(self) -> None:
        if self.num_servers < 1:
            raise HeadcountError(f"num_servers is {self.num_servers}; a pool has at least 1")
        if self.data_parallel_size < 1:
            raise HeadcountError(f"data_parallel_size is {self.data_parallel_size}; it must be at least 1")
        if self.api_servers < 1:
            raise HeadcountError(f"api_servers is {self.api_servers}; a server has at least 1")
        if self.data_parallel_size > 1 and self.engine.pipeline_parallel_size > 1:
            raise HeadcountError("data parallelism with pipeline parallelism is not simulated; choose one of them")
        if self.data_parallel_size > 1 and self.engine.host_tier:
            raise HeadcountError("CPU KV-cache offloading with data parallelism is not simulated; leave it out")
        if not 0 < self.weight < math.inf:
            raise HeadcountError(f"weight is {self.weight:g}; a pool's weight is above 0")
        if self.role not in ROLES:
            raise HeadcountError(f"no role '{self.role}' of a pool; there is {', '.join(ROLES)}")
        if self.role != SERVE:
            self._check_disaggregated()

    def _check_disaggregated(self) -> None:
        if isinstance(self.engine, SGLangConfig):
            raise HeadcountError(
                "disaggregated prefill/decode is not simulated with SGLang; choose vLLM, or leave --pools out"
            )
        if self.data_parallel_size > 1:
            raise HeadcountError("disaggregated prefill/decode is not simulated with data parallelism")
        assert self.nic is not None, "engines that read each other's KV have a network between them"
        roles = {PREFILL: (KV_PRODUCER, KV_BOTH), DECODE: (KV_CONSUMER, KV_BOTH)}[self.role]
        assert self.engine.kv_role in roles, f"a {self.role} pool's engines have a kv_role of {roles}"

    @property
    def num_engines(self) -> int:
        """Schedulers with KV blocks of their own, over all servers."""
        return self.num_servers * self.data_parallel_size


def _adapters(engine: EngineConfig | SGLangConfig) -> tuple[int, float] | None:
    """What the pools of a fleet have in common."""
    found = engine.adapters if isinstance(engine, EngineConfig) else None
    return None if found is None else (found.num_adapters, found.skew)


def _kept(pool: Pool) -> tuple[int, int, float] | None:
    """What engines that share a store have in common; None: it keeps nothing there."""
    tier = pool.engine.host_tier
    if tier is None or not tier.is_shared or not isinstance(pool.engine, EngineConfig):
        return None
    return pool.engine.block_size, tier.num_chunks, tier.store_chunk_s


@dataclass(frozen=True, kw_only=True)
class Handover:
    """How a request goes from its prefill engine to its decode engine.

    `dispatch_s` lies between the prefill engine's step and the request's arrival at the decode engine: the answer's way
    out, the router, the new request's way in. Blocks that nobody comes to read are kept for `lease_s`.
    With `pushes` the router sends a request to both engines at once, and the prefill engine writes into the other.
    """

    pushes: bool = False
    dispatch_s: float = 0.0
    lease_s: float = LEASE_S
    decider: Decider | None = None  # of prompts that decode engines compute themselves; None: none

    def __post_init__(self) -> None:
        for name in ("dispatch_s", "lease_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise HeadcountError(f"{name} is {shortened(repr(value))}; it must be a finite time of 0 s or more")
        if self.pushes and self.decider is not None:
            raise HeadcountError(
                "a decider is not simulated where prefill engines push; leave --decider out, or give --kv-transfer pull"
            )
        if self.dispatch_s >= self.lease_s:
            raise HeadcountError(
                f"dispatch takes {self.dispatch_s} s, and blocks are kept for {self.lease_s} s: all are lost before "
                "they are read; it must take less"
            )


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Pools behind one router, given by name or as what makes one from a seed. Engines are numbered pool by pool.

    Prefill pools stand before decode pools.
    """

    pools: tuple[Pool, ...]
    router: str | RouterFactory = "least-outstanding"
    handover: Handover = Handover()
    flow_control: FlowControl | None = None
    """The queue before the router; None: the router gets each request as it arrives."""

    def __post_init__(self) -> None:
        if not self.pools:
            raise HeadcountError("a fleet has at least one pool")
        roles = [pool.role for pool in self.pools]
        if self.is_disaggregated and sorted(set(roles)) != sorted((PREFILL, DECODE)):
            raise HeadcountError(
                "disaggregated prefill/decode needs a prefill pool and a decode pool, and no pool that does both"
            )
        assert roles == sorted(roles, reverse=True), "prefill pools come before decode pools"
        if self.shares_kv_store and len({_kept(pool) for pool in self.pools}) > 1:
            raise HeadcountError(
                "engines that share a remote KV cache need equal blocks; leave --kv-store-size out, or give all "
                "pools the same model, KV-cache dtype and block size"
            )
        if len({_adapters(pool.engine) for pool in self.pools}) > 1:
            raise HeadcountError("pools of a fleet serve the same LoRA adapters; give all the same --adapters")
        check_router(self.router)

    @property
    def adapters(self) -> Adapters | None:
        """The LoRA adapters that requests use, in the first pool's words; None without any."""
        engine = self.pools[0].engine
        return engine.adapters if isinstance(engine, EngineConfig) else None

    @property
    def is_disaggregated(self) -> bool:
        """Whether prompts are computed in other engines than answers."""
        return any(pool.role != SERVE for pool in self.pools)

    @property
    def num_engines(self) -> int:
        return sum(pool.num_engines for pool in self.pools)

    @property
    def num_legs(self) -> int:
        """Engines that have a request at once."""
        return 1 + (self.is_disaggregated and self.handover.pushes)

    @property
    def block_size(self) -> int | None:
        """Tokens of the first pool's KV blocks; None for SGLang's."""
        engine = self.pools[0].engine
        return engine.block_size if isinstance(engine, EngineConfig) else None

    @property
    def num_usable_blocks(self) -> int:
        """KV blocks over all engines, without the null block of each."""
        return sum(pool.num_engines * pool.engine.num_usable_blocks for pool in self.pools)

    @property
    def has_host_tier(self) -> bool:
        """Whether an engine keeps KV in host memory."""
        return any(pool.engine.host_tier is not None for pool in self.pools)

    @property
    def shares_kv_store(self) -> bool:
        """Whether all engines keep KV in one store."""
        return any(pool.engine.host_tier is not None and pool.engine.host_tier.is_shared for pool in self.pools)

    @property
    def max_model_len(self) -> int:
        """The longest sequence that every engine takes."""
        return min(pool.engine.max_model_len for pool in self.pools)

    def check_vllm_alone(self, what: str) -> None:
        """Raise HeadcountError where a pool runs SGLang, with which `what` is not simulated."""
        if any(isinstance(pool.engine, SGLangConfig) for pool in self.pools):
            raise HeadcountError(f"{what} is not simulated with SGLang; leave it out, or choose vLLM")

    def with_pools(self, change: Callable[[Pool], Pool]) -> "Fleet":
        """The same fleet with every pool changed."""
        return replace(self, pools=tuple(change(pool) for pool in self.pools))
