"""About how large a load a deployment serves within its SLO, from one or two replications of a few loads."""

import math
from dataclasses import dataclass

from files.errors import HeadcountError
from simulator.study.loads import Load
from simulator.study.points import Evaluator

SCREENING_REPLICATIONS = 2  # at most; one suffices where it has SCREENED_REQUESTS
SCREENED_REQUESTS = 8_000
SCREENED_WITHIN = 1.15  # loads on both sides of the target that end a screening lie this close to each other
MAX_MISS_SHARE = 0.5  # share of requests that miss
SLOPE = 6.0  # of the logarithm of misses over that of the load, before anything is known of it
MAX_STEP = 3.0  # from one load tried to the next: one far beyond capacity costs much, and tells nothing
CLEAR_MISS_RATIO = 1.5  # times more or fewer misses than the target: smaller ratios are mostly chance
WORST_HOUR_MISS_RATIO = 2.0  # misses of an hour that 95 % stay below over their mean, before anything is known of them
MAX_SIZE = 2.0**22


def screen_capacity(evaluator: Evaluator, guess: float) -> float:
    """The capacity to within some 15 %, from few replications; 0 if not even the smallest load is served."""
    return _Screening(evaluator).run(guess)


@dataclass(frozen=True)
class _Screening:
    """Brackets the target by secants through the logarithms of loads and misses, until one load is close to it.

    Known points cost nothing.
    """

    evaluator: Evaluator

    @property
    def target(self) -> float:
        target = 1 - self.evaluator.slo.attainment
        return target if self.evaluator.hours_met is None else target / WORST_HOUR_MISS_RATIO

    def misses(self, size: float) -> float:
        """Of one replication where most requests miss, or it has many and no queue that may grow."""
        first = self.evaluator.point(size, 1)
        is_enough = first.mean("num_requests") >= SCREENED_REQUESTS and not first.queue_may_grow
        if is_enough or first.shown().share > MAX_MISS_SHARE:
            return first.shown().share
        return self.evaluator.point(size, SCREENING_REPLICATIONS).shown().share

    def run(self, guess: float) -> float:
        """Where the secant between two close loads around the target meets it, or beside one that all but does."""
        load = self.evaluator.load
        shares = {point.size: self.misses(point.size) for point in self.evaluator.points()}
        if not shares:
            first = max(load.round(guess), load.smallest)
            shares = {first: self.misses(first)}
        while True:
            served, missed = bracket(shares, self.target)
            if missed <= load.smallest:
                return 0.0
            beside = served if missed == math.inf else missed
            if (not served or missed == math.inf) and 1 / CLEAR_MISS_RATIO <= shares[
                beside
            ] / self.target <= CLEAR_MISS_RATIO:
                return max(beside * math.pow(self.target / shares[beside], 1 / SLOPE), load.smallest)
            following = self._next(shares, served, missed)
            if following is None:
                return max(_secant(shares, served, missed, self.target), load.smallest)
            if following > MAX_SIZE:
                raise limits_nothing(load)
            shares[following] = self.misses(following)

    def _next(self, shares: dict[float, float], served: float, missed: float) -> float | None:
        load = self.evaluator.load
        if missed == math.inf:
            step = (self.target / shares[served]) ** (1 / SLOPE) if shares[served] > 0 else MAX_STEP
            return load.round(served * min(max(step, 1.05), MAX_STEP)) + (load.round(served * 1.05) == served)
        if served == 0.0:
            step = (self.target / shares[missed]) ** (1 / SLOPE) / 1.05
            step = step if shares[missed] < 0.9 else 1 / MAX_STEP
            return max(load.round(missed * max(step, 1 / MAX_STEP)), load.smallest)
        if missed / served <= SCREENED_WITHIN:
            return None
        aim = _secant(shares, served, missed, self.target)
        inside = min(max(aim, served * SCREENED_WITHIN**0.5), missed / SCREENED_WITHIN**0.5)
        following = load.round(inside)
        if following <= served:
            following = load.round(served + 1) if load.unit == "users" else inside
        return following if served < following < missed else None


def bracket(shares: dict[float, float], target: float, clearly: float = 1.0) -> tuple[float, float]:
    """The largest load that serves below the smallest that misses the target, `clearly` times fewer or more."""
    missed = min((size for size, share in shares.items() if share > target * clearly), default=math.inf)
    served = (size for size, share in shares.items() if share <= target / clearly and size < missed)
    return max(served, default=0.0), missed


def _secant(shares: dict[float, float], served: float, missed: float, target: float) -> float:
    """Where the line between two loads, in logarithms, meets the target."""
    few, many = (math.log(max(shares[size], target * 1e-2)) for size in (served, missed))
    share = (math.log(target) - few) / (many - few) if many > few else 0.5
    return math.exp(math.log(served) + math.log(missed / served) * min(max(share, 0.0), 1.0))


class LimitsNothingError(HeadcountError):
    """Any load that is searched meets the SLO."""


def limits_nothing(load: Load) -> LimitsNothingError:
    return LimitsNothingError(
        f"more than {MAX_SIZE:,.0f} {load.unit} meet the SLO: it limits nothing here; tighten --ttft or --tpot"
    )
