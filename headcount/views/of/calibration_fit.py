"""Step times fitted to a server, in words."""

import math
from typing import Final

from headcount.queries.calibrate.fit import LEARNED_SD, LEARNED_SHIFT, FitResult
from headcount.text.blocks import Block, Line, Table
from headcount.views.summary.summary import Summary, risk_of
from simulator.latency.profile import OFFSETS


def summary(answer: FitResult) -> Summary:
    profile, held_out = answer.fitted.profile, answer.fitted.profile.held_out
    errors = [(_words(name), f"{value:.1f} %") for name, value in held_out.items() if name.endswith("_percent")]
    return Summary(
        question=f"Which step times follow from the measurements of {profile.gpu}?",
        answer=f"The latency profile '{profile.name}' fits {profile.source}",
        figures=tuple((f"error on data left out, {name}", error) for name, error in errors[:4]),
        sure="The errors are those on data that was left out of the fit."
        if errors
        else "One run alone: its error on other runs was not measured.",
        risk=risk_of(answer.diagnostics, "Loads unlike those measured lie outside of the profile; answers say where."),
    )


def head(answer: FitResult) -> list[Block]:
    profile = answer.fitted.profile
    return [Line(f": {profile.source}, {profile.gpu}", bold=profile.name)]


_SMALL: Final = (
    f"not listed: terms that moved by less than {LEARNED_SHIFT:g} of their prior sd; the profile has them too, and "
    "together they change step times"
)


def body(answer: FitResult) -> list[Block]:
    saved = [Line(), Line(f"wrote {answer.saved}; use it with --latency-profile {answer.saved}")]
    left_out = [Line(f"left out: {text}", dim=True) for text in answer.fitted.left_out]
    return [_terms(answer), Line(_SMALL, dim=True), Line(), *_errors(answer), *_curve(answer),
            *_next(answer), *left_out, *([] if answer.saved is None else saved)]  # fmt: skip


def _terms(answer: FitResult) -> Table:
    rows = []
    for term, sd in zip(answer.fitted.profile.terms, answer.fitted.profile.sd, strict=True):
        moved = abs(term.mean - term.prior_mean) > LEARNED_SHIFT * term.prior_sd
        if sd >= LEARNED_SD * term.prior_sd and not moved:
            continue
        if term.name in OFFSETS:
            cells = f"{term.mean * 1e3:+.2f} ms", f"{sd * 1e3:.2f} ms", f"{term.prior_sd * 1e3:.1f} ms"
        else:
            cells = f"× {math.exp(term.mean):.3f}", f"{sd:.1%}", f"{term.prior_sd:.0%}"
        rows.append((term.name, *cells))
    return Table(columns=("fitted", "value", "sd", "prior sd"), rows=rows)


def _errors(answer: FitResult) -> list[Block]:
    before, held_out = answer.fitted.before, answer.fitted.profile.held_out
    known = [name for name in held_out if name.endswith("_percent")]
    rows = [(_words(name), _percent(before.get(name)), _percent(held_out[name])) for name in known]
    own = [f"{_words(metric)} {value:.1f} %" for metric, value in answer.fitted.own.items()]
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


def _curve(answer: FitResult) -> list[Block]:
    if not answer.fitted.curve:
        return []
    title = f"median error on the other {answer.fitted.curve_unit}, by {answer.fitted.curve_unit} fitted, in %:"
    lines: list[Block] = [Line(), Line(title)]
    for count, errors in answer.fitted.curve.items():
        parts = [f"{name.removesuffix('_median_percent')} {value:.1f}" for name, value in errors.items()]
        lines.append(Line(f"  {count:,}: {', '.join(parts).replace('median_percent ', '')}"))
    return lines


def _next(answer: FitResult) -> list[Block]:
    if not answer.fitted.next_runs:
        return []
    item = answer.fitted.next_runs[0]
    load = f"{item.concurrency:,} clients, {item.input_len:,} tokens in, {item.output_len:,} out"
    return [Line(), Line(f"measure next: {load}; it would reduce the remaining variance by {item.reduction:.0%}")]


def _words(name: str) -> str:
    return name.removesuffix("_percent").replace("_", " ")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
