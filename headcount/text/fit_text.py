"""Fits and checks as text in a terminal."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from headcount.text.tables import print_table
from headcount.text.text import console, table
from simulator.latency.profile import OFFSETS

if TYPE_CHECKING:
    from calibrate.check.runs import Checked, Knee
    from calibrate.fit.profile_fit import Fitted

SHOWN_FIGURES = tuple(
    f"{latency}.{key}" for latency in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for key in ("mean", "p50", "p90", "p99")
)


def fit_text(fitted: "Fitted", out: Path) -> None:
    """What was learned, how far it is off where it was not fitted, what to measure next."""
    shown, profile = console(), fitted.profile
    shown.print(f"[bold]{escape(profile.name)}[/]: {escape(profile.source)}, {profile.gpu}\n")
    made = table("fitted", "value", "sd", "prior sd")
    for term, sd in zip(profile.terms, profile.sd, strict=True):
        learned = sd < 0.7 * term.prior_sd or abs(term.mean - term.prior_mean) > 0.3 * term.prior_sd
        if learned and term.name in OFFSETS:
            made.add_row(term.name, f"{term.mean * 1e3:+.2f} ms", f"{sd * 1e3:.2f} ms", f"{term.prior_sd * 1e3:.1f} ms")
        elif learned:
            made.add_row(term.name, f"× {math.exp(term.mean):.3f}", f"{sd:.1%}", f"{term.prior_sd:.0%}")
    print_table(shown, made)
    shown.print("the others stay where they were\n", style="dim")
    made = table("error on data left out, %", "shipped", "fitted")
    for name, value in profile.held_out.items():
        if name.endswith("_percent"):
            before = fitted.before.get(name)
            made.add_row(name.removesuffix("_percent").replace("_", " "), _percent(before), _percent(value))
    print_table(shown, made)
    if worse := [name for name, value in profile.held_out.items() if value > fitted.before.get(name, value)]:
        shown.print(
            f"further off than the shipped constants by {worse[0].replace('_percent', '').replace('_', ' ')}: a run "
            "may be odd, or its load may not be what was sent; look at each with headcount calibrate check"
        )
    if not any(name.endswith("_percent") for name in profile.held_out):
        shown.print("one run alone: nothing was left out, so its error elsewhere is the usual one, not measured")
    if fitted.curve:
        shown.print(f"\nerror on the rest by the number of {fitted.curve_unit} fitted, median in %:")
        for count, errors in fitted.curve.items():
            parts = [f"{name.removesuffix('_median_percent')} {value:.1f}" for name, value in errors.items()]
            shown.print(f"  {count:,}: {', '.join(parts).replace('median_percent ', '')}")
    for item in fitted.next_runs[:1]:
        shown.print(
            f"\nmeasure next: {item.concurrency:,} clients, {item.input_len:,} tokens in, {item.output_len:,} out; it "
            f"would take {item.reduction:.0%} off the variance that is left"
        )
    for line in fitted.left_out:
        shown.print(f"left out: {escape(line)}", style="dim")
    shown.print(f"\nwrote {escape(str(out))}; use it with --latency-profile {escape(str(out))}")


def check_text(checked: Sequence["Checked"], knee: "Knee | None", summary: dict[str, dict[str, float]]) -> None:
    """Each run's figures, then errors over those that were not overloaded."""
    shown = console()
    for item in checked:
        load = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in item.load.items())
        shown.print(f"[bold]{escape(item.name)}[/]" + (f" ({escape(load)})" if load else ""))
        for side in ("measured", "simulated"):
            for reason in getattr(item, f"{side}_overload"):
                shown.print(f"  {side}: overloaded, {escape(reason)}")
        made = table("", "measured", "simulated", "error")
        for row in item.rows:
            error = "–" if row.error_percent is None else f"{row.error_percent:+.1f} %"
            if row.name in SHOWN_FIGURES:
                made.add_row(row.name.replace("_s.", " "), _time(row.measured), _time(row.simulated), error)
            else:
                made.add_row(row.name.replace("_", " "), f"{row.measured:,.4g}", f"{row.simulated:,.4g}", error)
        print_table(shown, made)
        for note in item.notes:
            shown.print(f"  {escape(note)}", style="dim")
        shown.print()
    overloaded = sum(item.is_overloaded for item in checked)
    if len(checked) > 1 and summary:
        made = table(f"{len(checked) - overloaded} runs below saturation, errors in %", "median", "mean", "bias")
        for name, errors in summary.items():
            made.add_row(name, *(f"{errors[f'{key}_percent']:.1f}" for key in ("median", "mean", "bias")))
        print_table(shown, made)
    if overloaded:
        shown.print(f"{overloaded} overloaded, in no average: their latencies say how long they queued")
    if knee is not None:
        shown.print(f"knee, {knee.unit}: measured {_between(knee.measured)}, simulated {_between(knee.simulated)}")


def _between(loads: tuple[float, float] | None) -> str:
    return "above all measured" if loads is None else f"between {loads[0]:g} and {loads[1]:g}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
