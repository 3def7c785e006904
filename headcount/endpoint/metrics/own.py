"""Metric families from tables, and what `/metrics` says beside an engine's own: names that begin with `headcount:`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from headcount.endpoint.clock import Clock
from headcount.endpoint.figures import Histogram

Samples = Iterable[tuple[Mapping[str, object], float | Sequence[Histogram]]]
"""Labels with a value; several histograms with the same buckets are one."""
Table = Mapping[str, tuple[str, Samples]]
"""What a metric tells and its samples, by its name."""


def families(kind: Any, prefix: str, table: Table) -> Iterator[Metric]:
    """Metrics of one kind, such as `GaugeMetricFamily`; all samples of a metric have the same labels."""
    for name, (what, samples) in table.items():
        listed = list(samples)
        family = kind(f"{prefix}:{name}", what, labels=tuple(listed[0][0]))
        for labels, value in listed:
            texts = tuple(map(str, labels.values()))
            if kind is HistogramMetricFamily:
                assert isinstance(value, Sequence), "a histogram is a sum of histograms"
                whole = Histogram.sum_of(value)
                family.add_metric(texts, buckets=whole.samples(), sum_value=whole.sum)
            else:
                family.add_metric(texts, value)
        yield family


def own_metrics(clock: Clock) -> Iterator[Metric]:
    yield GaugeMetricFamily("headcount:speed", "Simulated seconds in one second.", value=clock.speed)
    what = "How much later than simulated outputs left, in seconds on the wall."
    added = [({"quantile": percent / 100}, clock.delays.percentile(percent)) for percent in (50, 90, 99)]
    yield from families(GaugeMetricFamily, "headcount", {"added_delay_seconds": (what, added)})
