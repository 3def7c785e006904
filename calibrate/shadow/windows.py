"""What a fleet's servers counted, from one window of time to the next."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from calibrate.readers.parsing import server_metrics as metrics
from calibrate.readers.parsing.histogram import Histogram
from calibrate.readers.parsing.metrics_text import Labels, Sample
from calibrate.record.server_series import ServerSeries

JUDGED: Final = ("ttft_s", "itl_s")
LENGTHS: Final = ("prompt_tokens", "output_tokens")


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Each server's metrics at a time; servers that did not answer are not in it."""

    unix_s: float
    servers: Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """What the servers counted together between two times; requests in flight and latencies are means.

    `arrivals` are the requests whose first tokens came, and those that wait now and did not before. They, `running` and
    `waiting` are sums over engines; `kv_usage` is their mean. A figure that no server counted is missing.
    """

    start_s: float  # since 1970
    end_s: float
    engines: int  # whose servers answered at its end: one for each data-parallel rank
    arrivals: float
    first_tokens: float
    prompt_tokens: float  # mean; 0 without requests
    output_tokens: float
    figures: Mapping[str, float]
    lengths: Mapping[str, Histogram] = field(default_factory=dict)  # of prompts and answers that ended
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def requests_per_s(self) -> float:
        """That arrived."""
        return self.arrivals / self.length_s


def windows(ticks: Iterable[Tick], every_s: float) -> Iterator[Window]:
    """Windows of at least this length, each from the last tick of the one before on.

    While no server answers, the window goes on.
    """
    kept: list[Tick] = []
    for tick in ticks:
        if not tick.servers:
            continue
        kept.append(tick)
        if tick.unix_s - kept[0].unix_s >= every_s * (1 - 1e-3):
            yield _window(kept)
            kept = [tick]


def _window(ticks: Sequence[Tick]) -> Window:
    series: dict[str, ServerSeries] = defaultdict(ServerSeries)
    for tick in ticks:
        for name, samples in tick.servers.items():
            series[name].add(tick.unix_s, samples)
    increase: dict[tuple[str, Labels], float] = defaultdict(float)
    for each in series.values():
        for key, value in each.increase.items():
            increase[key] += value
    first_tokens = _counted(increase, "ttft_s")
    waited = sum(each.rows[-1]["waiting"] - each.rows[0]["waiting"] for each in series.values())
    lengths = {name: found for name in LENGTHS if (found := metrics.histogram(increase, name)) is not None}
    prompts, answers = (metrics.total(increase, metrics.COUNTERS[name]) or 0.0 for name in LENGTHS)
    ended = metrics.total(increase, metrics.COUNTERS["requests"]) or 0.0
    answered = lengths["output_tokens"].mean if "output_tokens" in lengths else None
    return Window(
        start_s=ticks[0].unix_s,
        end_s=ticks[-1].unix_s,
        engines=sum(map(_engines, ticks[-1].servers.values())),
        arrivals=max(first_tokens + (waited if math.isfinite(waited) else 0.0), 0.0),
        first_tokens=first_tokens,
        prompt_tokens=prompts / first_tokens if first_tokens else 0.0,
        output_tokens=answered or (answers / ended if ended else 0.0),
        figures=_figures(increase, series.values()),
        lengths=lengths,
        options={name: value for each in series.values() for name, value in each.options.items()},
    )


def _engines(samples: Iterable[Sample]) -> int:
    return sum(sample.name in metrics.GAUGES["running"] for sample in samples)


def _counted(increase: metrics.Values, name: str) -> float:
    found = metrics.histogram(increase, name)
    return 0.0 if found is None else found.count


def _figures(increase: metrics.Values, series: Iterable[ServerSeries]) -> dict[str, float]:
    found: dict[str, float | None] = {}
    for name in JUDGED:
        counted = metrics.histogram(increase, name)
        found[name] = None if counted is None else counted.mean
    rows = [each.rows for each in series]
    for name in ("running", "waiting", "kv_usage"):
        means = [_mean([row[name] for row in each]) for each in rows]
        known = [mean for mean in means if mean is not None]
        found[name] = sum(known) / (len(known) if name == "kv_usage" else 1) if known else None
    found["prefix_hit_rate"] = metrics.prefix_hit_rate(increase)
    return {name: value for name, value in found.items() if value is not None}


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else None
