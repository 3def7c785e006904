"""What `/metrics` says beside an engine's own metrics: names that begin with `headcount:`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from headcount.endpoint.clock import Clock


def own_metrics(clock: "Clock") -> Iterator[Metric]:
    yield GaugeMetricFamily("headcount:speed", "Simulated seconds in one second.", value=clock.speed)
    added = GaugeMetricFamily(
        "headcount:added_delay_seconds",
        "How much later than simulated outputs left, in seconds on the wall.",
        labels=("quantile",),
    )
    for percent in (50, 90, 99):
        added.add_metric((str(percent / 100),), clock.delays.percentile(percent))
    yield added
