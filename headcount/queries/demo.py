"""A first answer within seconds: one model on one GPU, from its memory and from an estimate that simulates nothing."""

from dataclasses import dataclass
from typing import Final

from headcount.inputs.engine import EngineInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.money import usd_per_month
from kvcache.memory.budget import MemoryBudget
from simulator.deployment import Deployment
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_table import plans_of
from simulator.study.estimate import Estimate, estimate_users
from simulator.study.slo import SLO

MODEL: Final = "llama-3.1-8b"
GPU: Final = "h100-sxm"
WORKLOAD: Final = "chat"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What one GPU holds, and about what it serves."""

    budget: MemoryBudget
    estimate: Estimate
    slo: SLO
    think_time_s: float
    usd_per_hour: float
    usd_per_month: float


def demo() -> Demo:
    """The same question as `headcount capacity` asks, answered by the estimate that its search starts from."""
    asked = EngineInput().on(MODEL, GPU)
    workload, think_time_s = TrafficInput().load(WORKLOAD, model=asked.architecture)
    question = CapacityQuestion(
        architecture=asked.architecture,
        gpu=asked.gpu,
        gpus=(1,),
        workload=workload,
        think_time_s=think_time_s,
        slo=SLOInput().found(WORKLOAD),
        args=asked.args,
    )
    (plan,) = plans_of(question, 1).values()
    assert isinstance(plan, Deployment), "this model fits on this GPU"
    price, month = asked.gpu.usd_per_hour, usd_per_month(1, asked.gpu.usd_per_hour)
    assert price is not None and month is not None, "this GPU has a price"
    return Demo(
        budget=plan.budget,
        estimate=estimate_users(plan, 1, question.load(plan), question.slo),
        slo=question.slo,
        think_time_s=think_time_s,
        usd_per_hour=price,
        usd_per_month=month,
    )
