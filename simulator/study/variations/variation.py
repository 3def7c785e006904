"""One of many variations of a question: screened in milliseconds, then simulated as it would be alone."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment
from simulator.study.candidate import Level, RunContext
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, empty_row
from simulator.study.capacity_table import CapacityTable, plans_of
from simulator.study.estimate import Estimate
from simulator.study.fleets.disaggregation import PairTable

FEW_USERS: Final = 10
"""Few replications told 3 of the 6 that Llama-3.1-8B on one H100 serves with a mean context of 16,384 tokens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Variation:
    """A question with one GPU count, and what an estimate says of it; with a reason nothing runs there."""

    question: CapacityQuestion
    gpus: int
    users: int = 0  # about
    plan: Deployment | None = None
    estimate: Estimate | None = None
    reason: str | None = None
    tp: int = 1
    disaggregated: DisaggregatedDeployment | None = None  # whose answers `plan` computes
    how: RunContext = field(default_factory=RunContext)
    table: CapacityTable | None = None  # what is simulated of it; None where nothing runs, or disaggregated
    pairs: PairTable | None = None  # the same where disaggregated

    def is_same_as(self, other: "Variation") -> bool:
        """Whether it comes to the same settings under the same load, however they were asked for."""
        if self.plan is None or other.plan is None or (self.gpus, self.users) != (other.gpus, other.users):
            return False  # most differ here, and no settings need be resolved
        one, another = self._as_asked, other._as_asked
        return replace(one, args=another.args) == another and self._resolved == other._resolved

    @property
    def _as_asked(self) -> CapacityQuestion:
        """Before a layout and a router are chosen."""
        return self.table.question if self.table is not None else self.question

    @property
    def _resolved(self) -> object:
        """Whatever of it runs."""
        if (pools := self.disaggregated) is not None:
            return pools.counts, pools.between, *(plan.resolved for plan in pools.plans)
        plans = plans_of(self._as_asked, self.gpus)
        return {tp: plan.resolved for tp, plan in plans.items() if isinstance(plan, Deployment)}


def screen(question: CapacityQuestion, how: RunContext | None = None) -> Variation:
    """The layout and router that serve most by their estimates, of those that the question leaves open."""
    gpus, how = question.gpus[0], how or RunContext()
    table = CapacityTable(question=question, how=how)
    found = table.candidates(gpus)
    if not found:
        plans = plans_of(question, gpus)
        why = str(next(reversed(plans.values()), "no tensor-parallel size divides the GPUs"))
        return Variation(question=question, gpus=gpus, reason=why, tp=max(plans, default=1))
    best = max(found, key=lambda each: (each.estimated[0], -each.plan.gpus))
    return Variation(
        question=question,
        gpus=gpus,
        users=best.estimated[0],
        plan=best.plan,
        estimate=best.simulated.estimate,
        tp=best.plan.tensor_parallel_size,
        how=how,
        table=table,
    )


def screen_disaggregated(
    question: CapacityQuestion, disaggregated: DisaggregatedDeployment, how: RunContext | None = None
) -> Variation:
    """The same where disaggregated."""
    how = how or RunContext()
    pairs = PairTable(question=question, disaggregated=disaggregated, how=how)
    tp = disaggregated.decode.tensor_parallel_size
    return Variation(
        question=question,
        gpus=disaggregated.gpus,
        users=max(each.estimated for each in pairs.candidates(disaggregated.counts)),
        plan=disaggregated.decode,
        tp=tp,
        disaggregated=disaggregated,
        how=how,
        pairs=pairs,
    )


def simulated(variation: Variation, level: Level = Level.CONFIRMED) -> CapacityRow:
    """The row of a variation, as `capacity` has it, or coarse; of few users, that few replications may miss by half."""
    question, table, pools = variation.question, variation.table, variation.disaggregated
    if pools is not None and variation.pairs is not None:
        found = partial(variation.pairs.row, pools.counts)
    elif table is not None:
        found = partial(table.row, variation.gpus)
    else:
        return empty_row(question, variation.gpus, variation.tp, variation.reason or "it does not run")
    row = found(level)
    is_vague = level is Level.COARSE and row.users and row.users_low < FEW_USERS
    return found(Level.CONFIRMED) if is_vague else row
