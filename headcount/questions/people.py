"""How many users a fleet is planned for: the chain from people, then growth and headroom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from boundary.names import readable
from simulator.study.fleets.traffic import Request
from simulator.study.slo import SLO
from workloads.daily_profile import ONE_ZONE, WORKING_DAY, Profile
from workloads.demand import CHAINS, LINKS, MOST_PEOPLE, Demand, check_links, demand

MOST_EXTRA: Final = 100.0  # growth or headroom: a hundred times more
MOST_SPARE: Final = 1000  # servers
_NOT_ASKED: Final = ("think_time_s", "time_zones")  # links that something else tells


@dataclass(frozen=True, kw_only=True)
class People:
    """What is known of the people; None is not given. Raises ValueError for what is out of range."""

    users: float | None = None
    employees: float | None = None
    requests_per_s: float | None = None
    tokens_per_day: float | None = None
    active_share: float | None = None
    peak_share: float | None = None
    peak_hour_share: float | None = None
    tokens_per_request: float | None = None
    response_time_s: float | None = None
    daily_profile: Profile | None = None
    time_zones: Mapping[float, float] | None = None  # share of people by hours ahead of UTC
    growth: float = 0.0
    headroom: float = 0.0
    spare: int = 0

    def __post_init__(self) -> None:
        for name in ("growth", "headroom"):
            if not 0 <= getattr(self, name) <= MOST_EXTRA:
                raise ValueError(
                    f"--{name} is {getattr(self, name):g}; give a share from 0% to {MOST_EXTRA:,.0%}, such as 30%"
                )
        if not 0 <= self.spare <= MOST_SPARE:
            raise ValueError(f"--spare is {self.spare}; give a number of servers from 0 to {MOST_SPARE:,}")
        check_links(self._given)

    @property
    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name, None) for name in LINKS if name not in _NOT_ASKED}

    @property
    def factor(self) -> float:
        """Users to plan for over those of today."""
        return (1 + self.growth) * (1 + self.headroom)

    @property
    def mean_over_peak(self) -> float | None:
        """Load of a mean hour over that of the peak; None where nothing was said of either."""
        if self.daily_profile is None and self.time_zones is None:
            return None
        return (self.daily_profile or WORKING_DAY).mean_over_peak(self.time_zones or ONE_ZONE)

    def _hours(self, start: str) -> dict[str, float]:
        """The links that the day's profile and the time zones tell."""
        chain, found = CHAINS[start], {}
        if self.daily_profile is not None and self.peak_hour_share is None and "peak_hour_share" in chain:
            found["peak_hour_share"] = self.daily_profile.busiest_hour_share
        if self.time_zones is not None:
            found["time_zones"] = (self.daily_profile or WORKING_DAY).peak(self.time_zones)[0]
        return found

    def chain(
        self, *, think_time_s: float, asked_think_time_s: float | None, slo: SLO, request: Callable[[], Request]
    ) -> Demand:
        """The links from what is given to users; `request` is asked only where a link needs it."""
        given = self._given
        start = check_links(given)
        given |= self._hours(start)
        assumed: dict[str, tuple[float, str]] = {}
        if "response_time_s" in CHAINS[start]:
            given["think_time_s"] = asked_think_time_s
            assumed["think_time_s"] = (think_time_s, "the workload")
            needs = [name for name in ("response_time_s", "tokens_per_request") if name in CHAINS[start]]
            if any(given[name] is None for name in needs):
                assumed |= _of_request(request(), slo)
        found = demand(assumed=assumed, **given)
        if found.users * self.factor > MOST_PEOPLE:
            users = readable(found.users * self.factor)
            raise ValueError(f"growth and headroom make {users} users; plan for at most {MOST_PEOPLE:,}")
        return found


def _of_request(request: Request, slo: SLO) -> dict[str, tuple[float, str]]:
    """The links that the workload and the GPUs tell."""
    tokens = request.input_tokens + request.output_tokens
    found = {"tokens_per_request": (tokens, "the workload's means, drawn")}
    if request.response_time_s is not None:
        found["response_time_s"] = (request.response_time_s, f"estimated at capacity on {request.layout}")
    elif slo.ttft_s is not None and slo.tpot_s is not None:
        at_limits_s = slo.ttft_s + slo.tpot_s * max(request.output_tokens - 1, 0)
        found["response_time_s"] = (at_limits_s, "an answer at the SLO's limits")
    return found
