"""Pools that are not alike behind one router, and how well it is known what they serve together."""

from dataclasses import dataclass, replace
from functools import cached_property

from files.documents import Json
from simulator.deployment import Deployment
from simulator.fleet.router import RouterFactory
from simulator.study.candidate import WITHIN, Level
from simulator.study.capacity import Capacity, CapacitySearch
from simulator.study.capacity_interval import (
    interval_of_users,
    located_within_errors,
    users_by_sampling,
    users_within_errors,
)
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.points import Evaluator, Point
from simulator.study.served import COARSE_REQUESTS, REQUESTS, safe_point


@dataclass(kw_only=True, eq=False)
class Joint:
    """Pools of prefill and decode engines, or of different GPUs; known as well as one search needs it.

    What is found depends on the pools, the router, the workload, the SLO and the seed: on nothing else.
    """

    question: CapacityQuestion
    plans: tuple[Deployment, ...]  # one of each pool
    counts: tuple[int, ...]  # servers of each pool
    router: str | RouterFactory
    evaluator: Evaluator  # its own: what others simulate there would move where this search looks
    guess: float  # the load at which the search begins
    estimated: int  # users at 95 % confidence
    level: Level = Level.ESTIMATED

    @property
    def plan(self) -> Deployment:
        """That of the last pool."""
        return self.plans[-1]

    @property
    def users(self) -> int:
        """Expected, as far as known."""
        return self.estimated if self.level is Level.ESTIMATED else int(self.interval()["users"])

    @property
    def users_low(self) -> int:
        """At 95 % confidence, as far as known."""
        return self.estimated if self.level is Level.ESTIMATED else int(self.interval()["users_low"])

    @property
    def at_most(self) -> float:
        """Users at 95 % confidence that it may turn out to serve."""
        return self.users_low * WITHIN[self.level]

    def found(self, level: Level | None = None) -> Capacity:
        """What few replications show, without their error; or the capacity as exactly as asked for."""
        return self._confirmed if (level or self.level) is Level.CONFIRMED else self._coarse

    def within_errors(self, level: Level | None = None) -> Json:
        """Users where step times, TTFT and the KV pools differ."""
        return self._confirmed_within if (level or self.level) is Level.CONFIRMED else self._coarse_within

    def interval(self) -> Json:
        """`users` with the interval of all that is not known of them, as a row of capacity has it."""
        users = users_by_sampling(self.evaluator.load, self.found())
        return {"users": users["mean"], **interval_of_users(users, self.within_errors())}

    @cached_property
    def safe_point(self) -> Point | None:
        """What the users at 95 % confidence get; those simulations decide nothing."""
        aside = replace(self.evaluator, known=dict(self.evaluator.known))
        requests = REQUESTS if self.level is Level.CONFIRMED else COARSE_REQUESTS
        return safe_point(aside, self.found(), users=self.users, users_low=self.users_low, requests=requests)

    @cached_property
    def _search(self) -> CapacitySearch:
        return CapacitySearch(self.evaluator, self.guess, replications=self.question.replications)

    @cached_property
    def _coarse(self) -> Capacity:
        found = self._search.located()
        return replace(found, low=found.mean, high=found.mean)

    @cached_property
    def _confirmed(self) -> Capacity:
        _ = self._coarse_within  # what is found must not depend on whether that was asked for before
        return self._search.confirmed(self.question.precision)

    @cached_property
    def _coarse_within(self) -> Json:
        found = self._coarse
        return located_within_errors(self.plans, self.counts, self.evaluator, found, self._expected(found))

    @cached_property
    def _confirmed_within(self) -> Json:
        found = self._confirmed
        return users_within_errors(self.plans, self.evaluator, found, self._expected(found))

    def _expected(self, found: Capacity) -> int:
        return users_by_sampling(self.evaluator.load, found)["mean"]
