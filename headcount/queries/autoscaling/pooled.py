"""What answers about the users of several pools together have in common."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from files.documents import Json, ReadJson
from headcount.diagnostics import Facts, facts_about
from headcount.inputs.load import effects_on
from headcount.inputs.reading.deployments import ModelOnGPU
from headcount.queries.money import HOURS_PER_MONTH, usd_per_user_month
from headcount.queries.result import Result, Verdict
from headcount.text.units import assumptions_json, counted
from simulator.deployment import Deployment
from simulator.study.capacity import Capacity
from simulator.study.capacity_question import CapacityQuestion
from workloads.effects import TrafficEffects
from workloads.populations.population import Population
from workloads.traces.trace import Trace

NOBODY = "not even the smallest load meets the SLO"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PooledResult(Result):
    """Users of all pools together."""

    question: CapacityQuestion  # of the first pool
    plans: tuple[Deployment, ...]  # one of each pool
    router: str
    found: Capacity
    interval: ReadJson  # users, users_low …, as a row of capacity has them
    workload: str
    traffic: TrafficEffects

    @property
    def users_low(self) -> int:
        """Users at 95 % confidence."""
        return int(self.interval["users_low"])

    @property
    def users(self) -> int:
        """Users at which the expected attainment meets the SLO."""
        return int(self.interval["users"])

    @property
    def users_high(self) -> int:
        """The upper end of the interval."""
        return int(self.interval["users_high"])

    @property
    @abstractmethod
    def usd_per_hour(self) -> float | None:
        """Of all GPUs; None where one has no list price."""

    @property
    def usd_per_month(self) -> float | None:
        return None if self.usd_per_hour is None else HOURS_PER_MONTH * self.usd_per_hour

    def shared_figures(self) -> Json:
        """What every such answer says under the same names."""
        asked, left_out = self.question, dict.fromkeys(item for plan in self.plans for item in plan.not_simulated)
        return {
            "model": asked.architecture.name,
            "workload": self.workload,
            "think_time_s": asked.think_time_s,
            "traffic_effects": self.traffic.to_json(),
            "slo": vars(asked.slo),
            "vllm_version": asked.args.vllm_version,
            "router": self.router,
            "seed": asked.seed,
            **self.interval,
            "replications": num_replications(self.found),
            "precision": self.found.half_width,
            "usd_per_hour": self.usd_per_hour,
            "usd_per_month": self.usd_per_month,
            "usd_per_user_month": usd_per_user_month(self.usd_per_month, self.users_low),
            "architecture_assumptions": assumptions_json(asked.architecture.assumptions),
            "not_simulated": assumptions_json(left_out),
        }


def num_replications(found: Capacity) -> int:
    """Of each load around the capacity."""
    return len(found.better_known.replications) if found.better_known else 0


def verdict_of(question: CapacityQuestion, found: Capacity) -> Verdict:
    """Missed where nobody is served, inconclusive where noise stays."""
    if not found.mean:
        return Verdict.TARGET_MISSED
    return Verdict.DONE if question.is_answered_by(found) else Verdict.INCONCLUSIVE


def facts_of(
    asked: ModelOnGPU,
    question: CapacityQuestion,
    found: Capacity,
    *,
    gpus: int,
    plans: Sequence[Deployment],
    **more: object,
) -> Facts:
    """For the notes: what is known of all pools once they have been searched together."""
    rough = (
        [] if question.is_answered_by(found) else [(counted(gpus, "GPU"), found.half_width, num_replications(found))]
    )
    known = facts_about(asked, plans=list(plans), cancelled=found.point.cancelled if found.point else None, **more)
    return replace(known, imprecise=rough, why_missed=None if found.mean else NOBODY)


def effects_of(workload: Population | Trace, plans: Sequence[Deployment]) -> TrafficEffects:
    """What the shortest engine of all pools makes of the load."""
    return effects_on(workload, [plan.engine for plan in plans])
