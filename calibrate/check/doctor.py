"""Is a server as fast as it should be, and which setting would explain it if not?

The measured runs are simulated again under each setting that may have been different, and with steps that take longer.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calibrate.check.explanations import Setting, possible_settings
from calibrate.check.replay import Replay, replay
from calibrate.check.runs import Checked, Row, check_run
from simulator.deployment import Deployment
from simulator.latency.model import ERROR_SEQUENCES, LatencyModel

JUDGED = ("tpot", "itl", "ttft", "e2e")  # the gap between tokens only where TPOT is not told: it is the same time
OF_STEPS = ("tpot", "itl")  # that grow with the steps' times
MAX_RUNS = 3  # that are simulated under each setting: the least, the middle and the fullest load
NAMED = 2  # explanations
GAIN = 0.6  # of the misfit: a setting that leaves more explains too little
AS_GOOD = 1.3  # of the best misfit: the next is named too
FREE = 1.5  # factor on the misfit of an explanation with a free number
REFINEMENTS = 3  # of that number


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How measured runs compare with simulated ones: median ratios over runs, and the misfit.

    `misfit` is the root mean square of the log ratios, in half-widths of their 90 % intervals. Below 1: as expected.
    """

    ratios: Mapping[str, float]  # by each of JUDGED that the runs tell
    limits: Mapping[str, float]  # by how much a ratio may differ from 1, as a factor
    sequences: float  # requests at once, the median over the runs: the limits are those of so many
    misfit: float
    worst: tuple[str, str, float]  # the run that lies furthest off, with which latency and ratio

    @property
    def outside(self) -> tuple[str, ...]:
        """The latencies whose ratio lies outside its interval."""
        return tuple(name for name, ratio in self.ratios.items() if abs(math.log(ratio)) > math.log(self.limits[name]))

    @property
    def is_expected(self) -> bool:
        """Whether the medians lie in their intervals, and single runs on the whole too."""
        return not self.outside and self.misfit <= 1

    def to_json(self) -> dict[str, object]:
        named = {f"{name}_ratio": ratio for name, ratio in self.ratios.items()}
        return {**named, "misfit": self.misfit, "outside": list(self.outside)}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A setting, or longer steps, and how the runs compare with simulations with it."""

    words: str
    fit: Fit
    options: Mapping[str, object] = field(default_factory=dict)  # empty where a number was fitted
    penalty: float = 1.0

    def to_json(self) -> dict[str, object]:
        return {"what": self.words, "options": dict(self.options), **self.fit.to_json()}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """How a server compares with its simulation, and the best explanations; none if it is as expected."""

    gpu: str
    fit: Fit
    explanations: tuple[Explanation, ...] = ()
    tried: int = 0

    def to_json(self) -> dict[str, object]:
        return {
            "as_it_should_be": self.fit.is_expected,
            **self.fit.to_json(),
            "limits": {f"{name}_factor": limit for name, limit in self.fit.limits.items()},
            "explanations": [each.to_json() for each in self.explanations],
            "settings_tried": self.tried,
        }


def diagnose(
    pairs: Sequence[tuple[Replay, Checked]],
    values: Mapping[str, object],
    watch: Callable[[str], None] = lambda _: None,
) -> Diagnosis | None:
    """None where every run was overloaded, or where step times were given: then nothing is expected of the server."""
    known = [pair for pair in pairs if not pair[1].is_overloaded and _misses(pair[1])]
    if not known or known[0][0].deployment.latency.is_given:
        return None
    first, model = known[0][0].deployment, known[0][0].deployment.latency
    found = Diagnosis(gpu=first.gpu.name, fit=_fit([checked for _, checked in known], model))
    if found.fit.is_expected:
        return found
    kept = _spread(known)
    tried = list(_explanations(kept, values, found.fit, watch))
    return replace(found, explanations=_best(tried, _fit([checked for _, checked in kept], model)), tried=len(tried))


def _spread(pairs: list[tuple[Replay, Checked]]) -> list[tuple[Replay, Checked]]:
    """The least, the middle and the fullest load."""
    ordered = sorted(pairs, key=lambda pair: (_in_flight(pair[1]), pair[1].name))
    places = np.unique(np.linspace(0, len(ordered) - 1, MAX_RUNS).round().astype(int))
    return [ordered[place] for place in places]


def _in_flight(checked: Checked) -> float:
    """Requests at once: the concurrency, else by Little's law."""
    known = checked.load.get("concurrency", math.nan)
    if math.isfinite(known):
        return known
    rate, e2e = checked.row("requests_per_s"), checked.row("e2e_s.mean")
    return rate.measured * e2e.measured if rate and e2e else float(ERROR_SEQUENCES)


def _misses(checked: Checked) -> dict[str, float]:
    """The logarithm of measured over simulated of each latency: of means, else of medians."""
    found: dict[str, float] = {}
    for name in JUDGED:
        row = _judged_row(checked, name)
        if row is not None and row.measured > 0 and row.simulated > 0 and not (name == "itl" and "tpot" in found):
            found[name] = math.log(row.measured / row.simulated)
    return found


def _judged_row(checked: Checked, name: str) -> Row | None:
    return checked.row(f"{name}_s.mean") or checked.row(f"{name}_s.p50")


