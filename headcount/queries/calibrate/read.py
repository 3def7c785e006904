"""What do files of real servers and benchmark clients hold?"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from calibrate.check.run_figures import LATENCIES, Difference, differences, request_figures
from calibrate.measured_run import MeasuredRun
from calibrate.readers import find_format, read_file
from calibrate.readers.vllm_metrics import read_between
from calibrate.recording import Recording
from files.outputs import check_out_file, check_out_files, whole_file
from headcount.queries.result import Result, question
from headcount.views.summary.summary import Summary
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, milliseconds, seconds

_SHOWN = ("mean", "p50", "p90", "p99")
_RATES = ("requests_per_s", "output_tokens_per_s")
# What a server's metrics say of itself, at the time of the snapshot, or its log of its batches.
_SERVER = {
    "running_now": "running", "waiting_now": "waiting", "kv_usage_now": "KV use",
    "running_mean": "mean running", "waiting_mean": "mean waiting", "kv_usage_mean": "mean KV use",
    "kv_usage_max": "largest KV use", "num_preemptions": "preemptions",
    "prefix_hit_rate": "prefix hit rate", "num_gpu_blocks": "KV blocks",
}  # fmt: skip
_WALL_TIME = ": the tool's clock runs from before the first request to after the last"
_TABLE_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class ReadFile:
    """A file's format and what it holds."""

    path: Path
    format: str
    contents: Sequence[MeasuredRun | Recording]

    def to_json(self) -> dict[str, Any]:
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
    files: tuple[ReadFile, ...]

    def figures(self) -> dict[str, Any]:
        return {"files": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [file.to_json() for file in self.files]

    def summary(self) -> Summary:
        contents = [len(found.contents) for found in self.files]
        return Summary(
            question="What do these files hold?",
            answer=f"{counted(sum(contents), 'run')} in {counted(len(contents), 'file')}",
            risk="Figures that a tool reports and those computed from its requests may differ: the tables show both.",
        )

    def head(self) -> list[Block]:
        return []

    def body(self) -> list[Block]:
        blocks: list[Block] = []
        for file in self.files:
            for number, found in enumerate(file.contents, start=1):
                place = f", run {number} of {len(file.contents)}" if len(file.contents) > 1 else ""
                described = _run_blocks(found) if isinstance(found, MeasuredRun) else _recording_blocks(found)
                blocks += [Line(f"{place}: {file.format}", bold=file.path.name), *described, Line()]
        return blocks

    def save_requests(self, out: str | os.PathLike[str]) -> int:
        """Write all requests, with their file's path and the run's number in it, as .csv or .parquet; how many.

        Raises ValueError where there are none, or where the table cannot be written.
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
            raise ValueError("--out: no file given holds requests; save the benchmark with its per-request details")
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
        raise ValueError(f"paths is {str(paths)!r}; give a list, such as [{str(paths)!r}]")
    if not paths:
        raise ValueError("paths is empty; give at least one file")
    if before is not None:
        if len(paths) != 1:
            raise ValueError(f"--before goes with the one snapshot that ends the run, not with {len(paths)} files")
        end = Path(paths[0])
        return ReadResult(diagnostics=(), files=(ReadFile(end, "vllm_metrics", read_between(Path(before), end)),))
    found = []
    for path in map(Path, paths):
        name = find_format(path) if format_name is None else format_name
        found.append(ReadFile(path, name, read_file(path, name)))
    return ReadResult(diagnostics=(), files=tuple(found))


def check_table(out: Path) -> None:
    """Raises ValueError before anything is read where the table could not be written."""
    check_out_file("--out", out, _TABLE_SUFFIXES)
    if out.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError("--out: Parquet needs pyarrow: pip install 'headcount[parquet]', or write .csv")


def _run_blocks(run: MeasuredRun) -> list[Block]:
    here = request_figures(run)
    counted = f"{run.aggregates['num_finished']:,.0f}, not listed" if "num_finished" in run.aggregates else "none"
    requests = counted if run.requests is None else f"{len(run.requests):,}"
    rates = {name: here.get(name, run.aggregates.get(name)) for name in _RATES}
    has_latencies = here or any("." in name for name in run.aggregates)
    return [
        *_settings("load", run.load),
        *_settings("settings", run.options),
        Line(f"  requests    {requests}{_left_out(run.excluded)}"),
        *([_latencies(here, run.aggregates)] if has_latencies else []),
        *_settings("rates", rates),
        *_settings("server", {shown: run.aggregates.get(name) for name, shown in _SERVER.items()}),
        *(Line("  " + _difference_text(difference)) for difference in differences(run)),
        *(Line(f"  {note}", dim=True) for note in run.notes),
    ]


def _left_out(excluded: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in excluded.items())
    return f"; left out: {reasons}" if reasons else ""


def _settings(title: str, values: Mapping[str, Any]) -> list[Line]:
    known = {name: value for name, value in values.items() if value is not None}
    told = [f"{name} {value:,g}" if isinstance(value, float) else f"{name} {value}" for name, value in known.items()]
    return [Line(f"  {title:<12}{', '.join(told)}")] if told else []


def _latencies(here: Mapping[str, float], tool: Mapping[str, float]) -> Table:
    columns = [*_SHOWN] if here else []
    rows = []
    for name in LATENCIES:
        unit = seconds if name in {"ttft_s", "e2e_s"} else milliseconds
        cells = [unit(here.get(f"{name}.{statistic}")) for statistic in columns]
        cells += [_tool_cell(unit, tool, f"{name}.{statistic}") for statistic in _SHOWN if tool]
        if any(cell != "–" for cell in cells):
            rows.append((f"  {name.removesuffix('_s').upper()}", *cells))
    return Table(columns=("", *columns, *(f"tool's {statistic}" for statistic in _SHOWN if tool)), rows=rows)


def _tool_cell(unit: Callable[[float | None], str], tool: Mapping[str, float], name: str) -> str:
    """A figure, or the bounds that a histogram leaves."""
    if name not in tool and f"{name}.low" in tool:
        return f"{unit(tool[f'{name}.low'])} to {unit(tool[f'{name}.high'])}"
    return unit(tool.get(name))


def _difference_text(difference: Difference) -> str:
    return (
        f"{difference.name}: {difference.here:.4g} from the requests, {difference.tool:.4g} by the tool "
        f"({difference.relative:+.1%})" + (_WALL_TIME if _is_wall_time(difference) else "")
    )


def _is_wall_time(difference: Difference) -> bool:
    """Whether a clock that runs longer explains it."""
    if difference.name == "duration_s":
        return difference.tool > difference.here
    return difference.name in _RATES and difference.tool < difference.here


def _recording_blocks(found: Recording) -> list[Block]:
    steps, rows = found.steps, []
    for name in ("sequences", "tokens", "prefill_tokens", "elapsed_s", "cycle_s"):
        if name in steps and steps[name].notna().any():
            values = [_statistic(steps[name], statistic) for statistic in _SHOWN]
            rows.append((f"  {name}", *(milliseconds(x) if name.endswith("_s") else f"{x:,.1f}" for x in values)))
    return [
        *_settings("settings", found.options),
        *_settings("engine", found.environment),
        Line(f"  steps       {len(steps):,}{_left_out(found.excluded)}"),
        Table(columns=("", *_SHOWN), rows=rows),
        Line("  context lengths are not logged: a step's price cannot be split from this file alone", dim=True),
    ]


def _statistic(values: pd.Series, statistic: str) -> float:
    return float(values.mean()) if statistic == "mean" else float(values.quantile(int(statistic[1:]) / 100))


def _run_json(run: MeasuredRun) -> dict[str, Any]:
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


def _nested(figures: Mapping[str, float]) -> dict[str, Any]:
    """`ttft_s.mean` as `{"ttft_s": {"mean": …}}`, as `headcount simulate --json` has it."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
        outer, _, inner = name.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[outer] = value
    return found


def _recording_json(found: Recording) -> dict[str, Any]:
    known = [name for name in found.steps if found.steps[name].notna().any()]
    return {
        "options": dict(found.options),
        "environment": dict(found.environment),
        "num_steps": len(found.steps),
        "excluded": dict(found.excluded),
        "means": {name: float(found.steps[name].mean()) for name in known},
        "unknown": [name for name in found.steps if name not in known],
    }
