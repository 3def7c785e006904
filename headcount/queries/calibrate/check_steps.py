"""How far are simulated step times from recorded ones?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibrate.check.steps import CHUNKS, DECODES, CheckedSteps, check_steps
from calibrate.recording import Recording
from headcount.diagnostics import Facts, find_diagnostics
from headcount.queries.report_data.assumptions import of_terms
from headcount.queries.report_data.deployment import deployment_json
from headcount.queries.report_data.memory import memory_json
from headcount.queries.result import Result
from headcount.views.summary.summary import Summary, risk_of
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, milliseconds
from headcount.text.words import model_title, sentence

_NAMES: Final = {DECODES: "decodes alone", CHUNKS: "full of prompt tokens"}
_COUNTED: Final = {DECODES: "sequences", CHUNKS: "tokens"}
_OF_REQUESTS: Final = ("ttft_s", "tpot_s", "length_spread", "warmup_s")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepsCheckResult(Result):
    """Recorded engine steps beside the simulator's step times."""

    kind = "calibration check of steps"
    checked: tuple[CheckedSteps, ...]  # one for each recording

    def figures(self) -> dict[str, Any]:
        return {"recordings": [_recording_json(item) for item in self.checked]}

    def rows(self) -> list[dict[str, Any]]:
        return [{"recording": number, **row} for number, item in enumerate(self.checked) for row in _rows_json(item)]

    def summary(self) -> Summary:
        first = self.checked[0]
        verdict = _verdict_lines(first) or ["No verdict: the step times were given, or no decodes were recorded"]
        return Summary(
            question=f"Are steps of {model_title(first.deployment.architecture.name)} on {first.deployment.gpu.title} "
            "as fast as they should be?",
            answer=sentence(verdict[0].removeprefix("verdict: ")),
            figures=tuple(
                (f"median error, {_NAMES[name]}", f"{errors['median_percent']:.1f} %")
                for name, errors in first.summary().items()
            ),
            sure="Each error is that of a median over steps of one load and batch.",
            risk=risk_of(self.diagnostics, "Steps say nothing of the time that the API server and its queue add."),
        )

    def details(self) -> dict[str, Any]:
        plan = self.checked[0].deployment
        return {
            "deployment": deployment_json(plan, 1),
            "memory": memory_json(plan.budget),
            "assumptions": of_terms("memory and step times", plan.assumptions),
        }

    def head(self) -> list[Block]:
        return _head(self.checked[0])

    def body(self) -> list[Block]:
        first, *others = self.checked
        return [*_body(first), *(block for item in others for block in (Line(), *_head(item), Line(), *_body(item)))]


def steps_answer(
    recordings: Sequence[Recording], values: Mapping[str, Any], *, strict: bool, **of_requests: float | None
) -> StepsCheckResult:
    """Raises ValueError for an option of requests, or where a recording does not say enough."""
    asked = {**values, **of_requests}
    for name in _OF_REQUESTS:
        if asked.get(name) is not None:
            option = name.removesuffix("_s").replace("_", "-")
            raise ValueError(f"--{option} is about requests, and a recording holds engine steps; leave it out")
    checked = tuple(check_steps(recording, values) for recording in recordings)
    plans = [item.deployment for item in checked]
    facts = Facts(architecture=plans[0].architecture, plans=plans)
    return StepsCheckResult(diagnostics=find_diagnostics(facts, strict=strict), checked=checked)


def _recording_json(item: CheckedSteps) -> dict[str, Any]:
    return {
        "model": item.deployment.architecture.name,
        "gpu": item.deployment.gpu.name,
        "steps": item.num_steps,
        "as_it_should_be": item.is_expected,
        "decode_ratio": item.decode_ratio,
        "limit_factor": None if item.is_expected is None else item.limit,
        "summary": item.summary(),
        "rows": _rows_json(item),
        "excluded": dict(item.excluded),
    }


def _rows_json(item: CheckedSteps) -> list[dict[str, Any]]:
    return [
        {"steps": name, "load": row["load"], _COUNTED[name]: int(row[_COUNTED[name]]),
         "decode_context": float(row["decode_context"]), "measured_s": float(row["cycle_s"]),
         "simulated_s": float(row["predicted_s"]), "error_percent": float(row["error"])}
        for name, rows in item.tables.items()
        for row in rows.reset_index().to_dict("records")
    ]  # fmt: skip


def _verdict_lines(item: CheckedSteps) -> list[str]:
    if item.is_expected is None or item.decode_ratio is None:
        return []
    ratio, gpu = item.decode_ratio, item.deployment.gpu.name
    if item.is_expected:
        verdict = f"decodes are as fast as they should be with {gpu}"
    else:
        speed = f"{ratio:.2f} × slower" if ratio > 1 else f"{1 / ratio:.2f} × faster"
        verdict = f"decodes are {speed} than they should be with {gpu}"
    return [
        f"verdict: {verdict}",
        f"measured over simulated, median of the rows below: {ratio:.2f} ×; 90 % of servers lie within "
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
        columns = (_NAMES[name], _COUNTED[name], "decode context", "measured", "simulated", "error")
        blocks += [
            Table(columns=columns, rows=[_cells(row, _COUNTED[name]) for row in rows]),
            Line(
                f"error, median: {errors['bias_percent']:+.1f} %; its size: median {errors['median_percent']:.1f} %, "
                f"largest {errors['largest_percent']:.1f} %"
            ),
            Line(),
        ]
    return [*blocks, *(Line(f"left out: {count:,} {reason}", dim=True) for reason, count in item.excluded.items())]


def _cells(row: Mapping[str, Any], count: str) -> tuple[str, ...]:
    times = (milliseconds(row["measured_s"]), milliseconds(row["simulated_s"]))
    return (
        row["load"] or "–",
        f"{row[count]:,}",
        f"{row['decode_context']:,.0f}",
        *times,
        f"{row['error_percent']:+.1f} %",
    )
