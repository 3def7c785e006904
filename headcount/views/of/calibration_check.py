"""Simulated compared with measured latencies, in words."""

from calibrate.check.largest_loads import LargestLoad
from calibrate.check.runs import Checked, Row
from headcount.queries.calibrate.check import CheckResult
from headcount.text.blocks import Block, Line, Table
from headcount.text.diagnosis import diagnosis_lines
from headcount.text.units import counted
from headcount.text.words import model_title, sentence
from headcount.views.report_data.assumptions import of_terms
from headcount.views.report_data.deployment import deployment_json
from headcount.views.report_data.measured import latency_name, measured_json
from headcount.views.report_data.memory import memory_json
from headcount.views.summary.summary import LATENCY_WORDS, Summary, risk_of

SHOWN_FIGURES = tuple(
    f"{latency}.{key}" for latency in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for key in ("mean", "p50", "p90", "p99")
)


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
        columns = ("largest load within a mean latency", "measured", "simulated", "90 % interval", "error")
        lines.append(Table(columns=columns, rows=[_load_cells(item) for item in answer.largest_loads]))
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
    return "–" if row.error_percent is None else f"{row.error_percent:+.1f} %"


def _load_cells(item: LargestLoad) -> tuple[str, ...]:
    lengths = [
        f"{item.of[name]:g} {word}" for name, word in (("input_len", "in"), ("output_len", "out")) if name in item.of
    ]
    limit = f"{item.unit}, {item.latency.removesuffix('_s').upper()} ≤ {_time(item.limit_s)}"
    what = ", ".join([limit, *lengths])
    return (
        what,
        _load(item.measured),
        _load(item.simulated),
        f"{_load(item.low)} – {_load(item.high)}",
        error_text(item),
    )


def _load(value: float | None) -> str:
    return "outside the runs" if value is None else f"{value:.3g}"


def _time(value_s: float) -> str:
    return f"{value_s * 1e3:.1f} ms" if value_s < 1 else f"{value_s:.2f} s"


def details(answer: CheckResult) -> dict[str, object]:
    plan = answer.first.deployment
    return {
        "measured": measured_json(answer.checked),
        "deployment": deployment_json(plan, 1),
        "memory": memory_json(plan.budget),
        "assumptions": of_terms("memory and step times", plan.assumptions),
    }
