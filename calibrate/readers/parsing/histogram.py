"""What a histogram's buckets say of the values that were counted in them."""

from dataclasses import dataclass

PERCENTILES = (50, 90, 95, 99)
WIDEST_BUCKET = 2.6  # upper bound to lower, to be interpolated in: vLLM's are 1, 2.5, 5, 7.5, 10 and so on


@dataclass(frozen=True)
class Bucket:
    """Where a quantile lies: between two bounds, and at which share of the bucket's values."""

    low: float
    high: float
    share: float

    @property
    def quantile(self) -> float | None:
        """Linear within the bucket, as in Prometheus' `histogram_quantile`; None in the first one and in wide ones."""
        if self.high > WIDEST_BUCKET * self.low:
            return None
        return self.low + (self.high - self.low) * self.share


@dataclass(frozen=True)
class Histogram:
    """`buckets` are finite upper bounds in order, each with how many values lie at or below it."""

    count: float
    sum: float | None
    buckets: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float | None:
        return None if self.sum is None else self.sum / self.count

    def bucket(self, percent: float) -> Bucket | None:
        """The bucket that holds a percentile; None where it lies above the last bound."""
        rank = percent / 100 * self.count
        low, below = 0.0, 0.0
        for bound, count in self.buckets:
            if count >= rank and count > below:
                return Bucket(low, bound, (rank - below) / (count - below))
            low, below = bound, count
        return None

    def percentile(self, percent: float) -> float | None:
        """None where the buckets say too little of it."""
        bucket = self.bucket(percent)
        return None if bucket is None else bucket.quantile
