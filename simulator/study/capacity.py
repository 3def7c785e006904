"""The largest load a deployment serves within its SLO."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.study.capacity_screening import (
    CLEAR_MISS_RATIO,
    MAX_SIZE,
    SCREENING_REPLICATIONS,
    bracket,
    limits_nothing,
    screen_capacity,
)
from simulator.study.points import Evaluator, Point
from simulator.study.slo import SLO
from simulator.study.slo_crossing import (
    FEW,
    LEAST_MISSES,
    PAIRED,
    Located,
    SLOCrossing,
    added,
    comparable_misses,
    find_knee,
)

SPACING = 1.05  # between the two loads that are replicated
STEEPEST_SLOPE = 40.0  # a slope of misses over the load, in logarithms, as in a model without chance
FINEST = 1.01  # between two loads with a leap
FIRST_REQUESTS = 130_000  # of each load, before its interval is looked at
FEWEST, FIRST_MOST = 6, 48  # replications of a load by then
MAX_REPLICATIONS = 300
PRECISION = 0.03  # half of the 95 % interval, as a share of the capacity
LOCATING = (24_000, 80_000)  # requests of loads that may turn out to lie beside the capacity
MAX_MOVE = 1.25  # per step: with few replications the line may be nearly flat
UNDER_REQUESTS, UNDER_REPLICATIONS = 80_000, (8, 24)  # of a load that is judged by another SLO: the fewest, the most
BESIDE_REQUESTS = 50_000  # of a variant, paired with what many replications show
NEIGHBOUR_SPACING, MAX_NEIGHBOURS = 1.05, 3  # one load this close gives its capacity; this many are tried


@dataclass(frozen=True, kw_only=True, eq=False)
class Capacity:
    """The load whose expected attainment meets the target, with its 95 % interval; 0 if not even the smallest does."""

    low: float
    mean: float
    high: float
    knee: SLOCrossing | None = None
    pair: tuple[Point, ...] = ()
    """The two loads around it that were replicated."""

    @property
    def point(self) -> Point | None:
        """The loads around the capacity as one: what they show, averaged, is what the capacity shows."""
        if not self.pair:
            return None
        return Point(size=self.mean, replications=tuple(each for point in self.pair for each in point.replications))

    @property
    def better_known(self) -> Point | None:
        """Of the two loads, the one that was replicated more."""
        return max(self.pair, key=lambda point: len(point.replications), default=None)

    @property
    def half_width(self) -> float:
        return self.knee.half_width if self.knee else 0.0


NOBODY = Capacity(low=0.0, mean=0.0, high=0.0)


class CapacitySearch:
    """Two loads around the capacity: located with few replications, then replicated as often as the interval takes.

    What is found depends on the evaluator and the first guess alone: confirming goes through locating.
    """

    def __init__(self, evaluator: Evaluator, guess: float, *, replications: int | None = None) -> None:
        """`replications`: how often the loads are replicated, however wide the interval is then."""
        self.evaluator, self._guess, self._replications = evaluator, guess, replications
        self._around: _Around | None = None
        self._located: Capacity | None = None

    def located(self) -> Capacity:
        """The capacity to within a few per cent."""
        if self._located is None:
            self._located = self._locate()
        return self._located

    def _locate(self) -> Capacity:
        centre = screen_capacity(self.evaluator, self._guess)
        if not centre:
            return NOBODY
        self._around = _Around(self.evaluator, centre)
        count = self._replications or _first_replications(self.evaluator)
        for requests in LOCATING:
            found = self._found(min(_replications_with(requests, self.evaluator), count))
            if not found.mean:
                return NOBODY
        return found

    def confirmed(self, precision: float = PRECISION, max_replications: int = MAX_REPLICATIONS) -> Capacity:
        """The capacity with an interval that is narrow enough, or as narrow as the most replications make it."""
        if not self.located().mean:
            return NOBODY
        are_users = self.evaluator.load.unit == "users"
        count = self._replications or min(_first_replications(self.evaluator), max_replications)
        while (found := self._found(count)).mean:
            asked = enough(precision, found, are_users=are_users)
            if found.half_width <= asked or count in (self._replications, max_replications):
                return found
            growth = min(max((found.half_width / asked) ** 2, 1.25), 2.0)
            count = min(math.ceil(count * growth), max_replications)
        return NOBODY

    def _found(self, count: int) -> Capacity:
        around = self._around
        if around is None or (knee := around.knee(count)) is None:
            return NOBODY
        return _rounded(self.evaluator, knee, around.points())


def enough(precision: float, found: Capacity, *, are_users: bool) -> float:
    """The precision that is asked for, or one user where that is more."""
    return max(precision, 1 / found.mean) if found.mean and are_users else precision


def find_capacity(
    evaluator: Evaluator,
    guess: float,
    *,
    precision: float = PRECISION,
    replications: int | None = None,
    max_replications: int = MAX_REPLICATIONS,
) -> Capacity:
    """Two loads around the capacity, replicated until the interval is narrow enough or the budget ends."""
    search = CapacitySearch(evaluator, guess, replications=replications)
    return search.confirmed(precision, max_replications)


def _replications_with(requests: float, evaluator: Evaluator) -> int:
    most = max(point.mean("num_requests") for point in evaluator.points())
    return max(math.ceil(requests / max(most, 1)), 2)


def _first_replications(evaluator: Evaluator) -> int:
    """Few replications of a small fleet may all lack the rare bursts that the long run has."""
    return min(max(_replications_with(FIRST_REQUESTS, evaluator), FEWEST), FIRST_MOST)


@dataclass(frozen=True, kw_only=True, eq=False)
class Crossing:
    """Where another SLO is met by simulations of the same deployment, with the load next to it."""

    knee: SLOCrossing
    point: Point

    @property
    def size(self) -> float:
        return math.exp(self.knee.log_size)

    def excess(self, count: int) -> float | None:
        """By how much the first replications' misses at this load exceed those of the long run, as a logarithm.

        None where they have none.
        """
        knee, share = self.knee, self.point.shown().first(count).share
        expected = knee.slope * (math.log(self.point.size) - knee.log_size)  # above the target
        return math.log(share / knee.target_misses) - expected if share else None


def crossing_under(evaluator: Evaluator, found: Capacity, slo: SLO) -> Crossing | None:
    """The capacity under another SLO; None where nobody is served.

    What was simulated for `found` is judged anew, and what is missing beside it is simulated: random numbers are
    common, so that few replications suffice.
    """
    known = found.better_known
    if known is None or found.knee is None:
        return None
    if slo == evaluator.slo:
        return Crossing(knee=found.knee, point=known)
    judged = evaluator.under(slo)
    fewest, most = UNDER_REPLICATIONS
    count = min(max(_replications_with(UNDER_REQUESTS, evaluator), fewest), most, len(known.replications))
    near = [point for point in judged.points() if FEW * len(point.replications) >= count]
    centre = _bracketed_knee(near, judged).located.size
    if not near[0].size / SPACING <= centre <= near[-1].size * SPACING:
        centre = screen_capacity(judged, found.mean)
        if not centre:
            return None
    around = _Around(judged, centre, {point.size: len(point.replications) for point in near})
    knee = around.knee(count)
    if knee is None:
        return None
    return Crossing(knee=knee, point=max(around.points(), key=lambda point: len(point.replications)))


def size_near(evaluator: Evaluator, slo: SLO) -> Located:
    """About where another SLO is met, from what was simulated; where that lies elsewhere, from a few loads more.

    Their random numbers are common, so that few replications show how misses go on from the loads that are known well.
    """
    judged, load = evaluator.under(slo), evaluator.load
    for _ in range(MAX_NEIGHBOURS + 1):
        points = judged.points()
        found = _bracketed_knee(points, judged).located
        most = max(len(point.replications) for point in points)
        told = [point.size for point in points if PAIRED * len(point.replications) >= most]
        if told[0] / SPACING <= found.size <= told[-1] * SPACING:
            return found
        size = load.round(min(max(found.size, told[0] / MAX_MOVE, load.smallest), told[-1] * MAX_MOVE))
        judged.point(size, math.ceil(most / FEW))
        if size in told:
            break
    return Located(size=screen_capacity(judged, size))


def capacity_beside(evaluator: Evaluator, partner: Crossing, scale: float) -> Located:
    """The capacity of a variant that serves about `scale` times what its `partner` does, from few replications.

    Misses of both grow alike with the load, and the same random numbers give both as many more, or fewer, than the
    long run has. Where misses leap, or the two turn out to lie far from each other, it is searched alone.
    """
    known = partner.point.replications
    count = min(max(math.ceil(BESIDE_REQUESTS / max(known[0].num_requests, 1)), 2), len(known))
    found = None if partner.knee.slope > STEEPEST_SLOPE else _paired(evaluator, partner, scale, count)
    if found is None:
        centre = screen_capacity(evaluator, partner.size * scale)
        knee = _Around(evaluator, centre).knee(max(count, SCREENING_REPLICATIONS)) if centre else None
        found = knee.located if knee else Located(size=0.0)
    return found if found.size >= evaluator.load.smallest else Located(size=0.0)


def _paired(evaluator: Evaluator, partner: Crossing, scale: float, count: int) -> Located | None:
    """From one load next to the variant's capacity, on a line as steep as the partner's; None where none is found."""
    knee, load, excess = partner.knee, evaluator.load, partner.excess(count)
    size = load.round(partner.point.size * scale)
    for _ in range(MAX_NEIGHBOURS):
        if size < load.smallest:
            return None
        shown = evaluator.point(size, count).shown().first(count)
        if not shown.share or excess is None:
            return None
        away = (excess - math.log(shown.share / knee.target_misses)) / knee.slope
        if abs(away) <= math.log(NEIGHBOUR_SPACING):
            apart = partner.point.shown().first(count).log_share_errors - shown.log_share_errors
            errors = added(knee.located.errors, apart / knee.slope)
            return Located(size=size * math.exp(away), errors=errors, fewest=count)
        size = load.round(size * math.exp(min(max(away, -math.log(MAX_MOVE)), math.log(MAX_MOVE))))
    return None


class _Around:
    """Two loads around the capacity, moved until it lies between them; every load replicated so far counts."""

    def __init__(self, evaluator: Evaluator, centre: float, replicated: Mapping[float, int] | None = None) -> None:
        self.evaluator = evaluator
        self.replicated: dict[float, int] = dict(replicated or {})
        self._place(centre)

    def _place(self, centre: float) -> None:
        """The nearest loads that were replicated, or just simulated, nearer still; or new ones."""
        load = self.evaluator.load
        reach = {point.size: SPACING**0.5 for point in self.evaluator.points()}
        reach |= dict.fromkeys(self.replicated, SPACING**1.5)
        below = [size for size in reach if centre / reach[size] <= size <= centre]
        self.low = max(below) if below else max(load.round(centre / math.sqrt(SPACING)), load.smallest)
        above = [size for size in reach if self.low < size and centre < size <= centre * reach[size]]
        high = load.round(max(self.low * math.sqrt(SPACING), centre * math.sqrt(SPACING)))
        self.high = min(above) if above else max(high, load.round(self.low + 1) if high == self.low else high)

    def points(self) -> tuple[Point, ...]:
        """The two loads around the capacity."""
        return self._point(self.low), self._point(self.high)

    def knee(self, count: int) -> SLOCrossing | None:
        """Where the target is met, from so many replications of each; None if the smallest load misses it."""
        seen: set[tuple[float, float]] = set()
        while True:
            seen.add((self.low, self.high))
            few = max(math.ceil(count / FEW), _replications_with(LOCATING[0], self.evaluator))
            for size in (self.low, self.high):
                self._replicate(size, min(few, count))
            if max(self.replicated[self.low], self.replicated[self.high]) < count:
                self._replicate(self._nearer(), count)
            knee = self._estimate()
            mean = knee.interval().mean
            if mean < self.low == self.evaluator.load.smallest:
                return None
            if self.high > MAX_SIZE:
                raise limits_nothing(self.evaluator.load)
            shares = self._shares(knee.target_misses)
            served, missed = bracket(shares, knee.target_misses)
            if served and missed < math.inf and self._leaps(served, missed, knee.target_misses):
                self.low, self.high = served, self.evaluator.load.round(math.sqrt(served * missed))
                if missed / served <= FINEST or not served < self.high < missed:
                    self.high = missed
                    return _knee_of(self.points(), self.evaluator)  # farther loads say nothing of where misses leap
            elif between := self._contradicted(mean, shares, knee.target_misses):
                self._place(between)
            elif self.low <= mean <= self.high:
                return knee
            else:
                self._place(min(max(mean, self.low / MAX_MOVE), self.high * MAX_MOVE))
            if (self.low, self.high) in seen:
                return knee

    def _contradicted(self, mean: float, shares: dict[float, float], target: float) -> float | None:
        """Where to look instead of an estimate outside of loads that clearly serve and clearly miss.

        For close loads this is unknown: chance gave them more or less work than expected.
        """
        served, missed = bracket(shares, target, CLEAR_MISS_RATIO)
        if not 0 < served < missed < math.inf or served < mean < missed:
            return None
        is_known = missed / served > SPACING**2 or not self.low <= mean <= self.high
        return math.sqrt(served * missed) if is_known else None

    def _leaps(self, served: float, missed: float, target: float) -> bool:
        """Whether misses grow so fast from one load to the other that a line between them says little.

        The same replications show it: what others had, or another load had in them, is chance.
        """
        few, many = comparable_misses([self._point(size).shown() for size in (served, missed)], target)
        few = max(few, LEAST_MISSES * target)
        return bool(few <= target < many and math.log(many / few) > STEEPEST_SLOPE * math.log(missed / served))

    def _replicate(self, size: float, count: int) -> None:
        self.replicated[size] = max(count, self.replicated.get(size, 0))

    def _nearer(self) -> float:
        """Which of the two loads is replicated more often: the nearer to the capacity, as far as is known then.

        Their random numbers are common, so that few replications of the other show how misses grow.
        """
        return self.low if self._estimate().log_size < math.log(self.low * self.high) / 2 else self.high

    def _shares(self, target: float) -> dict[float, float]:
        """Of requests that miss, by load."""
        shown = [self._point(size).shown() for size in self.replicated]
        return dict(zip(self.replicated, comparable_misses(shown, target).tolist(), strict=True))

    def _point(self, size: float) -> Point:
        return self.evaluator.point(size, self.replicated[size])

    def _estimate(self) -> SLOCrossing:
        return _knee_of([self._point(size) for size in self.replicated], self.evaluator)


def _knee_of(points: Sequence[Point], evaluator: Evaluator) -> SLOCrossing:
    return find_knee([point.shown() for point in points], 1 - evaluator.slo.attainment, hours_met=evaluator.hours_met)


def _bracketed_knee(points: Sequence[Point], evaluator: Evaluator) -> SLOCrossing:
    """From all loads; where that lies outside of loads that clearly serve and clearly miss, from those between them.

    Loads that all miss, far beyond the target, flatten the line through them.
    """
    knee = _knee_of(points, evaluator)
    shares = {point.size: point.shown().share for point in points}
    served, missed = bracket(shares, knee.target_misses, CLEAR_MISS_RATIO)
    if not 0 < served < missed < math.inf or served <= knee.located.size <= missed:
        return knee
    return _knee_of([point for point in points if served <= point.size <= missed], evaluator)


def _rounded(evaluator: Evaluator, knee: SLOCrossing, points: tuple[Point, ...]) -> Capacity:
    """Sizes that can be asked for: an end below the smallest load is 0, none is beyond the largest that is searched."""
    load, interval = evaluator.load, knee.interval()
    low, mean, high = (
        load.round(min(size, MAX_SIZE)) if size >= load.smallest else 0.0
        for size in (interval.low, interval.mean, interval.high)
    )
    return Capacity(low=low, mean=mean, high=high, knee=knee, pair=points)
