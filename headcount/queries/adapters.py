"""What LoRA adapters cost a deployment: memory, time of its steps, users."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from files.documents import Json
from headcount.text.units import percent
from headcount.text.words import AT_CONFIDENCE
from kvcache.memory.terms import gib_text
from simulator.deployment import Deployment
from simulator.engines.vllm.adapter_args import AdapterArgs
from simulator.latency.model import ADAPTERS, breakdown
from simulator.study.candidate import RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from simulator.study.points import Point

LEAST_LOADS: Final = 0.01  # of the time: less is not worth a word
_NUMBERS: Final = (
    "adapters", "max_loras", "max_lora_rank", "slot_bytes", "step_s", "adapters_s", "in_step", "load_share",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AdapterCost:
    """Of one deployment, at the load of a point; `without` is the best layout of as many GPUs for the model alone."""

    adapters: int
    max_loras: int
    max_lora_rank: int
    slot_bytes: int  # of all slots, on each GPU
    step_s: float  # the mean step, of which …
    adapters_s: float  # … so much goes to adapters
    in_step: float  # adapters in a step, on average
    load_share: float  # of the engines' busy time, in which steps wait for adapters
    without: CapacityRow | None = None

    def to_json(self) -> Json:
        found: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        return found | ({"without": self.without.to_json()} if self.without is not None else {})


def adapter_cost(plan: Deployment, point: Point | None, without: CapacityRow | None = None) -> AdapterCost | None:
    """None without adapters, or where nothing was simulated."""
    args = plan.args.lora
    step = None if point is None else point.mean_step
    if not isinstance(args, AdapterArgs) or args.adapters is None or point is None or step is None:
        return None
    seconds = breakdown(plan.latency, step)
    totals = [replication.totals[0] for replication in point.replications]
    busy_s = sum(float(each["busy_s"]) for each in totals)
    loads_s = sum(float(each["adapter_load_s"]) for each in totals)
    return AdapterCost(
        adapters=args.adapters,
        max_loras=args.max_loras,
        max_lora_rank=args.max_lora_rank,
        slot_bytes=plan.budget.adapter_bytes,
        step_s=sum(seconds.values()),
        adapters_s=seconds.get(ADAPTERS, 0.0),
        in_step=step.adapters,
        load_share=loads_s / busy_s if busy_s else 0.0,
        without=without,
    )


def row_without_adapters(question: CapacityQuestion, how: RunContext, best: CapacityRow) -> CapacityRow | None:
    """As many GPUs for the model alone, with the layout that then serves the most; None without adapters."""
    args = question.args
    if not isinstance(args, AdapterArgs) or args.adapters is None or not best.users:
        return None
    bare = replace(question, args=args.without_adapters(), gpus=(best.gpus,))
    return CapacityTable(question=bare, how=how).row(best.gpus)


def adapter_lines(cost: AdapterCost, usd_per_month: float | None, users: int = 0) -> Iterator[str]:
    """Memory and time, then the users that the same GPUs serve without adapters; a month's cost is that of the GPUs.

    The step is that of so many expected `users`, if they are given.
    """
    at = f" at {users:,} users" if users else ""
    what = "1 LoRA adapter" if cost.adapters == 1 else f"{cost.adapters:,} LoRA adapters"
    few = "" if cost.max_loras >= cost.adapters else f", {cost.max_loras:,} at once"
    loads = f", loads {percent(round(cost.load_share, 2))} of the time" if cost.load_share >= LEAST_LOADS else ""
    yield (
        f"{what} of rank {cost.max_lora_rank}{few}: {gib_text(cost.slot_bytes)} per GPU, "
        f"{1e3 * cost.adapters_s:.1f} ms of a mean step of {1e3 * cost.step_s:.1f} ms{at}{loads}"
    )
    row = cost.without
    if row is None or not row.users_low:
        return
    each = "" if usd_per_month is None else f", ${usd_per_month / row.users_low:,.2f} per user"
    fewer = f", so adapters take {percent(round(1 - users / row.users, 2))}" if 0 < users < row.users else ""
    yield f"without adapters: {row.users_low:,} users {AT_CONFIDENCE} ({row.users:,} expected{fewer}){each}"
