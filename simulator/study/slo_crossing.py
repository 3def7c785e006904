"""The load at which attainment falls to its target, estimated from all loads that were simulated near it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from files import special
from simulator.study.statistics import FloatArray, Interval, t_interval

MIN_SLOPE, MAX_SLOPE = 0.5, 2000.0  # of the logarithm of misses over that of the load
FLATTER = 2.0  # times the line without one replication at most: what is left may have no miss to tell its slope
BANDWIDTH = 0.05  # of the logarithm of the load: farther loads count less
LEAST_MISSES = 1e-3  # of the target: fewer are taken for so many, so that they have a logarithm
SEARCHED = 1.3  # times the jackknife's half-width: loads are placed by what the same replications showed (sampling.md)
FEW = 4  # times fewer replications than the best known load
PAIRED = 2 * FEW  # so many times fewer, or less, are corrected by it; with fewer still a load is left out
DECIDE = 2.0  # times the half-width without loads of few replications
TELL = 4  # replications for each coefficient
DISTINCT = 3  # of them with random numbers of their own, beside two
WORSE = 1.5  # times the squared error of the best number of quantities: more is chance's overfitting
NO_MISS = 1e-6  # requests
SINGULAR = 1e-10  # of the largest singular value: smaller ones are rounding
LEAST_SHARE = 0.1  # of the misses seen: what is left of them after the correction


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadSample:
    """What replications 0, 1, … showed at one load."""

    size: float
    misses: FloatArray
    """[n] share of requests that miss the SLO."""
    requests: FloatArray
    """[n] how many requests were judged: more where more arrived, and then more of them miss."""
    surplus: FloatArray
    """[n, quantities] what chance drew beyond its expectation; 0 everywhere where that is not known."""
    hours: float = 1.0
    """That a replication measured."""

    @property
    def share(self) -> float:
        """Of all requests together that miss."""
        return float(self.misses @ self.requests) / float(self.requests.sum())

    @property
    def log_share_errors(self) -> FloatArray:
        """[n] how much each replication moves the logarithm of that share."""
        n, missed = len(self.misses), self.misses * self.requests
        return np.asarray((missed - self.share * self.requests) / missed.sum() * math.sqrt(n / max(n - 1, 1)))

    def first(self, count: int) -> "LoadSample":
        """So many replications, from 0 on."""
        misses, requests, surplus = (each[:count] for each in (self.misses, self.requests, self.surplus))
        return replace(self, misses=misses, requests=requests, surplus=surplus)


@dataclass(frozen=True, kw_only=True, eq=False)
class Located:
    """A load that just meets an SLO, or its users, and how well that is known."""

    size: float
    errors: FloatArray | None = None
    """[n] how much each replication moves its logarithm; None where that is not known."""
    fewest: int = 0
    """Replications of what was replicated the least."""

    @property
    def half_width(self) -> float | None:
        """Of its 95 % interval, as a share; None where it is not known."""
        if self.errors is None or self.fewest < 2:
            return None
        quantile = float(special.stdtrit(self.fewest - 1, 0.975))
        return SEARCHED * quantile * math.sqrt(float(self.errors @ self.errors))


@dataclass(frozen=True, kw_only=True, eq=False)
class SLOCrossing:
    """The load that just meets the target, with delete-one jackknife values over the replications (Miller 1974)."""

    log_size: float
    """Logarithm of the load."""
    log_sizes: FloatArray
    """[n] its pseudo-values by replication: nearly independent, so that they give a t-interval."""
    target_misses: float = 0.0
    """Mean misses at this load; fewer than the target where single hours have to meet it."""
    slope: float = MIN_SLOPE
    """Of the line."""

    def interval(self, confidence: float = 0.95) -> Interval:
        """The load and its interval."""
        return _exponential(self.log_size, self.log_sizes, confidence)

    def times(self, factor: float) -> "SLOCrossing":
        """Of so many times the load."""
        shift = math.log(factor)
        return replace(self, log_size=self.log_size + shift, log_sizes=self.log_sizes + shift)

    def over(self, other: "SLOCrossing") -> Interval:
        """This load over another one's, paired by replication: common random numbers cancel."""
        n = min(len(self.log_sizes), len(other.log_sizes))
        return _exponential(self.log_size - other.log_size, self.log_sizes[:n] - other.log_sizes[:n])

    @property
    def located(self) -> Located:
        """The load, with how much each replication moves it."""
        n, moved = len(self.log_sizes), self.log_sizes - self.log_sizes.mean()
        errors = moved / math.sqrt(n * (n - 1)) if n > 1 else None
        return Located(size=math.exp(min(self.log_size, 700.0)), errors=errors, fewest=n)

    @property
    def half_width(self) -> float:
        """Of the 95 % interval, as a share of the load."""
        found = self.interval()
        return math.log(found.high / found.mean)


