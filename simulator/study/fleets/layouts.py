"""Every way to serve a model on the GPUs on offer, and why some cannot."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from files.errors import HeadcountError
from files.names import UnknownNameError
from kvcache.gpus.gpu import GPU
from kvcache.shape.architecture import Architecture
from simulator.deployment import MAX_TENSOR_PARALLEL_SIZE, Deployment, layouts
from simulator.disaggregation import DisaggregatedDeployment, PoolLink
from simulator.engines.engines import AnyArgs
from simulator.fleet.router import RouterFactory
from simulator.study.capacity import PRECISION
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.loads import Load
from simulator.study.slo import SLO
from workloads.populations.population import Population
from workloads.traces.trace import Trace

LEAST_OUTSTANDING: Final = "least-outstanding"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A kind of GPU at a price."""

    gpu: GPU
    usd_per_hour: float  # of one


@dataclass(frozen=True, kw_only=True)
class DisaggregationSearch:
    """Engines that compute prompts and engines that compute answers are tried too, with what lies between them."""

    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # TP of a role; every one that fits if absent
    between: PoolLink = field(default_factory=PoolLink)

    def has(self, role: str, tp: int) -> bool:
        return role not in self.sizes or tp in self.sizes[role]


@dataclass(frozen=True, kw_only=True)
class FleetQuestion:
    """Which fleet serves so many users at the least cost, with so many servers to spare?"""

    architecture: Architecture
    offers: tuple[Offer, ...]
    variants: tuple[AnyArgs, ...]  # without a tensor-parallel size: every one that fits a node
    workload: Population | Trace
    think_time_s: float
    users: float
    spare: int = 0
    disaggregated: DisaggregationSearch | None = None  # beside servers that do both; None: these alone
    slo: SLO = field(default_factory=SLO)
    router: str | RouterFactory | None = None  # None: for each layout the one that should cost clearly less
    precision: float = PRECISION
    replications: int | None = None  # of a load of the fleet that wins; None: as many as the precision takes
    seed: int = 0
    step_time_factor: float = 1.0  # every step takes so many times as long

    def __post_init__(self) -> None:
        if not self.offers or not self.variants:
            raise HeadcountError("no GPU to choose from; name at least one that has a price")
        if not self.users > 0:
            raise HeadcountError(f"a fleet for {self.users:g} users; give a number above 0")

    def capacity_of(self, layout: "Layout", servers: int, *, replications: int | None = None) -> CapacityQuestion:
        """The question how many users so many servers of a layout serve."""
        found = self.capacity_on(layout.offer, layout.plan.given, servers * layout.plan.gpus)
        return replace(found, router=layout.router, replications=replications or self.replications)

    def capacity_on(self, offer: Offer, args: AnyArgs, gpus: int = 1) -> CapacityQuestion:
        """The question how many users so many GPUs serve, with any router that is not asked for."""
        return CapacityQuestion(
            architecture=self.architecture,
            gpu=offer.gpu,
            gpus=(gpus,),
            workload=self.workload,
            think_time_s=self.think_time_s,
            slo=self.slo,
            args=args,
            router=self.router,
            precision=self.precision,
            replications=self.replications,
            seed=self.seed,
            step_time_factor=self.step_time_factor,
        )

    def load(self, layout: "Layout") -> Load:
        return self.capacity_of(layout, 1).load(layout.plan)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """One kind of server: what one command starts."""

    offer: Offer
    plan: Deployment
    args: AnyArgs  # as asked for; without a tensor-parallel size where that was open
    router: str | RouterFactory = LEAST_OUTSTANDING
    disaggregated: DisaggregatedDeployment | None = None  # whose answers `plan` computes; None: every server does both

    @property
    def kind(self) -> str:
        """Layouts of a kind are rivals: the GPU, disaggregated or not."""
        return layout_kind(self.offer.gpu.name, is_disaggregated=self.disaggregated is not None)

    @property
    def has_decider(self) -> bool:
        """Whether decode engines compute some prompts themselves."""
        return self.disaggregated is not None and self.disaggregated.between.decider is not None

    @property
    def plans(self) -> tuple[Deployment, ...]:
        return self.disaggregated.plans if self.disaggregated is not None else (self.plan,)

    def bought(self, servers: int, prefill_servers: int, spare: int) -> tuple[int, int]:
        """Servers with the spare ones, so many of each pool, and of them those that compute prompts alone."""
        if self.disaggregated is None:
            return servers + spare, 0
        return servers + 2 * spare, prefill_servers + spare

    def gpus(self, servers: int, prefill_servers: int = 0) -> int:
        """Of so many servers, of which so many compute prompts alone."""
        prefill = self.disaggregated.prefill.gpus * prefill_servers if self.disaggregated is not None else 0
        return (servers - prefill_servers) * self.plan.gpus + prefill

    def usd_per_hour(self, servers: int, prefill_servers: int = 0) -> float:
        return self.gpus(servers, prefill_servers) * self.offer.usd_per_hour


def layout_kind(gpu: str, *, is_disaggregated: bool) -> str:
    """A GPU's layouts, disaggregated ones by themselves."""
    return f"{gpu}, disaggregated prefill/decode" if is_disaggregated else gpu


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A layout that does not take part, and why."""

    gpu: str
    tp: int | None
    quantization: str | None
    kv_cache_dtype: str | None
    reason: str
    attainment: float = -1.0  # estimated of a single user; below any where it does not run
    prefill_tp: int | None = None  # where disaggregated

    @property
    def kind(self) -> str:
        return layout_kind(self.gpu, is_disaggregated=self.prefill_tp is not None)


def every_layout(question: FleetQuestion) -> tuple[list[Layout], list[Dropped]]:
    """What runs, and what does not. Raises HeadcountError where an argument is refused on every GPU."""
    found: list[Layout] = []
    dropped: list[Dropped] = []
    refused: list[ValueError] = []
    for offer in question.offers:
        for args in question.variants:
            try:
                sizes = layouts(question.architecture, offer.gpu, args, num_gpus=_node(args))
            except UnknownNameError:
                raise
            except ValueError as error:  # such as a format that this GPU lacks
                refused.append(error)
                dropped.append(_dropped(offer, args, args.tensor_parallel_size, str(error)))
                continue
            for tp, plan in sizes.items():
                if isinstance(plan, str):
                    dropped.append(_dropped(offer, args, tp, plan))
                else:
                    found.append(Layout(offer=offer, plan=plan, args=args, router=question.router or LEAST_OUTSTANDING))
    if len(refused) == len(question.offers) * len(question.variants):
        raise refused[0]
    return found, dropped


def _node(args: AnyArgs) -> int:
    """GPUs of the largest server that is tried."""
    if args.tensor_parallel_size is not None:
        return args.num_gpus
    return MAX_TENSOR_PARALLEL_SIZE * args.pipeline_parallel_size * args.num_engines * args.attention_groups


def _dropped(offer: Offer, args: AnyArgs, tp: int | None, reason: str) -> Dropped:
    return Dropped(
        gpu=offer.gpu.name, tp=tp, quantization=args.quantization, kv_cache_dtype=args.kv_cache_dtype, reason=reason
    )


def variants(args: AnyArgs, quantizations: tuple[str, ...], kv_cache_dtypes: tuple[str, ...]) -> Iterator[AnyArgs]:
    """The arguments with each weight format and each KV format; those of `args` where none is given."""
    for quantization in quantizations or (args.quantization,):
        for dtype in kv_cache_dtypes or (args.kv_cache_dtype,):
            yield replace(args, quantization=quantization, kv_cache_dtype=dtype)
