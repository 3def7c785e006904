"""Simulated compared with recorded step times, in words."""

from typing import Final

from calibrate.check.steps import CHUNKS, DECODES, CheckedSteps
from files.documents import ReadJson
from headcount.queries.calibrate.check import _COUNTED, StepsCheckResult, _rows_json
from headcount.text.blocks import Block, Column, Line, table_of
from headcount.text.units import counted, milliseconds, signed
from headcount.text.words import model_title, sentence
from headcount.views.report_data.study import server_json
from headcount.views.summary.summary import Summary, risk_of

_NAMES: Final = {DECODES: "decodes alone", CHUNKS: "full of prompt tokens"}


def summary(answer: StepsCheckResult) -> Summary:
    first = answer.checked[0]
    verdict = _verdict_lines(first) or ["No verdict: the step times were given, or no decode steps were recorded"]
    return Summary(
        question=f"Are steps of {model_title(first.deployment.architecture.name)} on {first.deployment.gpu.title} "
        "as fast as expected?",
        answer=sentence(verdict[0].removeprefix("verdict: ")),
        figures=tuple(
            (f"median error, {_NAMES[name]}", f"{errors['median_percent']:.1f} %")
            for name, errors in first.summary().items()
        ),
        sure="Each error is of the median over the steps of one load and batch.",
        risk=risk_of(answer.diagnostics, "Steps do not include the time in the API server and its queue."),
    )


def head(answer: StepsCheckResult) -> list[Block]:
    return _head(answer.checked[0])


def body(answer: StepsCheckResult) -> list[Block]:
    first, *others = answer.checked
    return [*_body(first), *(block for item in others for block in (Line(), *_head(item), Line(), *_body(item)))]


def _verdict_lines(item: CheckedSteps) -> list[str]:
    ratio, gpu = item.decode_ratio, item.deployment.gpu.name
    if item.is_expected is None or ratio is None:
        return []
    speed = f"{ratio:.2f} × slower than" if ratio > 1 else f"{1 / ratio:.2f} × faster than"
    return [
        f"verdict: decode steps are {'as fast as' if item.is_expected else speed} expected for {gpu}",
        f"measured / simulated, median of the rows below: {ratio:.2f} ×; 90 % of servers lie within "
        f"±{item.limit - 1:.0%}",
    ]


def _head(item: CheckedSteps) -> list[Block]:
    plan = item.deployment
    what = Line(f" on {plan.gpu.name}: {counted(item.num_steps, 'recorded step')}", bold=plan.architecture.name)
    verdict, *figures = _verdict_lines(item) or [""]
    return [what, *([Line(verdict)] if verdict else []), *(Line(f"  {line}") for line in figures)]


def _body(item: CheckedSteps) -> list[Block]:
    blocks: list[Block] = []
    for name, errors in item.summary().items():
        rows = [row for row in _rows_json(item) if row["steps"] == name]
        blocks += [
            table_of(_columns(name), rows),
            Line(
                f"error, median: {signed(errors['bias_percent'], 1)} %; its size: median "
                f"{errors['median_percent']:.1f} %, largest {errors['largest_percent']:.1f} %"
            ),
            Line(),
        ]
    return [*blocks, *(Line(f"left out: {count:,} {reason}", dim=True) for reason, count in item.excluded.items())]


def _columns(name: str) -> list[Column[ReadJson]]:
    """Of the rows of one kind of step."""
    counted_as = _COUNTED[name]
    return [
        Column(_NAMES[name], lambda row: row["load"] or "–", is_text=True),
        Column(counted_as, lambda row: f"{row[counted_as]:,}"),
        Column("decode context", lambda row: f"{row['decode_context']:,.0f}"),
        Column("measured", lambda row: milliseconds(row["measured_s"])),
        Column("simulated", lambda row: milliseconds(row["simulated_s"])),
        Column("error", lambda row: f"{signed(row['error_percent'], 1)} %"),
    ]


def details(answer: StepsCheckResult) -> dict[str, object]:
    return server_json(answer.checked[0].deployment)
