"""Prefill and decode in pools of their own: a deployment for each, and what lies between them."""

import json
import shlex
from dataclasses import dataclass, replace

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.memory.kv_store import NIC_BYTES_PER_S, REACHED_SHARE, REACHED_SOURCE, TRANSFER_S, TRANSFER_SOURCE
from kvcache.releases import KV_TRANSFER_AS_READ
from kvcache.shape.architecture import Architecture
from simulator.deployment import Assumption, Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.connectors.pulling import KV_CONSUMER, KV_PRODUCER, Nic
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.deciders import Decider
from simulator.fleet.fleet import Fleet, Handover, Pool
from simulator.fleet.pool_sizes import DECODE, PREFILL, Part
from simulator.fleet.router import RouterFactory
from simulator.latency.step_time import TOKEN_ID_S, TOKEN_ID_SOURCE

DESCRIPTOR_S = 3.5e-6
DESCRIPTOR_SOURCE = (
    "measured: NIXL posts 1,785 descriptors in 6.7 ms (vllm#50913), 40,064 in 129 ms (vllm#34054); vLLM 0.32 has one "
    "for each block and layer"
)
PULL, PUSH = "pull", "push"
CONNECTORS = {PULL: "NixlConnector", PUSH: "NixlPushConnector"}  # vLLM's: decode engines read, prefill engines write
DEFAULT_ROUTER = "least-outstanding"
NOT_WITH_SGLANG = "disaggregated prefill/decode is not simulated with SGLang; leave --pools out, or choose vLLM"
DISPATCH_S = 0.025
DISPATCH_SOURCE = (
    "measured: Mooncake answers a prompt of 128 tokens with Qwen3-8B on idle engines in 46 ms, of which some 20 ms are "
    "its prefill, its transfer and the first decode"
)

TOKEN_ID_TEXT = f"{1e6 * TOKEN_ID_S:.3g} µs of an API server each"


@dataclass(frozen=True, kw_only=True)
class PoolLink:
    """Who moves the KV, and what a handover takes beside the engines' steps.

    With PUSH a request comes to both its engines at once, without a dispatch between them.
    """

    kv_transfer: str = PULL
    dispatch_s: float = DISPATCH_S
    bytes_per_s: float = REACHED_SHARE * NIC_BYTES_PER_S
    """By one GPU, one way."""
    transfer_s: float = TRANSFER_S
    descriptor_s: float = DESCRIPTOR_S
    decider: Decider | None = None
    forwards_token_ids: bool = False
    """Whether decode engines get the prompt as the token ids that its prefill engine made of it, not as text."""

    def __post_init__(self) -> None:
        if not 0 < self.bytes_per_s < float("inf"):
            raise HeadcountError(f"the KV transfer's rate is {self.bytes_per_s} bytes/s; it must be above 0")
        assert self.kv_transfer in CONNECTORS, "a KV transfer has a connector"

    @property
    def pushes(self) -> bool:
        """Whether prefill engines write; else decode engines read."""
        return self.kv_transfer == PUSH

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        rate = f"{self.bytes_per_s / 1e9:.3g} GB/s one way per GPU"
        is_own = self.bytes_per_s != REACHED_SHARE * NIC_BYTES_PER_S
        source = "given" if is_own else f"{REACHED_SHARE:.0%} of a 400 Gb/s card, {REACHED_SOURCE}"
        dispatch_source = DISPATCH_SOURCE if self.dispatch_s == DISPATCH_S else "given"
        return (
            ("KV transfer", rate, source),
            ("start of a KV transfer", f"{1e3 * self.transfer_s:.3g} ms", TRANSFER_SOURCE),
            ("descriptor of a KV transfer", f"{1e6 * self.descriptor_s:.3g} µs", DESCRIPTOR_SOURCE),
            ("dispatch to the decode engine", "none: sent to both engines at once", f"--kv-transfer {PUSH}")
            if self.pushes
            else ("dispatch to the decode engine", f"{1e3 * self.dispatch_s:.3g} ms", dispatch_source),
            *([("decider", str(self.decider), "given")] if self.decider is not None else ()),
            *([("token ids forwarded", TOKEN_ID_TEXT, TOKEN_ID_SOURCE)] if self.forwards_token_ids else ()),
        )

    def nic(self, deployment: Deployment, transfers_per_block: int = 1) -> Nic:
        """An engine's way to the others. Its GPUs move their own parts of a block side by side, layer by layer."""
        layout = deployment.budget.layout
        layers = max(len(group.layers) for group in layout.groups)
        return Nic(
            block_s=layout.block_bytes() / self.bytes_per_s,
            transfer_s=self.transfer_s,
            post_s=transfers_per_block * layers * self.descriptor_s,
        )


