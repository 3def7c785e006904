"""One way to serve on so many GPUs, replicas that are alike behind one router, and how well it is known."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Final, Protocol

from files.documents import ReadJson
from simulator.deployment import Deployment, default_router
from simulator.engines.engines import engine_of
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.fleet.flow_control import read_flow_control
from simulator.fleet.router import RouterFactory, router_name
from simulator.study.bottleneck import what_binds
from simulator.study.capacity import Capacity, CapacitySearch, crossing_under, find_capacity
from simulator.study.capacity_interval import (
    interval_of_users,
    located_within_errors,
    safe_share,
    users_at,
    users_within_errors,
)
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow, Screened, empty_row, no_capacity_reason, row_of
from simulator.study.estimate import Estimate, estimate_users, estimated_users, stationary_load
from simulator.study.points import Evaluator, Point, Watcher
from simulator.study.replication import Replication
from simulator.study.running.simulations import Simulations
from simulator.study.served import COARSE_REQUESTS, safe_point
from simulator.study.slo import SLO
from workloads.populations.population import Population


class Level(IntEnum):
    """How well a candidate is known."""

    ESTIMATED = 0
    COARSE = 1  # from few replications
    CONFIRMED = 2  # as exactly as asked for

    @property
    def word(self) -> str:
        """As rows have it."""
        return self.name.lower()


WITHIN: Final = (1.35, 1.05, 1.0)
"""By level: times what is known of a candidate's users at 95 % confidence that count. Estimates are hardly ever so far
off; few replications show up to 5 % too few on GPUs that were measured (docs/measurements/search.md)."""
MAY_REACH: Final = (2.0, 1.2, 1.0)
"""By level: times that beyond which hardly a candidate lies. One that cannot reach a number of users is given up."""
MOST_TOGETHER: Final = 16  # replicas that are simulated together where copies of one are a candidate
MOST_USERS: Final = 10_000  # of them
AFFINITY: Final = "session-affinity"
FINE: Final = 1_000_000  # users that a load is taken to stand for where shares of it are asked for


@dataclass(kw_only=True)
class RunContext:
    """Shows what is simulated to a watcher; knows where it runs, and where it is kept."""

    watcher: Watcher | None = None  # whoever watches now
    simulations: Simulations = field(default_factory=Simulations)
    estimated: Callable[[int, int], None] = lambda *_: None

    def watch(self, point: Point, unit: str) -> None:
        """Show a load that was simulated."""
        if self.watcher is not None:
            self.watcher(point, unit)


class Known(Protocol):
    """What a search chooses from: its users, as far as they are known."""

    level: Level

    @property
    def plan(self) -> Deployment:
        """The fewer GPUs it takes, the better, of those that serve as many."""

    @property
    def users(self) -> int:
        """Expected."""

    @property
    def users_low(self) -> int:
        """At 95 % confidence."""

    @property
    def at_most(self) -> float:
        """Users at 95 % confidence that it may turn out to serve."""


def may_reach(known: Known, users: float) -> bool:
    """Whether it may turn out to serve so many at 95 % confidence; of few users, a whole one is much."""
    return (known.users_low + (known.level < Level.CONFIRMED)) * MAY_REACH[known.level] >= users


def routers_for(question: CapacityQuestion, plan: Deployment, replicas: int) -> tuple[str | RouterFactory, ...]:
    """The router that is asked for; else the usual one, and session affinity where it keeps prefixes together."""
    if question.router is not None:
        return (question.router,)
    usual = default_router(plan.data_parallel_size, replicas, engine_of(plan.args))
    return (usual, AFFINITY) if replicas > 1 and keeps_prefixes(question, plan) else (usual,)


def keeps_prefixes(question: CapacityQuestion, plan: Deployment) -> bool:
    """Whether a conversation's next turn finds its last one in the cache of the server that computed it alone."""
    load, engine = question.workload, plan.engine
    is_talk = isinstance(load, Population) and load.turns.mean() > 1
    has_caching = not engine.disable_radix_cache if isinstance(engine, SGLangConfig) else engine.enable_prefix_caching
    return is_talk and has_caching and not plan.shares_kv_store


def is_large(replicas: int, users: float) -> bool:
    """Whether copies of one replica stand for so many, where they are a candidate: nothing else is simulated."""
    return replicas > MOST_TOGETHER or users > MOST_USERS


