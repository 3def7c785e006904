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
MISSES: Final = "estimated to miss the SLO under any load"
PROMISES_NOBODY: Final = "estimated too close to the SLO: less than one user per server at 95 % confidence"


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
    is_doubtful: bool = False  # the estimate is of fewer servers, or of less than one user: simulations decide

    @property
    def promises_nobody(self) -> bool:
        """Whether a server should not even serve one user, as far as the estimate tells."""
        return self.is_doubtful and self.users_per_server <= 1

    @property
    def as_dropped(self) -> Dropped:
        """Left out, for what it is estimated to serve."""
        return _dropped(self.layout, self.estimate, PROMISES_NOBODY)

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
    """About how many servers the users need; dropped where one should not serve even one user within the SLO.

    Where one all but serves one, or only more servers should serve nobody, because they lose prefix hits to one
    another, simulations decide: the estimate is too rough there to refuse a layout.
    """
    load, servers = question.load(layout), 1
    is_alone = shares_nothing(question.capacity_of(layout, 1), layout.plan)
    users, estimate = estimated_users(layout, servers, question, load)
    if not users:
        return _dropped(layout, estimate, MISSES)
    is_doubtful, users = users < 1, max(users, 1.0)
    for _ in range(_ROUNDS):
        needed = max(math.ceil(question.users / users * servers), 1)
        if needed == servers or servers > MOST_ESTIMATED or is_alone:
            break
        found = estimated_users(layout, needed, question, load)
        if found[0] < needed:
            is_doubtful = True
            break
        servers, (users, estimate) = needed, found
    return Screened(
        layout=layout,
        servers=max(math.ceil(question.users / users * servers), 1),
        users_per_server=users / servers,
        estimate=estimate,
        spare=question.spare,
        users=question.users,
        is_doubtful=is_doubtful,
    )


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
