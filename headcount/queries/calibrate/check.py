"""How far are simulated latencies from measured ones?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.check.doctor import Diagnosis, diagnose
from calibrate.check.largest_loads import LargestLoad, largest_loads
from calibrate.check.replay import Replay, replay
from calibrate.check.runs import Checked, Row, check_run, summary_rows
from calibrate.fit.inputs import read_inputs
from headcount.diagnostics import Facts, find_diagnostics
from headcount.inputs.deployments import given_arguments
from headcount.queries.calibrate.check_steps import StepsCheckResult, steps_answer
from headcount.queries.report_data.assumptions import of_terms
from headcount.queries.report_data.deployment import deployment_json
from headcount.queries.report_data.measured import latency_name, measured_json
from headcount.queries.report_data.memory import memory_json
from headcount.queries.result import Progress, Result, Watch, question, unwatched
from headcount.views.summary.summary import LATENCY_WORDS, Summary, risk_of
from headcount.text.blocks import Block, Line, Table
from headcount.text.diagnosis import diagnosis_lines
from headcount.text.units import counted
from headcount.text.words import model_title, sentence
from simulator.study.slo import find_slo

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

SHOWN_FIGURES = tuple(
    f"{latency}.{key}" for latency in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for key in ("mean", "p50", "p90", "p99")
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckResult(Result):
    """Measured runs beside their simulations; overloaded ones are in no average."""

    kind = "calibration check"
    checked: tuple[Checked, ...]
    largest_loads: tuple[LargestLoad, ...]  # within the limits that were asked for
    errors: Mapping[str, Mapping[str, float]]
    first: Replay  # whose deployment the page names
    diagnosis: Diagnosis | None  # None where nothing is expected of the server

    def figures(self) -> dict[str, Any]:
        return {
            "runs": [item.to_json() for item in self.checked],
            "summary": self.errors,
            "largest_loads": [item.to_json() for item in self.largest_loads],
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_json(),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"run": item.name, "overloaded": item.is_overloaded, "figure": row.name, **row.to_json()}
            for item in self.checked
            for row in item.rows
        ]

    def summary(self) -> Summary:
        plan = self.first.deployment
        verdict = diagnosis_lines(self.diagnosis) or ["Nothing is expected of this server: its step times were given"]
        verdict = [sentence(line.strip().removeprefix("verdict: ")) for line in verdict]
        means = [(name, errors) for name, errors in self.errors.items() if name.endswith("_s.mean")]
        sizes = [(name, errors["median_percent"]) for name, errors in means]
        return Summary(
            question=f"Is {model_title(plan.architecture.name)} on {plan.gpu.title} as fast as it should be?",
            answer=verdict[0],
            figures=(
                ("measured runs", f"{len(self.checked)}"),
                *((f"median error of {latency_name(name)}", f"{error:.1f} %") for name, error in sizes[:3]),
            ),
            sure=" ".join(f"{line}." for line in verdict[1:]),
            risk=risk_of(
                self.diagnostics, "Latencies of overloaded runs show how long requests queued; they are left out."
            ),
            words=LATENCY_WORDS,
        )

    def details(self) -> dict[str, Any]:
        plan = self.first.deployment
        return {
            "measured": measured_json(self.checked),
            "deployment": deployment_json(plan, 1),
            "memory": memory_json(plan.budget),
            "assumptions": of_terms("memory and step times", plan.assumptions),
        }

    def head(self) -> list[Block]:
        plan = self.first.deployment
        what = Line(f" on {plan.gpu.name}: {counted(len(self.checked), 'measured run')}", bold=plan.architecture.name)
        return [what, *map(Line, diagnosis_lines(self.diagnosis))]

    def body(self) -> list[Block]:
        return [*(block for item in self.checked for block in _run_blocks(item)), *self._together()]

    def _together(self) -> list[Block]:
        lines: list[Block] = []
        overloaded = sum(item.is_overloaded for item in self.checked)
        if len(self.checked) > 1 and self.errors:
            title = f"{len(self.checked) - overloaded} runs below saturation, errors in %"
            keys = ("median", "mean", "bias")
            rows = [
                (name, *(f"{errors[f'{key}_percent']:.1f}" for key in keys)) for name, errors in self.errors.items()
            ]
            lines.append(Table(columns=(title, *keys), rows=rows))
        if overloaded:
            why = "their latencies show how long requests queued"
            lines.append(Line(f"{overloaded} overloaded and excluded from the averages: {why}"))
        if self.largest_loads:
            columns = ("largest load within a mean latency", "measured", "simulated", "9 of 10 lie in", "error")
            lines.append(Table(columns=columns, rows=[_load_cells(item) for item in self.largest_loads]))
        return lines


@question
def check(
    paths: Sequence[str | Path],
    *,
    format_name: str | None = None,
    startup_log: "StartupLog | None" = None,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    strict: bool = False,
    progress: Watch = unwatched,
    **given: Any,
) -> CheckResult | StepsCheckResult:
    """Simulate measured runs or recorded steps, and lay each time beside the measured one.

    `ttft_s`, `tpot_s` are limits on mean latencies, by default those of a chat service: the answer says at which load
    runs that differ in it alone reach them. `given` are the model, the GPU and engine arguments that win over what the
    files say of the server. Raises ValueError where the files cannot be read or do not say enough, RefusedError where
    `strict` refuses a note.
    """
    if not paths:
        raise ValueError("paths is empty; give at least one measured run")
    slo = find_slo(ttft_s=ttft_s, tpot_s=tpot_s)
    values = given_arguments(given, startup_log)
    inputs = read_inputs([Path(path) for path in paths], format_name)
    if inputs.recordings and inputs.runs:
        raise ValueError("some inputs hold engine steps, others requests; check one kind after the other")
    if inputs.recordings:
        return steps_answer(inputs.recordings, values, strict=strict, ttft_s=ttft_s, tpot_s=tpot_s)
    checked, replays = [], []
    for number, run in enumerate(inputs.runs):
        progress(Progress(number, len(inputs.runs), run.source.name))
        replays.append(replay(run, values))
        checked.append(check_run(replays[-1]))
    count = len(inputs.runs)
    pairs = list(zip(replays, checked, strict=True))
    diagnosis = diagnose(pairs, values, lambda note: progress(Progress(count, count, f"with {note}")))
    facts = Facts(architecture=replays[0].deployment.architecture, plans=[item.deployment for item in replays])
    return CheckResult(
        diagnostics=find_diagnostics(facts, strict=strict),
        checked=tuple(checked),
        largest_loads=largest_loads(checked, replays[0].deployment.latency, slo),
        errors=summary_rows(checked),
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
