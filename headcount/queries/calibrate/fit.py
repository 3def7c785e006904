"""Which step times follow from what was measured of a server?"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.fit.inputs import read_inputs
from calibrate.fit.profile_fit import Fitted
from calibrate.fit.profile_fit import fit as fit_inputs
from files.outputs import check_out_file, check_out_files, write_whole
from headcount.diagnostics import Facts, find_diagnostics
from headcount.inputs.deployments import given_arguments
from headcount.queries.result import Progress, Result, Watch, question, unwatched
from headcount.views.summary.summary import Summary, risk_of
from headcount.text.blocks import Block, Line, Table
from simulator.latency.profile import OFFSETS
from simulator.latency.profile_file import profile_text

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

NOT_FITTED = ("latency_model", "step_s", "latency_profile")
LEARNED_SD, LEARNED_SHIFT = 0.7, 0.3  # of the prior's standard deviation: a term that moved less is as before


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitResult(Result):
    """A latency profile, how far it is off where it was not fitted, what to measure next."""

    kind = "calibration fit"
    fitted: Fitted
    saved: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> "FitResult":
        """Write the profile for --latency-profile; the file appears whole or not at all."""
        check_out_file("out", Path(path), example="profile.toml")
        check_out_files({"out": Path(path)}, self.inputs)
        write_whole(path, profile_text(self.fitted.profile))
        return replace(self, saved=Path(path))

    def figures(self) -> dict[str, Any]:
        return self.fitted.to_json()

    def rows(self) -> list[dict[str, Any]]:
        return [dict(term) for term in self.fitted.to_json()["terms"]]

    def summary(self) -> Summary:
        profile, held_out = self.fitted.profile, self.fitted.profile.held_out
        errors = [(_words(name), f"{value:.1f} %") for name, value in held_out.items() if name.endswith("_percent")]
        return Summary(
            question=f"Which step times follow from the measurements of {profile.gpu}?",
            answer=f"The latency profile '{profile.name}' fits {profile.source}",
            figures=tuple((f"error on data left out, {name}", error) for name, error in errors[:4]),
            sure="The errors are those on data that was left out of the fit."
            if errors
            else "One run alone: its error on other runs was not measured.",
            risk=risk_of(
                self.diagnostics, "Loads unlike those measured lie outside of the profile; answers say where."
            ),
        )

    def head(self) -> list[Block]:
        profile = self.fitted.profile
        return [Line(f": {profile.source}, {profile.gpu}", bold=profile.name)]

    def body(self) -> list[Block]:
        saved = (
            []
            if self.saved is None
            else [Line(), Line(f"wrote {self.saved}; use it with --latency-profile {self.saved}")]
        )
        left_out = [Line(f"left out: {text}", dim=True) for text in self.fitted.left_out]
        return [self._terms(), Line("other terms stay as they were", dim=True), Line(), *self._errors(), *self._curve(),
                *self._next(), *left_out, *saved]  # fmt: skip

    def _terms(self) -> Table:
        rows = []
        for term, sd in zip(self.fitted.profile.terms, self.fitted.profile.sd, strict=True):
            moved = abs(term.mean - term.prior_mean) > LEARNED_SHIFT * term.prior_sd
            if sd >= LEARNED_SD * term.prior_sd and not moved:
                continue
            if term.name in OFFSETS:
                cells = f"{term.mean * 1e3:+.2f} ms", f"{sd * 1e3:.2f} ms", f"{term.prior_sd * 1e3:.1f} ms"
            else:
                cells = f"× {math.exp(term.mean):.3f}", f"{sd:.1%}", f"{term.prior_sd:.0%}"
            rows.append((term.name, *cells))
        return Table(columns=("fitted", "value", "sd", "prior sd"), rows=rows)

    def _errors(self) -> list[Block]:
        before, held_out = self.fitted.before, self.fitted.profile.held_out
        known = [name for name in held_out if name.endswith("_percent")]
        rows = [(_words(name), _percent(before.get(name)), _percent(held_out[name])) for name in known]
        own = [f"{_words(metric)} {value:.1f} %" for metric, value in self.fitted.own.items()]
        lines: list[Block] = [Line(f"error on the data that was fitted: {', '.join(own)}")] if own else []
        lines.append(Table(columns=("error on data left out, %", "shipped", "fitted"), rows=rows))
        if worse := [name for name, value in held_out.items() if value > before.get(name, value)]:
            lines.append(
                Line(
                    f"worse than the shipped constants: {_words(worse[0])}. A run may be odd, or its load may not be "
                    "what was sent; look at each run with headcount calibrate check"
                )
            )
        if not known:
            lines.append(Line("one run alone: nothing was left out, so its error on other runs was not measured"))
        return lines

    def _curve(self) -> list[Block]:
        if not self.fitted.curve:
            return []
        title = f"error on the rest by the number of {self.fitted.curve_unit} fitted, median in %:"
        lines: list[Block] = [Line(), Line(title)]
        for count, errors in self.fitted.curve.items():
            parts = [f"{name.removesuffix('_median_percent')} {value:.1f}" for name, value in errors.items()]
            lines.append(Line(f"  {count:,}: {', '.join(parts).replace('median_percent ', '')}"))
        return lines

    def _next(self) -> list[Block]:
        found: list[Block] = []
        for item in self.fitted.next_runs[:1]:
            load = f"{item.concurrency:,} clients, {item.input_len:,} tokens in, {item.output_len:,} out"
            found = [
                Line(),
                Line(f"measure next: {load}; it would reduce the remaining variance by {item.reduction:.0%}"),
            ]
        return found


@question
def fit(
    paths: Sequence[str | Path],
    *,
    name: str = "profile",
    out: str | Path | None = None,
    format_name: str | None = None,
    startup_log: "StartupLog | None" = None,
    force: bool = False,
    progress: Watch = unwatched,
    **given: Any,
) -> FitResult:
    """Fit step times to recordings of engine steps or to benchmark results; `save()` writes the profile.

    `given` are the model, the GPU and engine arguments that win over what the files say of the server. Raises
    ValueError where the files cannot be read or do not say enough, and, without `force`, where the profile misses the
    very data that it was fitted to; `out` is a file that must not be among them.
    """
    for option in NOT_FITTED:
        if given.get(option) is not None:
            raise ValueError(f"--{option.replace('_', '-')} cannot be fitted; leave it out")
    values: Mapping[str, Any] = given_arguments(given, startup_log)
    inputs = read_inputs([Path(path) for path in paths], format_name)
    if out is not None and Path(out).resolve() in inputs.files:
        raise ValueError(f"--out {out}: is one of the files to fit, which it would replace; name another")
    fitted = fit_inputs(inputs, values, name=name, force=force, watch=lambda note: progress(Progress(0, 1, note)))
    return FitResult(diagnostics=find_diagnostics(Facts()), fitted=fitted)


def _words(name: str) -> str:
    return name.removesuffix("_percent").replace("_", " ")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
