"""Users of pools that are not alike behind one router."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from files.documents import Json
from files.errors import HeadcountError
from simulator.core import layout
from simulator.deployment import Deployment
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import RouterFactory
from simulator.results import RequestTimes, request_times
from simulator.study.candidate import AFFINITY, RunContext, keeps_prefixes
from simulator.study.capacity import Capacity
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import search
from simulator.study.estimate import stationary_load
from simulator.study.fleets.joint import Joint
from simulator.study.points import Evaluator
from simulator.study.replication import simulate_users, waits_of
from simulator.study.slo import SLO

DEFAULT_ROUTER: Final = "shortest-expected-delay"  # it knows how fast each engine is


@dataclass(frozen=True, kw_only=True)
class PoolAlone:
    """One of the pools, what it serves without the others, and how."""

    question: CapacityQuestion
    row: CapacityRow

    @property
    def plan(self) -> Deployment:
        assert self.row.plan is not None
        return self.row.plan

    @property
    def size(self) -> float:
        """Its capacity in the unit of the load: users, or requests/s of a trace."""
        return self.row.knee.interval().mean if self.row.knee else 0.0

    def check(self) -> None:
        """Raise HeadcountError where nobody is served."""
        if not self.row.users:
            asked = f"{self.question.gpu.name}={self.row.gpus}"
            raise HeadcountError(f"the pool {asked} serves nobody alone: {self.row.reason}; leave it out of --pools")


@dataclass(frozen=True, kw_only=True, eq=False)
class InFleet:
    """What a pool does within the fleet, at the fleet's capacity."""

    share: float  # of the requests
    ttft_misses: float  # shares of its requests
    tpot_misses: float
    prefix_hit_rate: float
    times: RequestTimes


@dataclass(frozen=True, kw_only=True, eq=False)
class Together:
    """Users of all pools behind the router."""

    pools: tuple[PoolAlone, ...]
    in_fleet: tuple[InFleet, ...]  # none where nobody is served
    found: Capacity
    figures: Json  # users, users_low …, as a row of capacity has them
    router: str | RouterFactory


def serve_together(pools: Sequence[PoolAlone], how: RunContext) -> Together:
    """The users of the fleet behind the router that serves the most; all pools have been asked the same.

    Raises ValueError where one serves nobody.
    """
    for pool in pools:
        pool.check()
    best = search([_joint(pools, router, how) for router in _routers(pools)])
    found = best.found()
    return Together(
        pools=tuple(pools),
        in_fleet=_in_fleet(pools, best.evaluator, found.mean) if found.mean else (),
        found=found,
        figures=best.interval(),
        router=best.router,
    )


def _routers(pools: Sequence[PoolAlone]) -> Sequence[str | RouterFactory]:
    """The one that is asked for; else the usual one, and session affinity where it keeps prefixes together."""
    asked = pools[0].question
    if asked.router is not None:
        return (asked.router,)
    keeps = all(keeps_prefixes(pool.question, pool.plan) for pool in pools)
    return (DEFAULT_ROUTER, AFFINITY) if keeps else (DEFAULT_ROUTER,)


def _joint(pools: Sequence[PoolAlone], router: str | RouterFactory, how: RunContext) -> Joint:
    return Joint(
        question=replace(pools[0].question, router=router),
        plans=tuple(pool.plan for pool in pools),
        counts=tuple(pool.row.replicas for pool in pools),
        router=router,
        evaluator=_evaluator(pools, router, how),
        guess=sum(pool.size for pool in pools),
        estimated=sum(pool.row.users_low for pool in pools),
    )


def _evaluator(pools: Sequence[PoolAlone], router: str | RouterFactory, how: RunContext) -> Evaluator:
    """The load is as long as every pool allows, and met as the largest pool answers."""
    asked = pools[0].question
    fleets = [pool.plan.fleet(pool.row.replicas, router) for pool in pools]
    parts = [
        replace(part, weight=pool.size / fleet.num_engines)
        for pool, fleet in zip(pools, fleets, strict=True)
        for part in fleet.pools
    ]
    largest = max(pools, key=lambda pool: pool.size)
    load = asked.load(*(pool.plan for pool in pools))
    return Evaluator(
        fleet=Fleet(pools=tuple(parts), router=fleets[0].router),
        load=stationary_load(load, largest.plan, largest.row.replicas, asked.slo),
        slo=asked.slo,
        watcher=how.watch,
        simulations=how.simulations,
    )


def _in_fleet(pools: Sequence[PoolAlone], evaluator: Evaluator, size: float) -> tuple[InFleet, ...]:
    """Pool by pool, in one run at the capacity, after its warm-up."""
    simulation, result = simulate_users(evaluator.fleet, evaluator.load, evaluator.load.round(size))
    requests = simulation.requests
    after = requests[(requests["status"] != layout.NOT_ARRIVED) & (requests["arrival_s"] >= result.start_s)]
    ends = np.cumsum([part.num_engines for part in evaluator.fleet.pools])
    pool_of = np.searchsorted(ends, after["replica"], side="right")
    return tuple(
        _of_pool(after[pool_of == place], len(after), evaluator.slo, result.end_s) for place in range(len(pools))
    )


def _of_pool(requests: NDArray[np.void], num_all: int, slo: SLO, end_s: float) -> InFleet:
    ttft_missed, tpot_missed, decided = waits_of(requests, end_s).missed(slo)
    prompts = int(requests["prompt"].sum())
    return InFleet(
        share=len(requests) / max(num_all, 1),
        ttft_misses=float(ttft_missed[decided].sum()) / max(int(decided.sum()), 1),
        tpot_misses=float(tpot_missed[decided].sum()) / max(int(decided.sum()), 1),
        prefix_hit_rate=float(np.maximum(requests["cached_tokens"], 0).sum()) / max(prompts, 1),
        times=request_times(requests),
    )
