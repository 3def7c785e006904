"""How many engines compute prompts, and how many compute answers: the cheapest pair that serves the users."""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from simulator.deployment import Deployment
from simulator.disaggregation import DisaggregatedDeployment, disaggregated_deployment
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.study.candidate import AFFINITY, Level
from simulator.study.capacity_row import CapacityRow
from simulator.study.fleets.disaggregation import Pair, PairTable, evaluator_of_disaggregated
from simulator.study.fleets.layouts import Dropped, FleetQuestion, Layout
from simulator.study.fleets.pair_estimate import estimate_pair
from simulator.study.fleets.screening import PROMISES_NOBODY, Screened
from simulator.study.fleets.sizing import (
    COARSE_USERS,
    MOST_BOUGHT,
    MOST_SERVERS,
    MOST_USERS,
    Sized,
    kept,
)
from simulator.study.points import Point
from simulator.study.served import users_point
from workloads.populations.population import Population

CLEAR_COST_RATIO: Final = 0.9  # of the cost: below it a router is taken for its estimate
OFF: Final = 1.5  # by what a pool may serve more than estimated: pairs with still fewer engines are not tried
_ROUNDS: Final = 6


def disaggregated_layouts(question: FleetQuestion, together: list[Layout]) -> tuple[list[Layout], list[Dropped]]:
    """Every pair of tensor-parallel sizes that is asked for, of the layouts that run; and why others do not.

    Raises HeadcountError where disaggregated prefill/decode is refused on every GPU.
    """
    asked = question.disaggregated
    if asked is None:
        return [], []
    found: list[Layout] = []
    dropped: list[Dropped] = []
    refused: list[ValueError] = []
    for prefill in (each for each in together if asked.has(PREFILL, each.plan.tensor_parallel_size)):
        for decode in (each for each in together if asked.has(DECODE, each.plan.tensor_parallel_size)):
            if decode.offer is not prefill.offer or _others(decode.plan) != _others(prefill.plan):
                continue
            try:
                disaggregated = disaggregated_deployment(prefill.plan, decode.plan, asked.between)
            except ValueError as error:
                refused.append(error)
                dropped.append(_dropped(decode, prefill.plan, str(error)))
            else:
                found.append(replace(decode, plan=disaggregated.decode, disaggregated=disaggregated))
    if refused and not found:
        raise refused[0]
    return found, dropped


def _others(plan: Deployment) -> object:
    return replace(plan.given, tensor_parallel_size=1)


def _dropped(layout: Layout, prefill: Deployment, reason: str, attainment: float = -1.0) -> Dropped:
    args = layout.plan.given
    return Dropped(
        gpu=layout.offer.gpu.name,
        prefill_tp=prefill.tensor_parallel_size,
        tp=layout.plan.tensor_parallel_size,
        quantization=args.quantization,
        kv_cache_dtype=args.kv_cache_dtype,
        reason=reason,
        attainment=attainment,
    )


def screened_disaggregated(layout: Layout, question: FleetQuestion) -> Screened | Dropped:
    """About how many engines of either pool the users need: prompts are one load, answers another.

    Where no router is asked for, conversations stay on their engines if that should cost clearly less: they find their
    own prefix in its cache. A trace says nothing of them.
    """
    found = _screened(layout, question)
    if question.router is not None or not isinstance(question.workload, Population):
        return found
    beside = _screened(replace(layout, router=AFFINITY), question)
    return beside if _usd_per_hour(beside) < CLEAR_COST_RATIO * _usd_per_hour(found) else found


def _usd_per_hour(found: Screened | Dropped) -> float:
    return math.inf if isinstance(found, Dropped) else found.usd_per_hour


def _screened(layout: Layout, question: FleetQuestion) -> Screened | Dropped:
    engines, load, disaggregated = (1, 1), question.load(layout), _disaggregated(layout)
    for _ in range(_ROUNDS):
        found = estimate_pair(disaggregated.sized(*engines), load, question.slo, stays=layout.router == AFFINITY)
        for pool in found.pools:
            if pool.refusal is not None:
                return _dropped(layout, disaggregated.prefill, pool.refusal, pool.estimate.attainment)
        rate = question.users / (question.think_time_s + found.served_s)
        needed = rate / found.prefill.rate, rate / found.decode.rate
        if sum(needed) > question.users:
            return _dropped(layout, disaggregated.prefill, PROMISES_NOBODY, found.decode.estimate.attainment)
        last, engines = engines, (math.ceil(needed[0]), math.ceil(needed[1]))
        if engines == last:
            break
    return Screened(
        layout=layout,
        servers=sum(engines),
        needed=needed,
        users_per_server=question.users / sum(engines),
        estimate=found.decode.estimate,
        users=question.users,
        spare=question.spare,
    )


def _disaggregated(layout: Layout) -> DisaggregatedDeployment:
    assert layout.disaggregated is not None, "a layout of two pools"
    return layout.disaggregated


