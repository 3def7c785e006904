"""How far are simulated latencies from measured ones, and simulated step times from recorded ones?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibrate.check.doctor import Diagnosis, diagnose
from calibrate.check.largest_loads import LargestLoad, largest_loads
from calibrate.check.replay import Replay, replay
from calibrate.check.runs import Checked, check_run, summary_rows
from calibrate.check.steps import CHUNKS, DECODES, CheckedSteps, check_steps
from calibrate.fit.inputs import read_inputs
from calibrate.recording import Recording
from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import Facts, find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.question import question
from headcount.inputs.run import unwatched
from headcount.queries.result import Progress, Result, Watch
from simulator.study.slo import find_slo

_COUNTED: Final = {DECODES: "sequences", CHUNKS: "tokens"}
_OF_REQUESTS: Final = ("ttft_s", "tpot_s", "length_spread", "warmup_s", "until_s")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepsCheckResult(Result):
    """Recorded engine steps beside the simulator's step times."""

    kind = "calibration check of steps"
    view = "steps_check"
    checked: tuple[CheckedSteps, ...]  # one for each recording

    def figures(self) -> Json:
        return {"recordings": [_recording_json(item) for item in self.checked]}

    def rows(self) -> list[Json]:
        return [{"recording": number, **row} for number, item in enumerate(self.checked) for row in _rows_json(item)]


def steps_answer(
    recordings: Sequence[Recording], values: Mapping[str, object], *, strict: bool, **of_requests: float | None
) -> StepsCheckResult:
    """Raises HeadcountError for an option of requests, or where a recording does not say enough."""
    asked = {**values, **of_requests}
    for name in _OF_REQUESTS:
        if asked.get(name) is not None:
            option = name.removesuffix("_s").replace("_", "-")
            raise HeadcountError(f"--{option} is about requests, and a recording holds engine steps; leave it out")
    checked = tuple(check_steps(recording, values) for recording in recordings)
    plans = [item.deployment for item in checked]
    facts = Facts(architecture=plans[0].architecture, plans=plans)
    return StepsCheckResult(diagnostics=find_diagnostics(facts, strict=strict), checked=checked)


def _recording_json(item: CheckedSteps) -> dict[str, object]:
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


def _rows_json(item: CheckedSteps) -> list[dict[str, object]]:
    return [
        {"steps": name, "load": row["load"], _COUNTED[name]: int(row[_COUNTED[name]]),
         "decode_context": float(row["decode_context"]), "measured_s": float(row["cycle_s"]),
         "simulated_s": float(row["predicted_s"]), "error_percent": float(row["error"])}
        for name, rows in item.tables.items()
        for row in rows.reset_index().to_dict("records")
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckResult(Result):
    """Measured runs beside their simulations; overloaded ones are in no average."""

    kind = "calibration check"
    view = "calibration_check"
    checked: tuple[Checked, ...]
    largest_loads: tuple[LargestLoad, ...]  # within the limits that were asked for
    errors: Mapping[str, Mapping[str, float]]
    first: Replay  # whose deployment the page names
    diagnosis: Diagnosis | None  # None where nothing is expected of the server

    def figures(self) -> Json:
        return {
            "runs": [item.to_json() for item in self.checked],
            "summary": self.errors,
            "largest_loads": [item.to_json() for item in self.largest_loads],
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_json(),
        }

    def rows(self) -> list[Json]:
        return [
            {"run": item.name, "overloaded": item.is_overloaded, "figure": row.name, **row.to_json()}
            for item in self.checked
            for row in item.rows
        ]


@question
def check(
    paths: Sequence[str | Path],
    *,
    measured: MeasuredInput = MeasuredInput(),
    engine: EngineInput = EngineInput(),
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    strict: bool = False,
    progress: Watch = unwatched,
) -> CheckResult | StepsCheckResult:
    """Simulate measured runs or recorded steps, and lay each time beside the measured one.

    `ttft_s`, `tpot_s` are limits on mean latencies, by default those of a chat service: the answer says at which load
    runs that differ in it alone reach them. The model, the GPU and engine arguments win over what the files say of the
    server. Raises ValueError where the files cannot be read or do not say enough, RefusedError where
    `strict` refuses a note.
    """
    if not paths:
        raise HeadcountError("paths is empty; give at least one measured run")
    slo = find_slo(ttft_s=ttft_s, tpot_s=tpot_s)
    values = measured.with_engine(engine)
    inputs = read_inputs([*map(Path, paths)], measured.format_name, before=measured.snapshot_before, load=measured.load)
    if inputs.recordings and inputs.runs:
        raise HeadcountError("some inputs hold engine steps, others requests; check one kind after the other")
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
    facts = Facts(
        architecture=replays[0].deployment.architecture,
        plans=[item.deployment for item in replays],
        sequences=None if diagnosis is None else diagnosis.fit.sequences,
    )
    return CheckResult(
        diagnostics=find_diagnostics(facts, strict=strict),
        checked=tuple(checked),
        largest_loads=largest_loads(checked, replays[0].deployment.latency, slo),
        errors=summary_rows(checked),
        first=replays[0],
        diagnosis=diagnosis,
    )