def _widths(checked: Checked, model: LatencyModel) -> dict[str, float]:
    """Half the 90 % interval of each latency, as a logarithm; that of E2E is made of its two parts'."""
    tpot, ttft = _log_half_widths(model, _in_flight(checked))
    first, whole = _judged_row(checked, "ttft"), _judged_row(checked, "e2e")
    share = min(first.simulated / whole.simulated, 1.0) if first and whole and whole.simulated > 0 else 0.0
    return {"tpot": tpot, "itl": tpot, "ttft": ttft, "e2e": share * ttft + (1 - share) * tpot}


def _fit(checked: Sequence[Checked], model: LatencyModel) -> Fit:
    misses = [_misses(each) for each in checked]
    widths = [_widths(each, model) for each in checked]
    names = [name for name in JUDGED if any(name in each for each in misses)]
    off = [
        (miss / wide[name], run.name, name, math.exp(miss))
        for run, each, wide in zip(checked, misses, widths, strict=True)
        for name, miss in each.items()
    ]
    return Fit(
        ratios={name: math.exp(np.median([each[name] for each in misses if name in each])) for name in names},
        limits={name: math.exp(np.median([wide[name] for wide in widths])) for name in names},
        sequences=float(np.median([_in_flight(each) for each in checked])),
        misfit=math.sqrt(np.mean([size**2 for size, *_ in off])),
        worst=max(off, key=lambda each: abs(each[0]))[1:],
    )


def _log_half_widths(model: LatencyModel, sequences: float) -> tuple[float, float]:
    return model.tpot_log_error.log_half_width_at(sequences), model.ttft_log_error.log_half_width_at(sequences)


def _explanations(
    kept: Sequence[tuple[Replay, Checked]], values: Mapping[str, object], before: Fit, watch: Callable[[str], None]
) -> Iterator[Explanation]:
    items, model = [item for item, _ in kept], kept[0][0].deployment.latency
    stated = {*values, *(name for item in items for name in item.run.options)}
    for setting in possible_settings(items[0], stated, max(_in_flight(checked) for _, checked in kept)):
        watch(setting.words)
        again = _simulated(items, setting, values)
        if again:
            yield Explanation(
                words=setting.words, options=setting.options, fit=_fit(again, model), penalty=setting.penalty
            )
    if set(before.outside) & set(OF_STEPS):
        watch("longer steps")
        yield _stretched(kept, model)
        yield _delayed(kept, model)


def _simulated(items: Sequence[Replay], setting: Setting, values: Mapping[str, object]) -> list[Checked]:
    """The runs under another setting; none where the engine refuses it."""
    try:
        return [check_run(replay(item.run, {**values, **setting.options})) for item in items]
    except ValueError:
        return []


def _stretched(kept: Sequence[tuple[Replay, Checked]], model: LatencyModel) -> Explanation:
    """Each step so many times as long as fits the median TPOT."""
    factor, again = 1.0, [checked for _, checked in kept]
    for _ in range(REFINEMENTS):
        ratios = _fit(again, model).ratios
        factor *= next(ratios[name] for name in OF_STEPS if name in ratios)
        again = [check_run(replace(item, deployment=item.deployment.with_step_times(factor))) for item, _ in kept]
    cause = "a power or clock limit, or other work on the GPU" if factor > 1 else "a GPU with higher clocks"
    words = f"steps that take {factor:.2f} × as long ({cause})"
    return Explanation(words=words, fit=_fit(again, model), penalty=FREE)


def _delayed(kept: Sequence[tuple[Replay, Checked]], model: LatencyModel) -> Explanation:
    """Each step longer by the time that fits the median TPOT."""
    delay_s, again = 0.0, [checked for _, checked in kept]
    for _ in range(REFINEMENTS):
        delay_s += float(np.median([_tpot_gap_s(checked) for checked in again]))
        again = [check_run(replace(item, deployment=_with_gap(item.deployment, delay_s))) for item, _ in kept]
    more = f"{abs(delay_s) * 1e3:.1f} ms {'more' if delay_s > 0 else 'less'} in each step"
    words = f"{more} (a {'busy' if delay_s > 0 else 'fast'} CPU)"
    return Explanation(words=words, fit=_fit(again, model), penalty=FREE)


def _tpot_gap_s(checked: Checked) -> float:
    """How much longer the measured TPOT is."""
    row = next((row for name in OF_STEPS if (row := _judged_row(checked, name))), None)
    return row.measured - row.simulated if row else math.nan


def _with_gap(deployment: Deployment, delay_s: float) -> Deployment:
    times = deployment.latency.step_times
    longer = replace(times, gap_s=max(0.0, times.gap_s + delay_s))
    return replace(deployment, latency=replace(deployment.latency, step_times=longer))


def _best(tried: Sequence[Explanation], before: Fit) -> tuple[Explanation, ...]:
    """The best one, with the next if that is as good; none where none removes enough of the misfit."""
    ranked = sorted(tried, key=lambda each: each.fit.misfit * each.penalty)
    enough = [each for each in ranked if each.fit.misfit <= GAIN * before.misfit]
    if not enough:
        return ()
    most = AS_GOOD * enough[0].fit.misfit * enough[0].penalty
    return tuple(each for each in enough if each.fit.misfit * each.penalty <= most)[:NAMED]
