"""How far are simulated latencies from measured ones?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.check.doctor import Diagnosis, diagnose
from calibrate.check.replay import Replay, replay
from calibrate.check.runs import Checked, Knee, Row, check_run, find_knee, summary_rows
from calibrate.fit.inputs import read_inputs
from headcount.answers.answer import Answer, Progress, Watch, question, unwatched
from headcount.answers.notes import Facts, find_notes
from headcount.questions.deployments import given_arguments
from headcount.text.blocks import Block, Line, Table
from headcount.text.diagnosis import diagnosis_lines
from headcount.text.units import counted

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

SHOWN_FIGURES = tuple(
    f"{latency}.{key}" for latency in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for key in ("mean", "p50", "p90", "p99")
)
SUFFIXES = (".html", ".svg")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckAnswer(Answer):
    """Measured runs beside their simulations; overloaded ones are in no average."""

    page = "check_page"
    suffixes = SUFFIXES
    checked: tuple[Checked, ...]
    knee: Knee | None
    summary: Mapping[str, Mapping[str, float]]
    first: Replay  # whose deployment the page names
    diagnosis: Diagnosis | None  # None where nothing is expected of the server

    def figures(self) -> dict[str, Any]:
        knee = None if self.knee is None else vars(self.knee)
        diagnosis = None if self.diagnosis is None else self.diagnosis.to_json()
        runs = [item.to_json() for item in self.checked]
        return {"runs": runs, "summary": self.summary, "knee": knee, "diagnosis": diagnosis}

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"run": item.name, "overloaded": item.is_overloaded, "figure": row.name, **row.to_json()}
            for item in self.checked
            for row in item.rows
        ]

    def head(self) -> list[Block]:
        plan = self.first.deployment
        what = Line(f" on {plan.gpu.name}: {counted(len(self.checked), 'measured run')}", bold=plan.architecture.name)
        return [what, *map(Line, diagnosis_lines(self.diagnosis))]

    def body(self) -> list[Block]:
        return [*(block for item in self.checked for block in _run_blocks(item)), *self._together()]

    def _together(self) -> list[Block]:
        lines: list[Block] = []
        overloaded = sum(item.is_overloaded for item in self.checked)
        if len(self.checked) > 1 and self.summary:
            title = f"{len(self.checked) - overloaded} runs below saturation, errors in %"
            keys = ("median", "mean", "bias")
            rows = [
                (name, *(f"{errors[f'{key}_percent']:.1f}" for key in keys)) for name, errors in self.summary.items()
            ]
            lines.append(Table(columns=(title, *keys), rows=rows))
        if overloaded:
            why = "their latencies show how long requests queued"
            lines.append(Line(f"{overloaded} overloaded and excluded from the averages: {why}"))
        if self.knee is not None:
            between = f"measured {_between(self.knee.measured)}, simulated {_between(self.knee.simulated)}"
            lines.append(Line(f"knee, {self.knee.unit}: {between}"))
        return lines


@question
def check(
    paths: Sequence[str | Path],
    *,
    format_name: str | None = None,
    startup_log: "StartupLog | None" = None,
    strict: bool = False,
    progress: Watch = unwatched,
    **given: Any,
) -> CheckAnswer:
    """Simulate measured runs as they were sent, and lay each latency beside the measured one.

    `given` are the model, the GPU and engine arguments that win over what the files say of the server. Raises
    ValueError where the files cannot be read or do not say enough, RefusedError where `strict` refuses a note.
    """
    if not paths:
        raise ValueError("paths is empty; give at least one measured run")
    values = given_arguments(given, startup_log)
    inputs = read_inputs([Path(path) for path in paths], format_name)
    if not inputs.runs:
        raise ValueError(f"{paths[0]} holds engine steps, not requests; give a benchmark's result")
    checked, replays = [], []
    for number, run in enumerate(inputs.runs):
        progress(Progress(number, len(inputs.runs), run.source.name))
        replays.append(replay(run, values))
        checked.append(check_run(replays[-1]))
    count = len(inputs.runs)
    pairs = list(zip(replays, checked, strict=True))
    diagnosis = diagnose(pairs, values, lambda note: progress(Progress(count, count, f"with {note}")))
    facts = Facts(architecture=replays[0].deployment.architecture, plans=[item.deployment for item in replays])
    return CheckAnswer(
        notes=find_notes(facts, strict=strict),
        checked=tuple(checked),
        knee=find_knee(checked),
        summary=summary_rows(checked),
        first=replays[0],
        diagnosis=diagnosis,
    )


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
        return row.name.replace("_s.", " "), _time(row.measured), _time(row.simulated), error
    return row.name.replace("_", " "), f"{row.measured:,.4g}", f"{row.simulated:,.4g}", error


def error_text(row: Row) -> str:
    return "–" if row.error_percent is None else f"{row.error_percent:+.1f} %"


def _between(loads: tuple[float, float] | None) -> str:
    return "above all measured" if loads is None else f"between {loads[0]:g} and {loads[1]:g}"


def _time(value_s: float) -> str:
    return f"{value_s * 1e3:.1f} ms" if value_s < 1 else f"{value_s:.2f} s"