@dataclass(frozen=True, kw_only=True)
class DisaggregatedDeployment:
    """A deployment that computes prompts and one that computes answers, each with its number of engines."""

    prefill: Deployment
    decode: Deployment
    num_prefill: int
    num_decode: int
    between: PoolLink = PoolLink()

    @property
    def plans(self) -> tuple[Deployment, Deployment]:
        return self.prefill, self.decode

    @property
    def counts(self) -> tuple[int, int]:
        return self.num_prefill, self.num_decode

    def sized(self, num_prefill: int, num_decode: int) -> "DisaggregatedDeployment":
        """The same deployments with so many engines of each."""
        return replace(self, num_prefill=num_prefill, num_decode=num_decode)

    @property
    def serve_lines(self) -> tuple[str, str]:
        """The commands that start an engine of each pool."""
        connector = CONNECTORS[self.between.kv_transfer]
        return _serve_line(self.prefill, connector, KV_PRODUCER), _serve_line(self.decode, connector, KV_CONSUMER)

    @property
    def gpus(self) -> int:
        """Of all engines."""
        return sum(plan.gpus * count for plan, count in zip(self.plans, self.counts, strict=True))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        both = (*self.prefill.assumptions, *self.decode.assumptions)
        return (*dict.fromkeys(both), *self.between.assumptions)

    @property
    def nics(self) -> tuple[Nic, Nic]:
        """Of an engine of each. Who moves KV posts a descriptor for each GPU of the other with a part of a block."""
        sizes = self.prefill.tensor_parallel_size, self.decode.tensor_parallel_size
        own, others = sizes if self.between.pushes else sizes[::-1]
        parts = 1 if self.decode.architecture.is_mla else max(others // own, 1)
        return self.between.nic(self.prefill, parts), self.between.nic(self.decode, parts)

    def fleet(self, router: str | RouterFactory | None) -> Fleet:
        each = zip(self.plans, self.counts, self.nics, (PREFILL, DECODE), strict=True)
        pools = tuple(
            Pool(
                engine=plan.engine,
                step_times=plan.latency.step_times,
                num_servers=count,
                api_servers=plan.api_servers,
                role=role,
                nic=nic,
            )
            for plan, count, nic, role in each
        )
        between = self.between
        handover = Handover(pushes=between.pushes, dispatch_s=between.dispatch_s, decider=between.decider)
        return Fleet(pools=pools, router=router or DEFAULT_ROUTER, handover=handover)


def _serve_line(plan: Deployment, connector: str, kv_role: str) -> str:
    transfer = json.dumps({"kv_connector": connector, "kv_role": kv_role})
    return f"{plan.serve_line} --kv-transfer-config {shlex.quote(transfer)}"


def resolve_disaggregated(
    architecture: Architecture, gpu: GPU, args: EngineArgs, parts: tuple[Part, Part], between: PoolLink = PoolLink()
) -> DisaggregatedDeployment:
    """Both deployments under one set of arguments, apart from their tensor-parallel sizes.

    Raises ValueError for a release whose rules are not those that are simulated, or for what is not simulated apart.
    """
    sizes = (part.tensor_parallel_size or args.tensor_parallel_size or 1 for part in parts)
    plans = [resolve(architecture, gpu, replace(args, tensor_parallel_size=size)) for size in sizes]
    return disaggregated_deployment(plans[0], plans[1], between).sized(parts[0].engines, parts[1].engines)


def disaggregated_deployment(
    prefill: Deployment, decode: Deployment, between: PoolLink = PoolLink()
) -> DisaggregatedDeployment:
    """One engine of each. Raises HeadcountError as `resolve_disaggregated` does."""
    is_even = prefill.tensor_parallel_size == decode.tensor_parallel_size
    if between.pushes and prefill.architecture.is_mla and not is_even:
        raise HeadcountError(
            "--kv-transfer push: a model with MLA is simulated with one tensor-parallel size alone, since each GPU of "
            "the larger one would be written the same KV; give both --pools one size, or --kv-transfer pull"
        )
    has_windows = len(decode.budget.layout.groups) > 1
    if between.pushes and has_windows and decode.tensor_parallel_size > prefill.tensor_parallel_size:
        raise HeadcountError(
            "--kv-transfer push: vLLM refuses more tensor-parallel ranks for decode than for prefill where layers have "
            "sliding windows; give both --pools one size, or --kv-transfer pull"
        )
    decode = replace(decode, engine=replace(_checked(decode), kv_role=KV_CONSUMER))
    return DisaggregatedDeployment(
        prefill=replace(prefill, engine=replace(_checked(prefill), kv_role=KV_PRODUCER)),
        decode=_of_token_ids(decode) if between.forwards_token_ids else decode,
        num_prefill=1,
        num_decode=1,
        between=between,
    )


def _of_token_ids(plan: Deployment) -> Deployment:
    """The same, where prompts are not tokenized."""
    times = plan.latency.step_times
    times = replace(times, ingress_token_s=min(times.ingress_token_s, TOKEN_ID_S))
    return replace(plan, latency=replace(plan.latency, step_times=times))


def _checked(plan: Deployment) -> EngineConfig:
    """The scheduler's settings. Raises HeadcountError for a release or a layout that is not simulated apart."""
    if not isinstance(plan.engine, EngineConfig):
        raise HeadcountError(NOT_WITH_SGLANG)
    if not KV_TRANSFER_AS_READ.holds_in(plan.args.vllm_version):
        raise HeadcountError(
            f"disaggregated prefill/decode is simulated by the rules of vLLM {KV_TRANSFER_AS_READ.first} and "
            f"later; give --vllm-version {KV_TRANSFER_AS_READ.since}"
        )
    if plan.budget.decode_context_parallel_size > 1:
        raise HeadcountError(
            "disaggregated prefill/decode is not simulated with --decode-context-parallel-size; leave it out"
        )
    if plan.data_parallel_size > 1:
        raise HeadcountError(
            "disaggregated prefill/decode is not simulated with --data-parallel-size; give more engines in --pools"
        )
    return plan.engine