def shares_nothing(question: CapacityQuestion, plan: Deployment) -> bool:
    """Whether replicas are simulated as copies of one: conversations stay, and nothing else is common to them.

    Whole fleets serve a little more: new conversations go where the fewest requests are (docs/measurements/search.md).
    """
    is_kept_apart = question.router == AFFINITY and isinstance(question.workload, Population)
    return is_kept_apart and not plan.shares_kv_store and question.flow_control is None and question.hours_met is None


def evaluator_of(question: CapacityQuestion, plan: Deployment, replicas: int, how: RunContext) -> Evaluator:
    """Simulates loads on so many replicas."""
    copies = replicas if shares_nothing(question, plan) else 1
    simulated = replicas // copies
    is_one_engine = simulated * plan.data_parallel_size == 1
    fleet = plan.fleet(simulated, None if is_one_engine else question.router)
    return Evaluator(
        fleet=replace(fleet, flow_control=read_flow_control(question.flow_control)),
        load=stationary_load(question.load(plan), plan, simulated, question.slo),
        slo=question.slo,
        copies=copies,
        hours_met=question.hours_met,
        watcher=how.watch,
        simulations=how.simulations,
    )


@dataclass(kw_only=True, eq=False)
class Simulated:
    """Replicas that are simulated together, and what is known of them at each level.

    What is found depends on the plan, the replicas, the router, the workload, the SLO and the seed: on nothing else.
    """

    question: CapacityQuestion  # with its router
    plan: Deployment
    replicas: int
    how: RunContext

    @cached_property
    def _evaluator(self) -> Evaluator:
        return evaluator_of(self.question, self.plan, self.replicas, self.how)

    @cached_property
    def estimate(self) -> Estimate:
        return estimate_users(self.plan, self.replicas, self._evaluator.load, self.question.slo)

    @cached_property
    def _search(self) -> CapacitySearch:
        return CapacitySearch(self._evaluator, self.estimate.size, replications=self.question.replications)

    @cached_property
    def estimated(self) -> tuple[int, int]:
        """Users expected, and at 95 % confidence."""
        load, slo = self._evaluator.load, self.question.slo
        users = estimated_users(load, self.estimate, slo)
        return users, int(users * safe_share(self.estimate, self.plan, self.replicas, load=load, slo=slo))

    def row(self, level: Level) -> CapacityRow:
        """What few replications show, or as exactly as asked for."""
        return self._confirmed if level is Level.CONFIRMED else self._coarse_served

    @cached_property
    def coarse(self) -> CapacityRow:
        """Without the error of replications, which more of them make small."""
        found = self._search.located()
        exact = replace(found, low=found.mean, high=found.mean)

        def within(users: int) -> dict[str, object]:
            return located_within_errors([self.plan], [self.replicas], self._evaluator, found, users)

        return replace(self._row_of(exact, within), evidence=Level.COARSE.word)

    @cached_property
    def _coarse_served(self) -> CapacityRow:
        """The coarse row with what its users get; those simulations decide nothing."""
        row = self.coarse
        aside = replace(self._evaluator, known=dict(self._evaluator.known))
        found, sizes = self._search.located(), {"users": row.users, "users_low": row.users_low}
        return replace(row, safe_point=safe_point(aside, found, **sizes, requests=COARSE_REQUESTS))

    @cached_property
    def _found(self) -> Capacity:
        _ = self.coarse  # what is found must not depend on whether that was asked for before
        return self._search.confirmed(self.question.precision)

    @cached_property
    def _found_with(self) -> dict[float, tuple[Replication, ...]]:
        _ = self._confirmed
        return dict(self._evaluator.known)

    def share_under(self, slo: SLO) -> float:
        """Users at 95 % confidence under another SLO over those under its own, once it is confirmed."""
        return self._safe_size_under(slo) / self._own_safe_size if self._own_safe_size else 0.0

    @cached_property
    def _own_safe_size(self) -> float:
        return self._safe_size_under(self.question.slo)

    def _safe_size_under(self, slo: SLO) -> float:
        """The load at 95 % confidence under an SLO; without the error of replications.

        It begins from what the confirmed row was found with, so that no other limit asked before it matters.
        """
        evaluator = replace(self._evaluator, known=dict(self._found_with))
        crossing = crossing_under(evaluator, self._found, slo)
        if crossing is None:
            return 0.0
        found = Capacity(low=crossing.size, mean=crossing.size, high=crossing.size, pair=(crossing.point,))
        within = located_within_errors([self.plan], [self.replicas], evaluator, found, FINE, slo=slo)
        low = interval_of_users({"low": FINE, "mean": FINE, "high": FINE}, within)["users_low"]
        return crossing.size * float(low) / FINE

    @cached_property
    def _confirmed(self) -> CapacityRow:
        plan, evaluator, found = self.plan, self._evaluator, self._found
        row = self._row_of(found, lambda users: users_within_errors([plan], evaluator, found, users))
        row = replace(row, safe_point=safe_point(evaluator, found, users=row.users, users_low=row.users_low))
        return row if self.question.hours_met is None else _beside_long_run(row, evaluator, found)

    def _row_of(self, found: Capacity, within: Callable[[int], ReadJson]) -> CapacityRow:
        question, plan, evaluator, gpus = self.question, self.plan, self._evaluator, self.replicas * self.plan.gpus
        if found.mean:
            return row_of(question, plan, evaluator, found, gpus=gpus, within_errors=within)
        row = empty_row(question, gpus, plan.tensor_parallel_size, no_capacity_reason(question, evaluator), plan)
        return replace(row, binding=what_binds(plan, evaluator.points()[0]))

    def users(self, level: Level) -> tuple[int, int]:
        """Expected, and at 95 % confidence."""
        if level is Level.ESTIMATED:
            return self.estimated
        row = self._confirmed if level is Level.CONFIRMED else self.coarse
        return row.users, row.users_low