@dataclass
class RatioSizing:
    """Simulates pairs of pools, each once. A pair with fewer engines of both than one that fails is not tried."""

    question: FleetQuestion
    screened: Screened
    level: Level
    table: PairTable
    rows: dict[Pair, CapacityRow] = field(default_factory=dict)
    failed: list[Pair] = field(default_factory=list)
    users: float = 0.0  # that the simulated pairs have to serve: all, or a part

    def run(self, first: Pair) -> Sized:
        """The cheapest pair whose number to sign reaches the users; `first` is where the search begins."""
        share = min(1.0, self._most_users / self.question.users, MOST_SERVERS / sum(first))
        self.users = share * self.question.users
        best = self._serving((math.ceil(first[0] * share), math.ceil(first[1] * share)))
        if best is None:
            return self._sized((0, 0), max(self.rows))
        while (following := self._next(best)) is not None:
            if self._serves(following):
                best = following
            else:
                self.failed.append(following)
        return self._bought(best)

    @property
    def _disaggregated(self) -> DisaggregatedDeployment:
        return _disaggregated(self.screened.layout)

    def _gpus(self, pair: Pair) -> int:
        return self._disaggregated.sized(*pair).gpus

    @property
    def _most_users(self) -> int:
        """Pairs that are compared with others are smaller ones of the same ratio."""
        return MOST_USERS if self.level is Level.CONFIRMED else COARSE_USERS

    def _row(self, pair: Pair) -> CapacityRow:
        if pair not in self.rows:
            self.rows[pair] = self.table.row(pair, self.level)
        return self.rows[pair]

    def _serving(self, pair: Pair) -> Pair | None:
        """The first pair that serves, with more of both until one does; None where a pair serves nobody."""
        while (row := self._row(pair)).users_low < self.users:
            if row.users_low < sum(pair):
                return None
            factor = self.users / row.users_low
            following = math.ceil(pair[0] * factor), math.ceil(pair[1] * factor)
            if sum(following) > MOST_SERVERS:
                self.users = row.users_low  # a smaller part of all
                break
            self.failed.append(pair)
            pair = following
        return pair

    def _serves(self, pair: Pair) -> bool:
        return self.table.serves(pair, self.users, self.level) and self._row(pair).users_low >= self.users

    def _next(self, best: Pair) -> Pair | None:
        """Of the pairs that may serve and cost less, the one that should serve most: none has room for an engine."""
        factor = self.users / self.rows[best].users_low
        fewer = math.ceil(best[0] * factor - 1e-9), math.ceil(best[1] * factor - 1e-9)
        most, pairs = self._gpus(best) - 1, []
        if self._gpus(fewer) <= most and not self._is_ruled_out(fewer):
            return fewer
        needed, fewest = self._needed, self._fewest
        for prefill in range(fewest[0], most + 1):
            decode = (most - self._gpus((prefill, 0))) // self._gpus((0, 1))
            if decode >= fewest[1] and not self._is_ruled_out((prefill, decode)):
                pairs.append((prefill, decode))
        return max(pairs, key=lambda pair: min(pair[0] / needed[0], pair[1] / needed[1]), default=None)

    @property
    def _needed(self) -> tuple[float, float]:
        """Of the estimate, for the users that are simulated."""
        share = self.users / self.question.users
        return self.screened.needed[0] * share, self.screened.needed[1] * share

    @property
    def _fewest(self) -> Pair:
        """Pairs with fewer engines of either pool are not tried."""
        prefill, decode = (max(math.floor(each / OFF), 1) for each in self._needed)
        return 1 if self.screened.layout.has_decider else prefill, decode

    def _is_ruled_out(self, pair: Pair) -> bool:
        return any(pair[0] <= failed[0] and pair[1] <= failed[1] for failed in self.failed)

    def _bought(self, best: Pair) -> Sized:
        """As many of each as all users take: each prefill engine finds less in its cache the more there are."""
        row, pair, each = self.rows[best], best, 1.0
        while self.users < self.question.users:
            factor = self.question.users / row.users_low / each
            larger = math.ceil(best[0] * factor - 1e-9), math.ceil(best[1] * factor - 1e-9)
            if larger == pair:
                pair = larger
                break
            pair = larger
            each = kept(partial(self._prefill_rate, stays=row.router == AFFINITY), best[0], pair[0])
            if not each or sum(pair) > MOST_BOUGHT:
                reason = "spread over more prefill engines, conversations lose too many prefix hits"
                self.rows[best] = replace(row, reason=reason)
                return self._sized((0, 0), best)
        return self._sized(pair, best, each)

    def _prefill_rate(self, engines: int, *, stays: bool) -> float:
        """Requests/s that a prefill engine serves among so many, by the estimate."""
        load = self.question.load(self.screened.layout)
        return estimate_pair(self._disaggregated.sized(engines, 1), load, self.question.slo, stays=stays).prefill.rate

    def _sized(self, bought: Pair, simulated: Pair, each: float = 1.0) -> Sized:
        row = self.rows[simulated]
        found = Sized(
            screened=self.screened,
            servers=sum(bought),
            prefill_servers=bought[0],
            row=row,
            served=None,
            each=each,
            is_confirmed=row.evidence == Level.CONFIRMED.word,
        )
        return replace(found, served=self._served(found)) if found.servers else found

    def _served(self, found: Sized) -> Point:
        """The simulated pair under its part of the users to serve."""
        row = found.row
        assert row.point is not None and row.disaggregated is not None, "pools with users were simulated"
        asked = replace(self.table.question, router=row.router)
        evaluator = evaluator_of_disaggregated(asked, row.disaggregated, self.table.how)
        share = self.question.users / (found.scale * found.each) / row.users
        size, replications = row.point.size * share, self.question.replications
        return users_point(evaluator, size, is_confirmed=found.is_confirmed, replications=replications)
