"""What is asked of a capacity table: deployments to choose from, the load and the SLO."""

from dataclasses import dataclass, field

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.shape.architecture import Architecture
from simulator.deployment import Deployment
from simulator.engines.engines import AnyArgs
from simulator.engines.vllm.arguments import EngineArgs
from simulator.fleet.flow_control import read_flow_control
from simulator.fleet.router import RouterFactory
from simulator.simulation import check_images, check_lengths
from simulator.study.capacity import PRECISION, Capacity, enough
from simulator.study.loads import HOUR_S, MIN_HORIZON_S, Load, TraceLoad, UserLoad, fitting_trace
from simulator.study.slo import SLO
from workloads.populations.population import Population
from workloads.traces.trace import Trace

LEAST_HOURS_MET, MOST_HOURS_MET = 0.5, 0.999  # with more, no number of replications shows the hour that counts


@dataclass(frozen=True, kw_only=True)
class CapacityQuestion:
    """How many users does each GPU count serve?

    `think_time_s` turns a trace's requests into users; populations bring their own.
    """

    architecture: Architecture
    gpu: GPU
    gpus: tuple[int, ...]
    workload: Population | Trace
    think_time_s: float
    slo: SLO = field(default_factory=SLO)
    args: AnyArgs = field(default_factory=EngineArgs)  # without a tensor-parallel size: the best of those that fit
    router: str | RouterFactory | None = None  # None: `default_router`'s for each layout
    flow_control: str | None = None  # the gateway's queue before it
    precision: float = PRECISION
    replications: int | None = None  # of a load; None: as many as the precision takes
    hours_met: float | None = None  # the share of hours that have to meet the SLO; None: the long run has to
    seed: int = 0
    step_time_factor: float = 1.0  # every step takes so many times as long

    def __post_init__(self) -> None:
        read_flow_control(self.flow_control)
        if not self.gpus or min(self.gpus) < 1:
            raise HeadcountError(
                f"GPU counts {self.gpus or 'are missing'}; give whole numbers of at least 1, such as 1,2,4,8"
            )
        if self.replications is not None and self.replications < 2:
            raise HeadcountError(f"{self.replications} replications give no interval; ask for at least 2")
        if not 0 < self.precision < 1:
            raise HeadcountError(
                f"the precision is {self.precision}; it must lie between 0 and 1, such as 0.03 for 3 %"
            )
        if self.hours_met is not None and not LEAST_HOURS_MET <= self.hours_met <= MOST_HOURS_MET:
            raise HeadcountError(
                f"the share of hours that meet the SLO is {self.hours_met}; it must lie between {LEAST_HOURS_MET} and "
                f"{MOST_HOURS_MET}, such as 0.95 for 95 %"
            )

    def is_answered_by(self, found: Capacity) -> bool:
        """Whether the users are known as well as was asked for."""
        asked = enough(self.precision, found, are_users=isinstance(self.workload, Population))
        return self.replications is not None or found.half_width <= asked

    def load(self, *plans: Deployment) -> Load:
        """The workload as engines of all these deployments take it."""
        length_s = MIN_HORIZON_S if self.hours_met is None else HOUR_S
        if isinstance(self.workload, Trace):
            shortest = min((plan.engine for plan in plans), key=lambda engine: engine.max_prompt_tokens)
            trace = fitting_trace(self.workload, shortest.max_prompt_tokens)
            check_lengths(shortest, trace.table)
            return TraceLoad(trace=trace, think_time_s=self.think_time_s, seed=self.seed, min_horizon_s=length_s)
        most = min(plan.engine.max_model_len for plan in plans)
        if self.workload.images is not None:
            drawn = self.workload.draw(1, 1, self.seed, most)
            for plan in plans:
                check_images(plan.engine, drawn)
        return UserLoad(population=self.workload, max_model_len=most, seed=self.seed, min_horizon_s=length_s)