@dataclass(kw_only=True, eq=False)
class Candidate:
    """Replicas behind a router, simulated together or copies of one that is; as well known as one search needs it."""

    simulated: Simulated
    copies: int
    router: str | RouterFactory
    level: Level = Level.ESTIMATED

    @property
    def plan(self) -> Deployment:
        return self.simulated.plan

    @property
    def replicas(self) -> int:
        return self.copies * self.simulated.replicas

    @property
    def estimated(self) -> tuple[int, int]:
        """Users expected, and at 95 % confidence, by the estimate."""
        users, low = self.simulated.estimated
        return self.copies * users, self.copies * low

    @property
    def users(self) -> int:
        """Expected, as far as known."""
        return self.copies * self.simulated.users(self.level)[0]

    @property
    def users_low(self) -> int:
        """At 95 % confidence, as far as known."""
        return self.copies * self.simulated.users(self.level)[1]

    @property
    def at_most(self) -> float:
        """Users at 95 % confidence that it may turn out to serve."""
        return self.users_low * WITHIN[self.level]

    def may_serve(self, users: float) -> bool:
        """Whether it may turn out to serve so many at 95 % confidence."""
        return may_reach(self, users)

    def row(self, gpus: int) -> CapacityRow:
        """What is found of it on so many GPUs, of which some may be left over."""
        price = self.simulated.question.gpu.usd_per_hour_of(gpus)
        row = replace(self.simulated.row(self.level).in_copies(self.copies, gpus, price), router=self.router)
        if self.level < Level.CONFIRMED:
            return row
        return replace(row, coarse=self.simulated.coarse.in_copies(self.copies, gpus, price))

    def known_as(self, level: Level) -> "Candidate":
        """The same, found out so much of."""
        self.level = max(self.level, level)
        return self

    def screened(self) -> Screened:
        """What is known of it, as a row shows it."""
        several = self.replicas * self.plan.data_parallel_size > 1
        return Screened(
            tp=self.plan.tensor_parallel_size,
            router=router_name(self.router) if several else None,
            users=self.users,
            users_low=self.users_low,
            evidence=self.level.word,
        )


def _beside_long_run(row: CapacityRow, evaluator: Evaluator, found: Capacity) -> CapacityRow:
    """What it costs that single hours meet the SLO: the long run is judged in the same replications."""
    if found.knee is None:
        return row
    long_run = find_capacity(replace(evaluator, hours_met=None), found.mean, replications=row.replications)
    if long_run.knee is None or long_run.point is None:
        return row
    users = users_at(evaluator.load, replace(long_run.point, size=long_run.mean))
    return replace(row, users_long_run=users, hours_over_long_run=found.knee.over(long_run.knee))
