"""Which step times follow from what was measured of a server?"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrate.fit.inputs import read_inputs
from calibrate.fit.profile_fit import Fitted
from calibrate.fit.profile_fit import fit as fit_inputs
from files.documents import Json
from files.errors import HeadcountError
from files.outputs import check_out_file, check_out_files, write_whole
from headcount.diagnostics import Facts, find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.question import question
from headcount.inputs.run import unwatched
from headcount.queries.result import Progress, Result, Watch
from simulator.engines.argument import Settings
from simulator.latency.profile_file import profile_text

NOT_FITTED = ("latency_model", "step_s", "latency_profile")
LEARNED_SD, LEARNED_SHIFT = 0.7, 0.3  # of the prior's standard deviation: a term that moved less is as before


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitResult(Result):
    """A latency profile, how far it is off where it was not fitted, what to measure next."""

    kind = "calibration fit"
    view = "calibration_fit"
    fitted: Fitted
    saved: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> "FitResult":
        """Write the profile for --latency-profile; the file appears whole or not at all."""
        check_out_file("out", Path(path), example="profile.toml")
        check_out_files({"out": Path(path)}, self.inputs)
        write_whole(path, profile_text(self.fitted.profile))
        return replace(self, saved=Path(path))

    def figures(self) -> Json:
        return self.fitted.to_json()

    def rows(self) -> list[Json]:
        return [dict(term) for term in self.fitted.to_json()["terms"]]


@question
def fit(
    paths: Sequence[str | Path],
    *,
    name: str = "profile",
    out: str | Path | None = None,
    measured: MeasuredInput = MeasuredInput(),
    engine: EngineInput = EngineInput(),
    force: bool = False,
    progress: Watch = unwatched,
) -> FitResult:
    """Fit step times to recordings of engine steps or to benchmark results; `save()` writes the profile.

    The model, the GPU and engine arguments win over what the files say of the server. Raises
    ValueError where the files cannot be read or do not say enough, and, without `force`, where the profile misses the
    very data that it was fitted to; `out` is a file that must not be among them.
    """
    for option in NOT_FITTED:
        if engine.arguments.get(option) is not None:
            raise HeadcountError(f"--{option.replace('_', '-')} cannot be fitted; leave it out")
    values: Settings = measured.with_engine(engine)
    inputs = read_inputs([*map(Path, paths)], measured.format_name, before=measured.snapshot_before, load=measured.load)
    if out is not None and Path(out).resolve() in inputs.files:
        raise HeadcountError(f"--out {out}: is one of the files to fit, which it would replace; name another")
    fitted = fit_inputs(inputs, values, name=name, force=force, watch=lambda note: progress(Progress(0, 1, note)))
    return FitResult(diagnostics=find_diagnostics(Facts()), fitted=fitted)
