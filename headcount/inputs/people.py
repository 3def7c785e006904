"""How many users a fleet is planned for: the chain from people, then growth and headroom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from files.errors import HeadcountError
from files.names import readable
from headcount.inputs.fields import Inputs, given
from headcount.inputs.growth import MOST_MONTHS, Growth, GrowthRate, Period, periods_of
from headcount.text.units import clock
from simulator.engines.values import Duration, Extra, Number, Share, Text, TokenCount, WholeNumber
from simulator.study.fleets.traffic import Request
from simulator.study.slo import SLO
from workloads.daily_profile import MEAN_DAY, ONE_ZONE, RAGPULSE, Profile, read_profile, read_zones
from workloads.demand import CHAINS, LINKS, MOST_PEOPLE, PEAK_HOUR_SHARE, Demand, StandIn, check_links, demand

MOST_EXTRA: Final = 100.0  # growth or headroom: a hundred times more
MOST_SPARE: Final = 1000  # servers
_ZONES: Final = f"the time zones as given, the day as in {RAGPULSE}, by hour of the day"
_NOT_ASKED: Final = ("think_time_s", "time_zones")  # links that something else tells


@dataclass(frozen=True, kw_only=True)
class MeanLoad:
    """Load of a mean hour over that of the peak."""

    value: float
    of_mean_day: float | None = None
    """Where `value` is assumed, what another reading of the same trace gives."""
    is_given: bool = False
    """Whether it follows from a daily profile that was given."""


_PEOPLE: Final = WholeNumber(1, MOST_PEOPLE)


@dataclass(frozen=True, kw_only=True)
class PeopleInput(Inputs, heading="People"):
    """Exactly one of `users`, `employees`, `requests_per_s` and `tokens_per_day` says how many people there are."""

    users: int | None = given(_PEOPLE, "Users with an open session at the peak, thinking or waiting.")
    employees: int | None = given(_PEOPLE, "Registered people. Shares of them give the users.")
    active_share: float | None = given(Share(), "Share of employees who use it on a working day.", default_text="34%")
    peak_share: float | None = given(
        Share(), "Share of these with an open session at the peak minute.", default_text="10%"
    )
    requests_per_s: float | None = given(
        Number("requests per second, such as 12.5"), "Requests per second at the peak."
    )
    tokens_per_day: float | None = given(
        TokenCount(most=10**15, is_decimal=True), "Prompt and output tokens per day, such as 300M."
    )
    peak_hour_share: float | None = given(
        Share(), "Share of a day's requests in its busiest hour.", default_text="14.4%"
    )
    daily_profile: str | Profile | None = given(
        Text(),
        "Load over time: day (RAGPulse's mean day), week (RAGPulse's week by hour), or requests by hour, 24 for a day "
        "or 168 for a week.",
    )
    time_zones: str | Mapping[float, float] | None = given(
        Text(), "Share of people by time zone, in hours ahead of UTC, such as +1=60%,-5=40%.", default_text="all in one"
    )
    tokens_per_request: float | None = given(
        TokenCount(), "Mean prompt and output tokens of a request.", default_text="the workload's mean"
    )
    response_time_s: float | None = given(
        Duration(), "Mean time from a request to the end of its answer.", default_text="estimated", flag="response-time"
    )
    growth: float | str | GrowthRate = given(
        Growth(),
        "Expected growth in users: 30% is planned for at once; 30%/quarter is followed over the months.",
        default=0.0,
        default_text="0%",
    )
    months: int | None = given(
        WholeNumber(1, MOST_MONTHS),
        "How long to follow growth per month, quarter or year, or what is reserved, and to add up its cost.",
        default_text="12, if so",
    )
    headroom: float = given(
        Extra(), "Safety margin in users on top of the growth, such as 10%.", default=0.0, default_text="0%"
    )
    spare: int = given(
        WholeNumber(0, 1000),
        "Spare servers. The fleet still serves all users with this many down. With --pools: this many of each pool.",
        default=0,
    )

    @cached_property
    def profile(self) -> Profile | None:
        """The day or week, read. Raises HeadcountError for what is none."""
        given = self.daily_profile
        return read_profile(given) if isinstance(given, str) else given

    @cached_property
    def zones(self) -> Mapping[float, float] | None:
        """Share of people by hours ahead of UTC. Raises HeadcountError for what is none."""
        given = self.time_zones
        return read_zones(given) if isinstance(given, str) else given

    def check(self) -> None:
        """Raise HeadcountError for what is out of range, or does not go together."""
        self.profile, self.zones  # noqa: B018  read, or refused
        growth = self.grows.share if isinstance(self.grows, GrowthRate) else self.grows
        for name, share in (("growth", growth), ("headroom", self.headroom)):
            if not 0 <= share <= MOST_EXTRA:
                raise HeadcountError(f"--{name} is {share:g}; give a share from 0% to {MOST_EXTRA:,.0%}, such as 30%")
        if not 0 <= self.spare <= MOST_SPARE:
            raise HeadcountError(f"--spare is {self.spare}; give a number of servers from 0 to {MOST_SPARE:,}")
        check_links(self._given)

    @property
    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name, None) for name in LINKS if name not in _NOT_ASKED}

    @property
    def factor(self) -> float:
        """Users to plan for at once over those of today."""
        return (1 + self.growth_at_once) * (1 + self.headroom)

    @cached_property
    def grows(self) -> float | GrowthRate:
        """The growth, read. Raises HeadcountError for what is none."""
        return self.growth if isinstance(self.growth, float | GrowthRate) else Growth().read(self.growth)

    @property
    def growth_at_once(self) -> float:
        """The share that is planned for from the first day on."""
        return 0.0 if isinstance(self.grows, GrowthRate) else self.grows

    def periods(self, *, is_followed: bool = False) -> tuple[Period, ...]:
        """What the growth makes of the users over the months; `is_followed` without growth, too. () where not asked.

        Raises HeadcountError for months without anything to follow.
        """
        rate = self.grows if isinstance(self.grows, GrowthRate) else None
        if rate is None and not is_followed:
            if self.months is not None:
                raise HeadcountError(
                    "--months is for --growth per month, quarter or year (30%/quarter), or for --reserved"
                )
            return ()
        return periods_of(rate, 12 if self.months is None else self.months)

    @property
    def mean_over_peak(self) -> MeanLoad:
        """Of an hour: as the chain has it from tokens per day, so that a month has the tokens of its days.

        Without a profile and a peak-hour share, the default share's; beside it, that of RAGPulse's mean day.
        """
        zones = self.zones or ONE_ZONE
        if self.profile is not None:
            return MeanLoad(value=self.profile.mean_over_peak(zones), is_given=True)
        share = PEAK_HOUR_SHARE.value if self.peak_hour_share is None else self.peak_hour_share
        value = min(1 / (24 * share * self._peak[0]), 1.0)
        return MeanLoad(
            value=value, of_mean_day=MEAN_DAY.mean_over_peak(zones) if self.peak_hour_share is None else None
        )

    @property
    def _peak(self) -> tuple[float, float]:
        """The peak of people in several time zones over that of all in one, and its hour in UTC."""
        return (self.profile or MEAN_DAY).peak(self.zones or ONE_ZONE)

    @property
    def peak_text(self) -> str:
        """When the peak is, such as `Tuesday 15:30 UTC`; "" where nothing was said of the day."""
        if self.profile is None and self.zones is None:
            return ""
        hour = self._peak[1]
        day = (self.profile or MEAN_DAY).day_of(hour)
        return " ".join(filter(None, (day, clock(hour), "local time" if self.zones is None else "UTC")))

    def _hours(self, start: str) -> dict[str, StandIn]:
        """The links that the day's profile and the time zones tell."""
        found, profile = {}, self.profile
        if profile is not None and "peak_hour_share" in CHAINS[start]:
            found["peak_hour_share"] = StandIn(profile.busiest_hour_share, "the daily profile", "given")
        if self.zones is not None:
            source = "the daily profile and the time zones" if profile else _ZONES
            found["time_zones"] = StandIn(self._peak[0], source, "given")
        return found

    def chain(
        self, *, think_time: StandIn, tokens: Callable[[float], StandIn], slo: SLO, request: Callable[[], Request]
    ) -> Demand:
        """The links from what is given to users; `request` is asked only where a link needs it.

        `tokens` says where the mean tokens of its requests come from.
        """
        given = self._given
        start = check_links(given)
        stand_ins = self._hours(start)
        check_links(given | {name: each.value for name, each in stand_ins.items()})
        if "response_time_s" in CHAINS[start]:
            stand_ins["think_time_s"] = think_time
            needs = [name for name in ("response_time_s", "tokens_per_request") if name in CHAINS[start]]
            if any(given[name] is None for name in needs):
                stand_ins |= _of_request(request(), slo, tokens)
        found = demand(stand_ins=stand_ins, **given)
        most = self.factor * max((each.factor for each in self.periods(is_followed=True)), default=1.0)
        if found.users * most > MOST_PEOPLE:
            users = readable(found.users * most) if most < MOST_PEOPLE else "more"
            raise HeadcountError(f"growth and headroom make {users} users; plan for at most {MOST_PEOPLE:,}")
        return found


def _of_request(request: Request, slo: SLO, tokens: Callable[[float], StandIn]) -> dict[str, StandIn]:
    """The links that the workload and the GPUs tell."""
    found = {"tokens_per_request": tokens(request.input_tokens + request.output_tokens)}
    if request.response_time_s is not None:
        found["response_time_s"] = StandIn(request.response_time_s, f"estimated at capacity on {request.layout}")
    elif slo.ttft_s is not None and slo.tpot_s is not None:
        ttft_s = slo.ttft_s + slo.ttft_token_s * request.input_tokens
        at_limits_s = ttft_s + slo.tpot_s * max(request.output_tokens - 1, 0)
        found["response_time_s"] = StandIn(at_limits_s, "an answer at the SLO's limits")
    return found
