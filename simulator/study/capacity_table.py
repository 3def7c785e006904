"""Users per GPU count: the main answer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from simulator.deployment import Deployment, layouts
from simulator.fleet.router import RouterFactory
from simulator.study.candidate import (
    Candidate,
    Known,
    Level,
    RunContext,
    Simulated,
    is_large,
    routers_for,
    shares_nothing,
)
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, Screened, empty_row
from simulator.study.points import Watcher
from simulator.study.running.simulations import Simulations
from simulator.study.slo import SLO

TTFT_FACTORS: Final = (2.0, 4.0)
Choice = TypeVar("Choice", bound=Known)


def capacity_rows(
    question: CapacityQuestion,
    watcher: Watcher | None = None,
    simulations: Simulations | None = None,
    table: "CapacityTable | None" = None,
) -> Iterator[CapacityRow]:
    """One row per GPU count, as each is found; none depends on which others are asked for."""
    how = RunContext(watcher=watcher, simulations=simulations or Simulations())
    found = table or CapacityTable(question=question, how=how)
    return (found.row(gpus) for gpus in question.gpus)


@dataclass(frozen=True, kw_only=True)
class LongerTTFT:
    """About how many users at 95 % confidence there would be under a longer limit on TTFT."""

    slo: SLO
    users_low: int


@dataclass(kw_only=True, eq=False)
class CapacityTable:
    """Finds rows of one question; what several of them are made of is simulated once."""

    question: CapacityQuestion
    how: RunContext
    _winners: dict[int, Candidate] = field(default_factory=dict)
    _known: dict[tuple[int, int, str | RouterFactory | None], Simulated] = field(default_factory=dict)

    def candidates(self, gpus: int) -> list[Candidate]:
        """Every layout and router that is not excluded, estimated at least."""
        plans = (plan for plan in plans_of(self.question, gpus).values() if isinstance(plan, Deployment))
        return [found for plan in plans for found in self._with_routers(plan, gpus // plan.gpus)]

    def _with_routers(self, plan: Deployment, replicas: int) -> list[Candidate]:
        """Behind every router that may be the best; copies of one replica alone where there are very many."""
        routers = routers_for(self.question, plan, replicas)
        if len(routers) == 1:
            return [self.candidate(plan, replicas, routers[0])]
        copies = self.candidate(plan, replicas, routers[-1])
        if is_large(replicas, copies.users):
            return [copies]
        return [*(self.candidate(plan, replicas, router) for router in routers[:-1]), copies]

    def row(self, gpus: int, level: Level = Level.CONFIRMED) -> CapacityRow:
        """What serves the most users at 95 % confidence on so many GPUs, as far as so much evidence tells."""
        found = self.candidates(gpus)
        refused = {tp: why for tp, why in plans_of(self.question, gpus).items() if isinstance(why, str)}
        if not found:
            reason = next(reversed(refused.values()), "no tensor-parallel size divides it")
            return empty_row(self.question, gpus, max(refused, default=1), reason)
        self.how.estimated(gpus, max(each.users for each in found))
        best = self._best(gpus, found) if level is Level.CONFIRMED else search(found, level)
        screened = [*(each.screened() for each in found), *(Screened(tp=tp, reason=why) for tp, why in refused.items())]
        return replace(best.row(gpus), screened=tuple(sorted(screened, key=lambda each: (each.tp, each.router or ""))))

    def _best(self, gpus: int, candidates: Sequence[Candidate]) -> Candidate:
        """Copies of what is best on a part of the GPUs are confirmed first, so that more GPUs serve as many more."""
        if gpus not in self._winners:
            for prime in (each for each in range(2, gpus + 1) if gpus % each == 0 and _is_prime(each)):
                part = self.candidates(gpus // prime)
                if part and (winner := self._best(gpus // prime, part)).simulated.replicas == 1:
                    for each in candidates:
                        if each.simulated is winner.simulated:
                            each.level = Level.CONFIRMED
            self._winners[gpus] = search(candidates)
        return self._winners[gpus]

    def serves(self, gpus: int, users: float) -> bool:
        """Whether the row of so many GPUs has these users at 95 % confidence; few replications may tell that."""
        found = self.candidates(gpus)
        while any(each.may_serve(users) for each in found):
            best = max(found, key=lambda each: each.at_most)
            if best.level is not Level.ESTIMATED:
                return self.row(gpus).users_low >= users
            best.level = Level.COARSE
        return False

    def longer_ttft(self, row: CapacityRow) -> tuple[LongerTTFT, ...]:
        """What a confirmed row would serve if answers might begin later; nothing where TTFT does not hold it back."""
        slo, best = self.question.slo, self._winners.get(row.gpus)
        if best is None or slo.ttft_s is None or not row.users_low or not (row.binding or "").startswith("TTFT"):
            return ()
        found: list[LongerTTFT] = []
        most = row.users_low  # a longer limit never serves fewer
        for longer in (slo.with_ttft(factor) for factor in TTFT_FACTORS):
            most = max(int(row.users_low * best.simulated.share_under(longer)), most)
            found.append(LongerTTFT(slo=longer, users_low=most))
        return tuple(found)

    def candidate(self, plan: Deployment, replicas: int, router: str | RouterFactory) -> Candidate:
        """What is simulated of it is known to all candidates that are made of it."""
        asked = replace(self.question, router=router)
        copies = replicas if shares_nothing(asked, plan) else 1
        together = replicas // copies
        key = plan.tensor_parallel_size, together, router if together * plan.data_parallel_size > 1 else None
        if key not in self._known:
            self._known[key] = Simulated(question=asked, plan=plan, replicas=together, how=self.how)
        return Candidate(simulated=self._known[key], copies=copies, router=router)


def _is_prime(number: int) -> bool:
    return all(number % each for each in range(2, math.isqrt(number) + 1))


def search(candidates: Sequence[Choice], level: Level = Level.CONFIRMED) -> Choice:
    """The one that serves the most users at 95 % confidence: no other may turn out to serve more.

    The most promising is looked at more closely, one step at a time, until the most promising is confirmed, or as well
    known as is asked for.
    """
    while True:
        best = max(candidates, key=lambda each: (each.at_most, each.level, each.users, -each.plan.gpus))
        if best.users_low or best.level < level:
            following = best
        else:  # estimates may be wrong that nobody is served
            following = min(candidates, key=lambda each: (each.level, -each.plan.gpus))
        if following.level >= level:
            return best
        following.level = Level(following.level + 1)


def plans_of(question: CapacityQuestion, gpus: int) -> dict[int, Deployment | str]:
    """By tensor-parallel size: the layout of a replica, or why it does not run."""
    found = layouts(question.architecture, question.gpu, question.args, num_gpus=gpus)
    factor = question.step_time_factor
    if factor == 1:
        return found
    return {tp: plan if isinstance(plan, str) else plan.with_step_times(factor) for tp, plan in found.items()}
