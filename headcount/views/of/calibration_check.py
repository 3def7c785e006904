"""Simulated compared with measured latencies, in words."""

from collections.abc import Sequence
from typing import Final

from calibrate.check.doctor import Diagnosis, Explanation, Fit
from calibrate.check.largest_loads import LargestLoad
from calibrate.check.runs import Checked, Row
from files.documents import Json
from headcount.queries.calibrate.check import CheckResult
from headcount.queries.report_data.percentiles import PERCENTILES, percentiles_json
from headcount.text.blocks import Block, Column, Line, Table, table_of
from headcount.text.units import counted, latency_text, signed
from headcount.text.words import model_title, sentence
from headcount.views.report_data.study import server_json
from headcount.views.summary.summary import LATENCY_WORDS, Summary, risk_of

MOST_DISTRIBUTIONS: Final = 6
DRAWN: Final = ("ttft_s", "tpot_s", "e2e_s")
LATENCIES: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "E2E"}
SHOWN_FIGURES = tuple(f"{latency}.{key}" for latency in LATENCIES for key in ("mean", "p50", "p90", "p99"))


def summary(answer: CheckResult) -> Summary:
    plan = answer.first.deployment
    verdict = diagnosis_lines(answer.diagnosis) or ["No verdict: the step times were given"]
    verdict = [sentence(line.strip().removeprefix("verdict: ")) for line in verdict]
    means = [(name, errors) for name, errors in answer.errors.items() if name.endswith("_s.mean")]
    sizes = [(name, errors["median_percent"]) for name, errors in means]
    return Summary(
        question=f"Is {model_title(plan.architecture.name)} on {plan.gpu.title} as fast as expected?",
        answer=verdict[0],
        figures=(
            ("measured runs", f"{len(answer.checked)}"),
            *((f"median error of {latency_name(name)}", f"{error:.1f} %") for name, error in sizes[:3]),
        ),
        sure=" ".join(f"{line}." for line in verdict[1:]),
        risk=risk_of(answer.diagnostics, "Overloaded runs are left out, because their latencies are mostly queueing."),
        words=LATENCY_WORDS,
    )


def head(answer: CheckResult) -> list[Block]:
    plan = answer.first.deployment
    what = Line(f" on {plan.gpu.name}: {counted(len(answer.checked), 'measured run')}", bold=plan.architecture.name)
    return [what, *map(Line, diagnosis_lines(answer.diagnosis))]


def body(answer: CheckResult) -> list[Block]:
    return [*(block for item in answer.checked for block in _run_blocks(item)), *_together(answer)]


def _together(answer: CheckResult) -> list[Block]:
    lines: list[Block] = []
    overloaded = sum(item.is_overloaded for item in answer.checked)
    if len(answer.checked) > 1 and answer.errors:
        title = f"{len(answer.checked) - overloaded} runs below saturation, errors in %"
        keys = ("median", "mean", "bias")
        rows = [(name, *(f"{errors[f'{key}_percent']:.1f}" for key in keys)) for name, errors in answer.errors.items()]
        lines.append(Table(columns=(title, *keys), rows=rows))
    if overloaded:
        why = "their latencies are mostly queueing"
        lines.append(Line(f"{overloaded} overloaded and excluded from the averages: {why}"))
    if answer.largest_loads:
        lines.append(table_of(LARGEST_LOADS, answer.largest_loads))
    return lines


def _run_blocks(item: Checked) -> list[Block]:
    load = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in item.load.items())
    reasons = [("measured", item.measured_overload), ("simulated", item.simulated_overload)]
    return [
        Line(f" ({load})" if load else "", bold=item.name),
        *(Line(f"  {side}: overloaded, {reason}") for side, found in reasons for reason in found),
        Table(columns=("", "measured", "simulated", "error"), rows=[_figure_cells(row) for row in item.rows]),
        *(Line(f"  {note}", dim=True) for note in item.notes),
        Line(),
    ]


def _figure_cells(row: Row) -> tuple[str, ...]:
    error = error_text(row)
    if row.name in SHOWN_FIGURES:
        latency, _, statistic = row.name.partition("_s.")
        return f"{latency.upper()} {statistic}", _time(row.measured), _time(row.simulated), error
    return row.name.replace("_", " "), f"{row.measured:,.4g}", f"{row.simulated:,.4g}", error


def error_text(row: Row | LargestLoad) -> str:
    return "–" if row.error_percent is None else f"{signed(row.error_percent, 1)} %"


def _load_name(item: LargestLoad) -> str:
    named = (("input_len", "in"), ("output_len", "out"))
    lengths = [f"{item.of[name]:g} {word}" for name, word in named if name in item.of]
    return ", ".join([f"{item.unit}, {LATENCIES[item.latency]} ≤ {_time(item.limit_s)}", *lengths])


def _load(value: float | None) -> str:
    return "outside the runs" if value is None else f"{value:.3g}"


def _time(value_s: float) -> str:
    return f"{value_s * 1e3:.1f} ms" if value_s < 1 else f"{value_s:.2f} s"


