"""When a fleet's latencies or its load leave what they were, and what is the likely cause."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from calibrate.shadow.expected import Expected
from calibrate.shadow.windows import JUDGED, Window

BASELINE: Final = 5  # windows that a ratio is compared with …
LEAST_BASELINE: Final = 3  # … from so many on
LEAST_REQUESTS: Final = 20  # in a window, for its latencies to be judged
TWICE: Final = 2  # windows in a row make a drift, or end it
DEVIATIONS: Final = 4.0  # of simulation noise
MARGINS: Final[Mapping[str, float]] = {"ttft_s": 0.30, "itl_s": 0.10}  # less is no drift, however well it is known
LOAD_MARGINS: Final[Mapping[str, float]] = {
    "requests_per_s": 0.25, "prompt_tokens": 0.25, "output_tokens": 0.25, "prefix_hit_rate": 0.10,
}  # fmt: skip
"""Changes of the load that are said: shares of what it was, of hits a difference."""
CLUSTERED: Final = 2.0  # times the variance of requests that arrive one by one: those of sessions come together
QUEUE: Final = 1.0  # requests per engine that wait beyond those expected


class Kind(StrEnum):
    """What has drifted."""

    STEPS = "steps"
    QUEUE = "queue"
    FRONT_END = "front end"
    FASTER = "faster"
    LOAD = "load"
    ENGINES = "engines"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What changed, from `since_s` on; `factor` times what it was."""

    kind: Kind
    figure: str
    since_s: float
    factor: float
    before: float
    after: float
    is_over: bool = False


@dataclass(kw_only=True)
class _Ratio:
    """Measured over simulated of one latency, as logarithms."""

    baseline: list[float] = field(default_factory=list)
    outside: list[tuple[float, float]] = field(default_factory=list)  # start of the window, how far off
    inside: int = 0
    drift: Drift | None = None


@dataclass(kw_only=True)
class DriftWatch:
    """Takes in one window after the other, with what was expected of it."""

    ratios: dict[str, _Ratio] = field(default_factory=lambda: defaultdict(_Ratio))
    _loads: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _changed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _engines: int | None = None

    @property
    def open(self) -> list[Drift]:
        """Drifts of latencies that are not over."""
        return [each.drift for each in self.ratios.values() if each.drift is not None]

    def bias(self, name: str) -> float | None:
        """How many times the simulated latency the measured one was at first; None before that is known."""
        baseline = self.ratios[name].baseline
        return math.exp(float(np.median(baseline))) if len(baseline) >= LEAST_BASELINE else None

    def speed(self) -> float:
        """How many times as long as simulated steps take now."""
        ratio = self.ratios["itl_s"]
        drift = ratio.drift.factor if ratio.drift is not None else 1.0
        return (self.bias("itl_s") or 1.0) * drift

    def add(self, window: Window, expected: Mapping[str, Expected]) -> Iterator[Drift]:
        """What begins or ends with this window."""
        yield from self._engines_changed(window)
        yield from self._load_changed(window)
        if window.first_tokens >= LEAST_REQUESTS:
            for name in JUDGED:
                if name in expected and window.figures.get(name, 0.0) > 0 and expected[name].mean > 0:
                    yield from self._judge(name, window, expected)

    def _judge(self, name: str, window: Window, expected: Mapping[str, Expected]) -> Iterator[Drift]:
        ratio, simulated, measured = self.ratios[name], expected[name], window.figures[name]
        if not simulated.relative < math.inf:
            return
        log = math.log(measured / simulated.mean)
        if len(ratio.baseline) >= LEAST_BASELINE:
            off = log - float(np.median(ratio.baseline))
            if abs(off) > max(math.log1p(MARGINS[name]), DEVIATIONS * simulated.relative):
                yield from self._is_off(name, window, expected, off)
                return
        ratio.outside.clear()
        ratio.inside += 1
        if ratio.drift is not None and ratio.inside >= TWICE:
            drift, ratio.drift = ratio.drift, None
            yield Drift(
                kind=drift.kind, figure=name, since_s=window.start_s, factor=math.exp(log), before=drift.after,
                after=measured, is_over=True,
            )  # fmt: skip
        elif ratio.drift is None and len(ratio.baseline) < BASELINE:
            ratio.baseline.append(log)

    def _is_off(self, name: str, window: Window, expected: Mapping[str, Expected], off: float) -> Iterator[Drift]:
        ratio = self.ratios[name]
        ratio.inside = 0
        if ratio.outside and ratio.outside[-1][1] * off < 0:
            ratio.outside.clear()
        ratio.outside.append((window.start_s, off))
        if ratio.drift is not None or len(ratio.outside) < TWICE:
            return
        factor = math.exp(float(np.mean([away for _, away in ratio.outside])))
        ratio.drift = Drift(
            kind=self._cause(name, window, expected, factor),
            figure=name,
            since_s=ratio.outside[0][0],
            factor=factor,
            before=window.figures[name] / factor,
            after=window.figures[name],
        )
        yield ratio.drift

    def _cause(self, name: str, window: Window, expected: Mapping[str, Expected], factor: float) -> Kind:
        if factor < 1:
            return Kind.FASTER
        steps = self.ratios["itl_s"]
        if name == "itl_s" or steps.drift is not None or steps.outside:
            return Kind.STEPS
        waiting, simulated = window.figures.get("waiting", 0.0), expected.get("waiting")
        beyond = waiting - (simulated.mean if simulated is not None else 0.0)
        return Kind.QUEUE if beyond > QUEUE * max(window.engines, 1) else Kind.FRONT_END

    def _engines_changed(self, window: Window) -> Iterator[Drift]:
        before, self._engines = self._engines, window.engines
        if before is not None and before != window.engines:
            yield Drift(
                kind=Kind.ENGINES, figure="engines", since_s=window.start_s,
                factor=window.engines / before if before else math.inf, before=before, after=window.engines,
            )  # fmt: skip

    def _load_changed(self, window: Window) -> Iterator[Drift]:
        if window.first_tokens < LEAST_REQUESTS:
            return
        now = {
            "requests_per_s": window.requests_per_s,
            "prompt_tokens": window.prompt_tokens,
            "output_tokens": window.output_tokens,
            "prefix_hit_rate": window.figures.get("prefix_hit_rate", 0.0),
        }
        for name, value in now.items():
            known, changed = self._loads[name], self._changed[name]
            if len(known) < LEAST_BASELINE:
                known.append(value)
                continue
            before = float(np.median(known))
            if not self._is_other(name, before, value, window):
                changed.clear()
                if len(known) < BASELINE:
                    known.append(value)
                continue
            changed.append(value)
            if len(changed) >= TWICE:
                factor = value / before if before > 0 else math.inf
                yield Drift(
                    kind=Kind.LOAD, figure=name, since_s=window.start_s - window.length_s, factor=factor,
                    before=before, after=value,
                )  # fmt: skip
                self._loads[name] = list(changed)
                changed.clear()

    @staticmethod
    def _is_other(name: str, before: float, value: float, window: Window) -> bool:
        """Whether a load is beyond its margin, and beyond what chance does to so many requests."""
        if name == "prefix_hit_rate":
            return abs(value - before) > LOAD_MARGINS[name]
        if min(before, value) <= 0:
            return before != value
        chance = DEVIATIONS * math.sqrt(CLUSTERED / window.first_tokens)
        return abs(math.log(value / before)) > max(math.log1p(LOAD_MARGINS[name]), chance)