def _exponential(value: float, pseudo: FloatArray, confidence: float = 0.95) -> Interval:
    """A value known as its logarithm, with the t-interval of its pseudo-values."""
    found = t_interval(pseudo, confidence=confidence)
    half = SEARCHED * (found.high - found.mean)
    low, mean, high = (math.exp(min(value + sign * half, 700.0)) for sign in (-1, 0, 1))
    return Interval(mean=mean, low=low, high=high)


def added(*errors: FloatArray | None) -> FloatArray | None:
    """Of a sum: what the same replications move adds up; the fewer of one are the first of the other."""
    known = [each for each in errors if each is not None]
    if len(known) < len(errors):
        return None
    found = np.zeros(max(map(len, known)))
    for each in known:
        found[: len(each)] += each
    return found


def find_knee(shown: Sequence[LoadSample], target_misses: float, *, hours_met: float | None = None) -> SLOCrossing:
    """The load whose expected share of misses is the target, from two loads or more around it.

    Misses grow as a power of the load there: a line in logarithms, in which a load counts by its replications and by
    how near it is. What makes replications differ is mostly the work that was drawn: misses are corrected by what is
    known to be expected of it (control variates), with the same coefficients for all loads. Random numbers are common,
    so that a load with fewer replications is compared with the same ones of another. With `hours_met` this share of
    hours has to meet the target, not the long run. Loads with too few replications for that are left out, those
    with few where they would decide the interval.
    """
    most = max(len(each.misses) for each in shown)
    pairable = [each for each in shown if PAIRED * len(each.misses) >= most]
    shown = _with_few_quantities(pairable if len(pairable) >= 2 else shown)
    knee = _knee_of(shown, target_misses, hours_met)
    well_known = [each for each in shown if FEW * len(each.misses) >= most]
    if 2 <= len(well_known) < len(shown):
        without = _knee_of(well_known, target_misses, hours_met)
        return without if DECIDE * without.half_width < knee.half_width else knee
    return knee