LARGEST_LOADS = (
    Column("largest load within a mean latency", _load_name, is_text=True),
    Column[LargestLoad]("measured", lambda item: _load(item.measured)),
    Column[LargestLoad]("simulated", lambda item: _load(item.simulated)),
    Column[LargestLoad]("90 % interval", lambda item: f"{_load(item.low)} – {_load(item.high)}"),
    Column[LargestLoad]("error", error_text),
)


def details(answer: CheckResult) -> dict[str, object]:
    return {"measured": measured_json(answer.checked), **server_json(answer.first.deployment)}


def diagnosis_lines(diagnosis: Diagnosis | None) -> list[str]:
    """The verdict, then what explains it, one line each; nothing where no verdict is possible."""
    if diagnosis is None:
        return []
    lines = [f"verdict: {_verdict(diagnosis)}", f"  {_figures(diagnosis.fit)}"]
    if diagnosis.fit.is_expected:
        return lines
    if not diagnosis.explanations:
        return [*lines, f"  none of the {diagnosis.tried} settings tried explains it; check each run below"]
    first, *others = diagnosis.explanations
    lines.append(f"  best explanation of {diagnosis.tried} tried: {_explained(first)}")
    return [*lines, *(f"  equally good: {_explained(each)}" for each in others)]


def _verdict(diagnosis: Diagnosis) -> str:
    fit, gpu = diagnosis.fit, diagnosis.gpu
    if fit.is_expected:
        return f"your server is as fast as expected for {gpu}"
    if not fit.outside:
        run, name, ratio = fit.worst
        return (
            f"your server is as fast as expected in the median, but {name.upper()} of {run} is {ratio:.2f} × simulated"
        )
    lead = fit.outside[0]
    speed = "slower" if fit.ratios[lead] > 1 else "faster"
    changes = [_change(name, fit.ratios[name]) for name in fit.outside]
    usual = [name.upper() for name in fit.ratios if name not in fit.outside]
    rest = f", {' and '.join(usual)} {'is' if len(usual) == 1 else 'are'} as expected" if usual else ""
    return f"your server is {speed} than expected for {gpu}: {', '.join(changes)}{rest}"


def _change(name: str, ratio: float) -> str:
    return f"{name.upper()} is {abs(ratio - 1):.0%} {'higher' if ratio > 1 else 'lower'}"


def _figures(fit: Fit) -> str:
    *others, last = (f"±{limit - 1:.0%} ({name.upper()})" for name, limit in fit.limits.items())
    limits = f"{', '.join(others)} and {last}" if others else last
    return f"measured / simulated, median over runs: {_ratios(fit)}; 90 % of servers lie within {limits}"


def _explained(explanation: Explanation) -> str:
    rest = "" if explanation.fit.is_expected else "; the rest remains unexplained"
    return f"{explanation.words}: then {_ratios(explanation.fit)}{rest}"


def _ratios(fit: Fit) -> str:
    return ", ".join(f"{name.upper()} {ratio:.2f} ×" for name, ratio in fit.ratios.items())


def latency_name(name: str) -> str:
    """Such as `mean TTFT` of `ttft_s.mean`."""
    latency, _, statistic = name.partition(".")
    return f"{statistic} {LATENCIES.get(latency, latency)}".strip().replace("_", " ")


def measured_json(checked: Sequence[Checked]) -> dict[str, object]:
    """Means of each run, and the distributions of some; overloaded runs are in the table alone."""
    sound = [item for item in checked if not item.is_overloaded]
    return {
        "percentiles": list(PERCENTILES),
        "latencies": [found for name in DRAWN if (found := _latency(sound, name))["measured_s"]],
        "rows": [row for item in checked for row in _rows(item)],
        "distributions": [found for item in sound for found in _distributions(item)][:MOST_DISTRIBUTIONS],
    }


def _latency(sound: Sequence[Checked], name: str) -> dict[str, object]:
    rows = [row for item in sound if (row := item.row(f"{name}.mean")) is not None and row.measured and row.simulated]
    return {
        "name": LATENCIES[name],
        "measured_s": [row.measured for row in rows],
        "simulated_s": [row.simulated for row in rows],
    }


def _rows(item: Checked) -> list[tuple[str, ...]]:
    name = f"{item.name} (overloaded)" if item.is_overloaded else item.name
    return [
        (
            name,
            f"mean {said}",
            latency_text(latency, row.measured),
            latency_text(latency, row.simulated),
            error_text(row),
        )
        for latency, said in LATENCIES.items()
        if (row := item.row(f"{latency}.mean")) is not None
    ]


def _distributions(item: Checked) -> list[Json]:
    found = []
    for name, (measured, simulated) in item.samples.items():
        both = percentiles_json(measured), percentiles_json(simulated)
        if all(both):
            found.append({"run": item.name, "latency": LATENCIES[name], "measured_s": both[0], "simulated_s": both[1]})
    return found
