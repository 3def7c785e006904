"""A running fleet beside its simulation, window by window."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibrate.check.replay import deployment_of, given
from calibrate.shadow.drifts import LEAST_REQUESTS, Drift, DriftWatch
from calibrate.shadow.expected import Expected, expect
from calibrate.shadow.fitted_load import HISTORY
from calibrate.shadow.headroom import MOST_TREND, Mix, mix_of, most_per_server, seconds_until
from calibrate.shadow.sources import ask_prometheus, ask_servers, read_recordings
from calibrate.shadow.windows import JUDGED, Tick, Window, windows
from files.documents import Json
from files.errors import HeadcountError
from headcount.inputs.engine import EngineInput
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.metrics import MetricsInput
from headcount.inputs.slo import SLOInput
from simulator.deployment import Deployment

KEPT: Final = max(HISTORY + 1, MOST_TREND)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shadow:
    """One window as it was measured, what was expected of it, and what follows."""

    window: Window
    expected: Mapping[str, Expected]
    drifts: tuple[Drift, ...]  # that began or ended with it
    open: tuple[Drift, ...]  # that go on
    bias: Mapping[str, float]  # measured over simulated of the first windows, once that is known
    most_requests_per_s: float | None  # within the SLO, of all servers
    saturates_in_s: float | None  # by the trend; None where there is none
    e2e_s: float | None

    def users(self, think_time_s: float, requests_per_s: float) -> float | None:
        """How many send so many requests, if each thinks so long between an answer and the next request."""
        return None if self.e2e_s is None else requests_per_s * (think_time_s + self.e2e_s)

    def to_json(self) -> Json:
        window = self.window
        return {
            "start_unix_s": window.start_s,
            "end_unix_s": window.end_s,
            "engines": window.engines,
            "requests_per_s": window.requests_per_s,
            "prompt_tokens_mean": window.prompt_tokens,
            "output_tokens_mean": window.output_tokens,
            "measured": dict(window.figures),
            "expected": {
                name: {"mean": found.mean, "deviation": _finite(found.deviation)}
                for name, found in self.expected.items()
            },
            "bias": dict(self.bias),
            "most_requests_per_s": _finite(self.most_requests_per_s),
            "saturates_in_s": self.saturates_in_s,
            "drifts": [_drift_json(each) for each in self.drifts],
            "open_drifts": [_drift_json(each) for each in self.open],
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _drift_json(drift: Drift) -> Json:
    return {
        "kind": str(drift.kind),
        "figure": drift.figure,
        "since_unix_s": drift.since_s,
        "factor": _finite(drift.factor),
        "before": drift.before,
        "after": drift.after,
        "is_over": drift.is_over,
    }


def shadow(
    *,
    metrics: MetricsInput,
    measured: MeasuredInput = MeasuredInput(),
    engine: EngineInput = EngineInput(),
    slo: SLOInput = SLOInput(),
    seed: int = 0,
    begun: Callable[[Deployment], None] = lambda _: None,
    lost: Callable[[str], None] = lambda _: None,
) -> Iterator[Shadow]:
    """Each window of a running fleet's metrics, with what the deployment would show under the same load.

    Model, GPU and engine arguments win over what the servers say of themselves. `begun` gets the deployment once it is
    known, `lost` gets a line where a server did not answer. Raises HeadcountError where model or GPU are not known,
    where the metrics cannot be read, or end before the first window does.
    """
    values, limits = measured.with_engine(engine), slo.found()
    deployment: Deployment | None = None
    watch, kept = DriftWatch(), list[Window]()
    known: tuple[Mix, float] | None = None
    for window in windows(_ticks(metrics, lost), metrics.every_s):
        if deployment is None:
            deployment = deployment_of("what the servers tell", given(window.options, values))
            begun(deployment)
        kept = [*kept, window][-KEPT:]
        expected = expect(deployment, kept, seed=seed)
        drifts = tuple(watch.add(window, expected))
        recent = [each for each in kept[-HISTORY:] if each.first_tokens >= LEAST_REQUESTS]
        if recent:
            mix = mix_of(recent, watch.speed())
            if known is None or not mix.is_near(known[0]):
                known = mix, most_per_server(deployment, recent, mix, limits, seed=seed)
        servers = window.engines // deployment.data_parallel_size
        most = None if known is None else known[1] * servers
        yield Shadow(
            window=window,
            expected=expected,
            drifts=drifts,
            open=tuple(watch.open),
            bias={name: bias for name in JUDGED if (bias := watch.bias(name)) is not None},
            most_requests_per_s=most,
            saturates_in_s=None if most is None else seconds_until(kept, most),
            e2e_s=_e2e_s(window),
        )
    if deployment is None:
        raise HeadcountError(f"the metrics end before the first window of {metrics.every_s:g} s does; shorten --every")


def _ticks(metrics: MetricsInput, lost: Callable[[str], None]) -> Iterator[Tick]:
    """The metrics as time goes on."""
    source, now_s = metrics.source, time.time()
    until_s = math.inf if metrics.duration_s is None else now_s + metrics.duration_s
    if source == "replay":
        return read_recordings([Path(each) for each in metrics.replay], metrics.interval_s)
    if source == "prometheus":
        return ask_prometheus(
            metrics.prometheus or "", select=metrics.select or "", interval_s=metrics.interval_s,
            from_s=now_s - (metrics.since_s or 0.0), until_s=until_s, lost=lost,
        )  # fmt: skip
    out, count = metrics.out, len(metrics.url)
    folders = [] if out is None else [Path(out)] if count == 1 else [Path(out) / f"server-{n}" for n in range(count)]
    return ask_servers(metrics.url, interval_s=metrics.interval_s, until_s=until_s, folders=folders, lost=lost)


def _e2e_s(window: Window) -> float | None:
    if not all(name in window.figures for name in JUDGED):
        return None
    ttft_s, itl_s = (window.figures[name] for name in JUDGED)
    return ttft_s + itl_s * max(window.output_tokens - 1, 0.0)
