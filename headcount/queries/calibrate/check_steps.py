"""How far are simulated step times from recorded ones?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibrate.check.steps import CHUNKS, DECODES, CheckedSteps, check_steps
from calibrate.recording import Recording
from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import Facts, find_diagnostics
from headcount.queries.result import Result

_COUNTED: Final = {DECODES: "sequences", CHUNKS: "tokens"}
_OF_REQUESTS: Final = ("ttft_s", "tpot_s", "length_spread", "warmup_s")


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
