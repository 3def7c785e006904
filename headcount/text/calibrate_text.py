"""What `headcount calibrate read` prints and writes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from calibrate.check.run_figures import LATENCIES, Difference, differences, request_figures
from calibrate.measured_run import MeasuredRun
from calibrate.readers import find_format, read_file
from calibrate.readers.vllm_metrics import read_between
from calibrate.recording import Recording
from headcount.cli.out_files import check_out_file, whole_file
from headcount.text.tables import print_table
from headcount.text.text import console, milliseconds, seconds, table

_SHOWN = ("mean", "p50", "p90", "p99")
_RATES = ("requests_per_s", "output_tokens_per_s")
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


def read_files(paths: Sequence[Path], format_name: str | None, before: Path | None) -> list[ReadFile]:
    """Raises ValueError for the first file that cannot be read."""
    if before is not None:
        if len(paths) != 1:
            raise ValueError(f"--before goes with the one snapshot that ends the run, not with {len(paths)} files")
        return [ReadFile(paths[0], "vllm_metrics", read_between(before, paths[0]))]
    found = []
    for path in paths:
        name = format_name or find_format(path)
        found.append(ReadFile(path, name, read_file(path, name)))
    return found


def check_out(out: Path) -> None:
    """Raises ValueError before anything is read where the table could not be written."""
    check_out_file("--out", out, _TABLE_SUFFIXES)
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow  # noqa: F401, PLC0415  an extra
        except ImportError:
            raise ValueError("--out: Parquet needs pyarrow: pip install 'headcount[parquet]', or write .csv") from None


def write_requests(files: Sequence[ReadFile], out: Path) -> int:
    """All requests, with the file's path and the run's number in it; how many. Raises ValueError where none are."""
    tables = [
        run.requests.assign(path=str(file.path), run=number)
        for file in files
        for number, run in enumerate(file.contents)
        if isinstance(run, MeasuredRun) and run.requests is not None
    ]
    if not tables:
        raise ValueError("--out: no file given holds requests; save the benchmark with its per-request details")
    whole = pd.concat(tables, ignore_index=True)
    with whole_file(out) as temporary:
        if out.suffix.lower() == ".csv":
            whole.to_csv(temporary, index=False)
        else:
            whole.to_parquet(temporary, index=False)
    return len(whole)


def print_files(files: Sequence[ReadFile]) -> None:
    """Each run: what it is, its load, its latencies beside the tool's own, what was left out."""
    for file in files:
        for number, found in enumerate(file.contents, start=1):
            place = f", run {number} of {len(file.contents)}" if len(file.contents) > 1 else ""
            console().print(f"[bold]{escape(file.path.name)}[/]{place}: {escape(file.format)}")
            if isinstance(found, MeasuredRun):
                _print_run(found)
            else:
                _print_recording(found)
            console().print()


def _print_run(run: MeasuredRun) -> None:
    out, here = console(), request_figures(run)
    _print_settings("load", run.load)
    _print_settings("settings", run.options)
    counted = f"{run.aggregates['num_finished']:,.0f}, not listed" if "num_finished" in run.aggregates else "none"
    out.print(f"  requests    {counted if run.requests is None else f'{len(run.requests):,}'}", end="")
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in run.excluded.items())
    out.print(f"; left out: {left_out}" if left_out else "", highlight=False, markup=False)
    if here or any("." in name for name in run.aggregates):
        print_table(out, _latencies(here, run.aggregates))
    _print_settings("rates", {name: here.get(name, run.aggregates.get(name)) for name in _RATES})
    for difference in differences(run):
        out.print("  " + _difference_text(difference), style="yellow", markup=False)
    for note in run.notes:
        out.print(f"  {note}", style="dim", markup=False)


def _print_settings(title: str, values: Mapping[str, Any]) -> None:
    told = [f"{name} {value:,g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()]
    if known := [text for text, value in zip(told, values.values(), strict=True) if value is not None]:
        console().print(f"  {title:<12}{', '.join(known)}", markup=False)


def _latencies(here: Mapping[str, float], tool: Mapping[str, float]) -> Any:
    columns = [*_SHOWN] if here else []
    made = table("", *columns, *(f"tool's {statistic}" for statistic in _SHOWN if tool))
    for name in LATENCIES:
        unit = seconds if name in {"ttft_s", "e2e_s"} else milliseconds
        cells = [unit(here.get(f"{name}.{statistic}")) for statistic in columns]
        cells += [_tool_cell(unit, tool, f"{name}.{statistic}") for statistic in _SHOWN if tool]
        if any(cell != "–" for cell in cells):
            made.add_row(f"  {name.removesuffix('_s').upper()}", *cells)
    return made


def _tool_cell(unit: Any, tool: Mapping[str, float], name: str) -> str:
    """A figure, or the bounds that a histogram leaves."""
    if name not in tool and f"{name}.low" in tool:
        return f"{unit(tool[f'{name}.low'])} to {unit(tool[f'{name}.high'])}"
    return str(unit(tool.get(name)))


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


def _print_recording(found: Recording) -> None:
    out, steps = console(), found.steps
    _print_settings("settings", found.options)
    _print_settings("engine", {name: value for name, value in found.environment.items() if value is not None})
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in found.excluded.items())
    out.print(f"  steps       {len(steps):,}" + (f"; left out: {left_out}" if left_out else ""), markup=False)
    made = table("", *_SHOWN)
    for name in ("sequences", "tokens", "prefill_tokens", "elapsed_s", "cycle_s"):
        if name in steps and steps[name].notna().any():
            values = [_statistic(steps[name], statistic) for statistic in _SHOWN]
            made.add_row(f"  {name}", *(milliseconds(x) if name.endswith("_s") else f"{x:,.1f}" for x in values))
    print_table(out, made)
    out.print("  context lengths are not logged: a step's price cannot be split from this file alone", style="dim")


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
