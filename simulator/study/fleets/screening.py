"""How many servers of each layout the users should need, by the estimate."""

import math
from dataclasses import dataclass
from typing import Final

from simulator.study.candidate import shares_nothing
from simulator.study.capacity_interval import safe_share
from simulator.study.estimate import Estimate, estimate_users
from simulator.study.fleets.layouts import Dropped, FleetQuestion, Layout
from simulator.study.loads import Load

MOST_ESTIMATED = 64  # servers: more of them serve as many each
_ROUNDS = 6
PROMISES_NOBODY: Final = "estimated too close to the SLO: less than one user per server at 95 % confidence"
"""A fleet of more servers than users is no answer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Screened:
    """A layout with the servers it should need, without spare ones."""

    layout: Layout
    servers: int
    users_per_server: float  # estimated to sign
    estimate: Estimate
    users: float  # to serve
    spare: int
    needed: tuple[float, float] = (0.0, 0.0)  # engines for prompts and for answers, where they are apart

    @property
    def prefill_servers(self) -> int:
        return math.ceil(self.needed[0])

    @property
    def bought(self) -> tuple[int, int]:
        """Servers, spare ones included, and of them those that compute prompts alone."""
        return self.layout.bought(self.servers, self.prefill_servers, self.spare)

    @property
    def usd_per_hour(self) -> float:
        """Spare servers included."""
        return self.layout.usd_per_hour(*self.bought)

    def usd_per_hour_if(self, factor: float) -> float:
        """The same, if each server serves so many times what is estimated."""
        if self.layout.disaggregated is not None:
            prefill, decode = (math.ceil(each / factor) for each in self.needed)
            prefill = 1 if self.layout.has_decider else prefill  # the estimate has it compute every prompt
            return self.layout.usd_per_hour(*self.layout.bought(prefill + decode, prefill, self.spare))
        servers = math.ceil(self.users / (self.users_per_server * factor))
        return self.layout.usd_per_hour(max(servers, 1) + self.spare)


def estimated_users(layout: Layout, servers: int, question: FleetQuestion, load: Load) -> tuple[float, Estimate]:
    """Users to sign for: the estimate, lowered by what times may err; 0 if even the smallest load misses the SLO."""
    is_alone = shares_nothing(question.capacity_of(layout, 1), layout.plan)
    counted = 1 if is_alone else min(servers, MOST_ESTIMATED)
    found = estimate_users(layout.plan, counted, load, question.slo)
    if found.attainment < question.slo.attainment:
        return 0.0, found
    users = found.size
    if load.unit != "users":
        users *= question.think_time_s + found.in_flight / found.requests_per_s
    share = safe_share(found, layout.plan, counted, load=load, slo=question.slo)
    return users * share * servers / counted, found


def screened(layout: Layout, question: FleetQuestion) -> Screened | Dropped:
    """About how many servers the users need; dropped where not even one user should be served within the SLO."""
    load, servers = question.load(layout), 1
    is_alone = shares_nothing(question.capacity_of(layout, 1), layout.plan)
    for _ in range(_ROUNDS):
        users, estimate = estimated_users(layout, servers, question, load)
        if not users:
            return _served_nobody(layout, estimate, servers)
        if users < servers:
            return _dropped(layout, estimate, PROMISES_NOBODY)
        needed = max(math.ceil(question.users / users * servers), 1)
        if needed == servers or servers > MOST_ESTIMATED or is_alone:
            break
        servers = needed
    return Screened(
        layout=layout,
        servers=max(math.ceil(question.users / users * servers), 1),
        users_per_server=users / servers,
        estimate=estimate,
        spare=question.spare,
        users=question.users,
    )


def _served_nobody(layout: Layout, estimate: Estimate, servers: int) -> Dropped:
    among = f" spread over {servers:,} servers" if servers > 1 else ""
    return _dropped(layout, estimate, f"estimated to miss the SLO under any load{among}")


def _dropped(layout: Layout, estimate: Estimate, why: str) -> Dropped:
    args = layout.plan.given
    return Dropped(
        gpu=layout.offer.gpu.name,
        tp=layout.plan.tensor_parallel_size,
        quantization=args.quantization,
        kv_cache_dtype=args.kv_cache_dtype,
        attainment=estimate.attainment,
        reason=(
            f"{why} ({estimate.binding}): TTFT {estimate.ttft_s:.3g} s, TPOT {estimate.tpot_s * 1e3:.3g} ms at the "
            "target's percentile"
        ),
    )
