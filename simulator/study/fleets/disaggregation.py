"""Users of engines that compute prompts and engines that compute answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from simulator.disaggregation import DEFAULT_ROUTER, DisaggregatedDeployment
from simulator.fleet.router import RouterFactory
from simulator.study.candidate import AFFINITY, Level, RunContext, keeps_prefixes, may_reach
from simulator.study.capacity_interval import estimated_size
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, empty_row, no_capacity_reason, row_of
from simulator.study.capacity_table import search
from simulator.study.estimate import stationary_load
from simulator.study.fleets.joint import Joint
from simulator.study.fleets.pair_estimate import estimated_users_of_pair
from simulator.study.points import Evaluator

Pair = tuple[int, int]  # engines that compute prompts, engines that compute answers


def evaluator_of_disaggregated(
    question: CapacityQuestion, disaggregated: DisaggregatedDeployment, how: RunContext
) -> Evaluator:
    """Simulates loads on both pools."""
    return Evaluator(
        fleet=disaggregated.fleet(question.router),
        load=stationary_load(
            question.load(*disaggregated.plans), disaggregated.decode, disaggregated.num_decode, question.slo
        ),
        slo=question.slo,
        watcher=how.watch,
        simulations=how.simulations,
    )


@dataclass(kw_only=True, eq=False)
class PairTable:
    """What pairs of pools serve under one question: each is simulated once, whoever asks, and however often."""

    question: CapacityQuestion  # without a router: the better of those that may be
    disaggregated: DisaggregatedDeployment  # of any numbers of engines
    how: RunContext
    _known: dict[Pair, list[Joint]] = field(default_factory=dict)

    def candidates(self, pair: Pair) -> list[Joint]:
        """So many engines of each pool behind every router that may be the best, estimated at least."""
        if pair not in self._known:
            self._known[pair] = [self._candidate(pair, router) for router in self._routers(pair)]
        return self._known[pair]

    def _routers(self, pair: Pair) -> Sequence[str | RouterFactory]:
        """The one that is asked for; else the usual one, and session affinity where it keeps prefixes together."""
        question, plans = self.question, self.disaggregated.plans
        if question.router is not None:
            return (question.router,)
        several = pair if self.disaggregated.between.decider is not None else pair[:1]
        is_one_of_many = max(several) > 1 and keeps_prefixes(question, plans[0])
        return (DEFAULT_ROUTER, AFFINITY) if is_one_of_many else (DEFAULT_ROUTER,)

    def _candidate(self, pair: Pair, router: str | RouterFactory) -> Joint:
        asked, sized = replace(self.question, router=router), self.disaggregated.sized(*pair)
        evaluator = evaluator_of_disaggregated(asked, sized, self.how)
        load = asked.load(*sized.plans)
        stays = router == AFFINITY
        return Joint(
            question=asked,
            plans=sized.plans,
            counts=sized.counts,
            router=router,
            evaluator=evaluator,
            guess=estimated_size(sized.plans, sized.counts, evaluator.load, asked.slo),
            estimated=estimated_users_of_pair(sized, load, asked.slo, asked.think_time_s, stays=stays),
        )

    def best(self, pair: Pair, level: Level = Level.CONFIRMED) -> Joint:
        """Behind the router that serves the most users at 95 % confidence, as far as so much evidence tells."""
        return search(self.candidates(pair), level)

    def row(self, pair: Pair, level: Level = Level.CONFIRMED) -> CapacityRow:
        """That as a row of `headcount capacity` has it; its replicas are the engines of both pools."""
        best, sized = self.best(pair, level), self.disaggregated.sized(*pair)
        row = _row(best, sized, best.level)
        coarse = _row(best, sized, Level.COARSE) if best.level is Level.CONFIRMED else None
        return replace(row, safe_point=best.safe_point, coarse=coarse)

    def serves(self, pair: Pair, users: float, level: Level) -> bool:
        """Whether the row has these users at 95 % confidence; an estimate or few replications may tell that."""
        found = self.candidates(pair)
        while any(may_reach(each, users) for each in found):
            best = max(found, key=lambda each: each.at_most)
            if best.level is not Level.ESTIMATED:
                return self.row(pair, level).users_low >= users
            best.level = Level.COARSE
        return False


def _row(joint: Joint, sized: DisaggregatedDeployment, level: Level) -> CapacityRow:
    question, evaluator, found = joint.question, joint.evaluator, joint.found(level)
    if found.mean:
        within = joint.within_errors(level)
        row = row_of(question, sized.decode, evaluator, found, gpus=sized.gpus, within_errors=lambda _: within)
    else:
        reason = no_capacity_reason(question, evaluator)
        row = empty_row(question, sized.gpus, sized.decode.tensor_parallel_size, reason, sized.decode)
    return replace(row, replicas=sum(sized.counts), disaggregated=sized, evidence=level.word)