def _with_few_quantities(shown: Sequence[LoadSample]) -> list[LoadSample]:
    """Those whose coefficients so many replications can tell, and that foretell what a left-out replication shows."""
    told = sum(len(each.misses) - 1 for each in shown if len(each.misses) > 2) // TELL
    most = max(len(each.misses) for each in shown)
    count = min(max(told, 1), max(most - 2, 0) // DISTINCT, shown[0].surplus.shape[1])
    few = 0
    if count:
        left_out = _LeftOut(shown)
        errors = [left_out.foretelling_error(quantities) for quantities in range(count + 1)]
        few = max(quantities for quantities, error in enumerate(errors) if error <= WORSE * min(errors))
    return [replace(each, surplus=each.surplus[:, :few]) for each in shown]


def _knee_of(shown: Sequence[LoadSample], target_misses: float, hours_met: float | None) -> SLOCrossing:
    left_out = _LeftOut(shown)
    numbers, elasticity = left_out.numbers, left_out.elasticity(shown[0].surplus.shape[1])
    near = _weights(shown, None)

    def roots() -> tuple[FloatArray, FloatArray]:
        if hours_met is None:
            targets = np.full(numbers + 1, target_misses)
        else:
            without = [[_without(each, number) for each in shown] for number in range(numbers)]
            targets = target_misses / np.array([_unlucky(each, near, hours_met) for each in (*without, shown)])
        return left_out.log_roots(elasticity, targets, near)

    found, slopes = roots()
    for _ in range(3):  # nearness is judged from the estimate itself
        near = _weights(shown, float(found[-1]))
        found, slopes = roots()
    return SLOCrossing(
        log_size=float(found[-1]),
        log_sizes=numbers * found[-1] - (numbers - 1) * found[:-1],
        target_misses=target_misses / _unlucky(shown, near, hours_met),
        slope=float(slopes[-1]),
    )


def _unlucky(shown: Sequence[LoadSample], weights: FloatArray, hours_met: float | None) -> float:
    """Misses of an hour that all but that share stay below, over their mean; 1 where the long run counts.

    Hours are taken for lognormal: most have few misses, few have many.
    """
    if hours_met is None:
        return 1.0
    variances = [_relative_variance(each) for each in shown]
    if not any(variances):
        return 1.0
    found = float(np.average(variances, weights=weights * np.sign(variances)))
    square = math.log1p(found)
    return max(math.exp(float(special.ndtri(hours_met)) * math.sqrt(square) - square / 2), 1.0)


def _relative_variance(shown: LoadSample) -> float:
    """Of one hour's misses, over their squared mean; 0 where it is not known."""
    misses = shown.misses
    if len(misses) < 2 or not misses.any():
        return 0.0
    if misses.all():  # the variance of logarithms is known better than one that the worst hours decide
        found = math.expm1(min(float(np.log(misses).var(ddof=1)), 10.0))
    else:
        found = float(misses.var(ddof=1)) / float(misses.mean()) ** 2
    return shown.hours * found


def _weights(shown: Sequence[LoadSample], log_size: float | None) -> FloatArray:
    """By replications, and by nearness to a load, the nearest counting whole."""
    numbers = np.array([len(each.misses) for each in shown], float)
    if log_size is None:
        return numbers
    away = np.abs(np.log([each.size for each in shown]) - log_size) / BANDWIDTH
    nearness: FloatArray = np.exp(-((away - away.min()) ** 2) / 2)
    return numbers * nearness


def _without(shown: LoadSample, number: int) -> LoadSample:
    if number >= len(shown.misses) or len(shown.misses) == 1:
        return shown
    parts = (shown.misses, shown.requests, shown.surplus)
    misses, requests, surplus = (np.delete(each, number, axis=0) for each in parts)
    return replace(shown, misses=misses, requests=requests, surplus=surplus)


def comparable_misses(shown: Sequence[LoadSample], target_misses: float) -> FloatArray:
    """[loads] misses as drawn, had each load been replicated as often as the best known one."""
    left_out = _LeftOut(shown)
    nothing = left_out.elasticity(0)
    return np.asarray(np.exp(left_out.log_misses(nothing, np.full(len(nothing), target_misses))[-1]))


class _Sums:
    """Over the replications of a load, [numbers + 1, …]: without each in turn, then of all; of one alone, that one."""

    def __init__(self, shown: LoadSample, numbers: int) -> None:
        self.shown = shown
        missed = shown.misses * shown.requests

        def without(values: FloatArray) -> FloatArray:
            found = np.repeat(values.sum(axis=0)[None], numbers + 1, axis=0)
            if len(values) > 1:
                found[: len(values)] -= values
            return found

        self.counts = without(np.ones(len(missed)))
        self.requests = without(shown.requests)
        self.missed = without(missed)
        self.missed[self.missed < NO_MISS] = 0.0  # what rounding leaves
        self.surplus = without(shown.surplus)
        self.squares = without(shown.surplus[:, :, None] * shown.surplus[:, None, :])
        self.products = without(missed[:, None] * shown.surplus)

    @property
    def share(self) -> FloatArray:
        """Of all requests together that miss."""
        return np.asarray(self.missed / self.requests)

    def log_corrected(self, elasticity: FloatArray, targets: FloatArray) -> FloatArray:
        """Logarithm of the mean misses, had chance drawn what is expected; few enough count as more, to have one."""
        drawn = np.einsum("kq,kq->k", self.surplus[:, : elasticity.shape[1]], elasticity)
        factor = np.maximum(1 - drawn / self.counts, LEAST_SHARE)
        return np.asarray(np.log(np.maximum(self.share * factor, targets * LEAST_MISSES)))


class _LeftOut:
    """What loads show together without each replication in turn, and with all: rows of [numbers + 1, …]."""

    def __init__(self, shown: Sequence[LoadSample]) -> None:
        self.numbers = max(len(each.misses) for each in shown)
        self.loads = [_Sums(each, self.numbers) for each in shown]

    def elasticity(self, quantities: int) -> FloatArray:
        """[numbers + 1, quantities] the share by which misses grow with a surplus: least squares within each load."""
        squares = np.zeros((self.numbers + 1, quantities, quantities))
        products = np.zeros((self.numbers + 1, quantities))
        for each in self.loads:
            told = (each.counts > 2) & (each.missed > 0)
            sums, counts = each.surplus[told, :quantities], each.counts[told, None]
            squares[told] += each.squares[told, :quantities, :quantities] - (
                sums[:, :, None] * sums[:, None, :] / counts[:, None]
            )
            products[told] += counts / each.missed[told, None] * each.products[told, :quantities] - sums
        return np.asarray((np.linalg.pinv(squares, rcond=SINGULAR) @ products[:, :, None])[:, :, 0])

    def foretelling_error(self, quantities: int) -> float:
        """Squared errors of what the other replications foretell of each, over all loads (Allen 1974)."""
        elasticity, total = self.elasticity(quantities), 0.0
        for each in self.loads:
            shown, count = each.shown, len(each.shown.misses)
            told = np.flatnonzero((each.counts[:count] > 1) & (each.missed[:count] > 0))
            mean = each.surplus[told, :quantities] / each.counts[told, None]
            more = np.einsum("kq,kq->k", shown.surplus[told, :quantities] - mean, elasticity[told])
            total += float(((shown.misses[told] / each.share[told] - 1 - more) ** 2).sum())
        return total

    def log_misses(self, elasticity: FloatArray, targets: FloatArray) -> FloatArray:
        """[numbers + 1, loads] corrected for what chance drew.

        Few replications are corrected for what the best known load shows in the same, too.
        """
        best = max(self.loads, key=lambda each: len(each.shown.misses))
        most, found = len(best.shown.misses), []
        for each in self.loads:
            count, logs = len(each.shown.misses), each.log_corrected(elasticity, targets)
            if most <= PAIRED * count < PAIRED * most:
                same = _Sums(best.shown.first(count), self.numbers)
                logs = logs + best.log_corrected(elasticity, targets) - same.log_corrected(elasticity, targets)
            found.append(logs)
        return np.stack(found, axis=1)

    def log_roots(
        self, elasticity: FloatArray, targets: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """[numbers + 1] where the line through the loads meets the target, and its slope."""
        x, y = np.log([each.shown.size for each in self.loads]), self.log_misses(elasticity, targets)
        mean_x, mean_y = np.average(x, weights=weights), y @ weights / weights.sum()
        away = weights * (x - mean_x)
        spread = float(away @ (x - mean_x))
        slopes = (y - mean_y[:, None]) @ away / spread if spread else np.full(len(y), MIN_SLOPE)
        slopes = np.clip(slopes, max(MIN_SLOPE, float(slopes[-1]) / FLATTER), MAX_SLOPE)
        return mean_x + (np.log(targets) - mean_y) / slopes, slopes
