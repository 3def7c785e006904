"""What do files of real servers and benchmark clients hold?"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from calibrate.check.run_figures import differences, request_figures
from calibrate.fit.inputs import runs_between
from calibrate.measured_run import MeasuredRun
from calibrate.readers import find_format, read_file
from calibrate.recording import Recording
from files.documents import Json
from files.errors import HeadcountError
from files.outputs import check_out_file, check_out_files, whole_file
from headcount.inputs.question import question
from headcount.queries.result import Result

# What a server's metrics say of itself, at the time of the snapshot, or its log of its batches.
_TABLE_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class ReadFile:
    """A file's format and what it holds."""

    path: Path
    format: str
    contents: Sequence[MeasuredRun | Recording]

    def to_json(self) -> Json:
        return {
            "path": str(self.path),
            "format": self.format,
            "runs": [_run_json(run) for run in self.contents if isinstance(run, MeasuredRun)],
            "recordings": [_recording_json(found) for found in self.contents if isinstance(found, Recording)],
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReadResult(Result):
    """Each run of each file: what it is, its load, its latencies beside the tool's own, what was left out."""

    kind = "measurements"
    view = "measurements"
    files: tuple[ReadFile, ...]

    def figures(self) -> Json:
        return {"files": self.rows()}

    def rows(self) -> list[Json]:
        return [file.to_json() for file in self.files]

    def save_requests(self, out: str | os.PathLike[str]) -> int:
        """Write all requests, with their file's path and the run's number in it, as .csv or .parquet; how many.

        Raises HeadcountError where there are none, or where the table cannot be written.
        """
        path = Path(out)
        check_table(path)
        check_out_files({"out": path}, self.inputs)
        tables = [
            run.requests.assign(path=str(file.path), run=number)
            for file in self.files
            for number, run in enumerate(file.contents)
            if isinstance(run, MeasuredRun) and run.requests is not None
        ]
        if not tables:
            raise HeadcountError("--out: no file given holds requests; save the benchmark with its per-request details")
        whole = pd.concat(tables, ignore_index=True)
        with whole_file(path) as temporary:
            if path.suffix.lower() == ".csv":
                whole.to_csv(temporary, index=False)
            else:
                whole.to_parquet(temporary, index=False)
        return len(whole)


@question
def read(
    paths: Sequence[str | Path], *, format_name: str | None = None, before: str | Path | None = None
) -> ReadResult:
    """What benchmark results, traces, logs and metrics of real servers hold.

    `before` is the /metrics snapshot from before the run that ends with the one file of `paths`. Raises ValueError for
    the first file that cannot be read.
    """
    if isinstance(paths, str | Path):
        raise HeadcountError(f"paths is {str(paths)!r}; give a list, such as [{str(paths)!r}]")
    if not paths:
        raise HeadcountError("paths is empty; give at least one file")
    if before is not None:
        ends = [*map(Path, paths)]
        between = runs_between(Path(before), ends)
        return ReadResult(diagnostics=(), files=(ReadFile(ends[0], "vllm_metrics", between),))
    found = []
    for path in map(Path, paths):
        name = find_format(path) if format_name is None else format_name
        found.append(ReadFile(path, name, read_file(path, name)))
    return ReadResult(diagnostics=(), files=tuple(found))


def check_table(out: Path) -> None:
    """Raises HeadcountError before anything is read where the table could not be written."""
    check_out_file("--out", out, _TABLE_SUFFIXES)
    if out.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise HeadcountError("--out: Parquet needs pyarrow: pip install 'headcount[parquet]', or write .csv")


def _run_json(run: MeasuredRun) -> dict[str, object]:
    return {
        "tool": run.tool,
        "options": dict(run.options),
        "load": {name: "inf" if math.isinf(value) else value for name, value in run.load.items()},
        "num_requests": None if run.requests is None else len(run.requests),
        "excluded": dict(run.excluded),
        **_nested(request_figures(run)),
        "tool_figures": dict(run.aggregates),
        "differences": [{"name": found.name, "here": found.here, "tool": found.tool} for found in differences(run)],
        "notes": list(run.notes),
    }


def _nested(figures: Mapping[str, float]) -> dict[str, object]:
    """`ttft_s.mean` as `{"ttft_s": {"mean": …}}`, as `headcount simulate --json` has it."""
    found: Json = {}
    for name, value in figures.items():
        outer, _, inner = name.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[outer] = value
    return found


def _recording_json(found: Recording) -> dict[str, object]:
    known = [name for name in found.steps if found.steps[name].notna().any()]
    return {
        "options": dict(found.options),
        "environment": dict(found.environment),
        "num_steps": len(found.steps),
        "excluded": dict(found.excluded),
        "means": {name: float(found.steps[name].mean()) for name in known},
        "unknown": [name for name in found.steps if name not in known],
    }
