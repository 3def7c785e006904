"""What files of measurements say, in words."""

from collections.abc import Mapping

from calibrate.check.run_figures import LATENCIES, Difference, differences, request_figures
from calibrate.measured_run import MeasuredRun
from calibrate.recording import Recording
from headcount.queries.calibrate.read import ReadResult
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import change, counted, latency_text, milliseconds
from headcount.views.summary.summary import Summary

_SHOWN = ("mean", "p50", "p90", "p99")

_RATES = ("requests_per_s", "output_tokens_per_s")

_SERVER = {
    "running_now": "running", "waiting_now": "waiting", "kv_usage_now": "KV use",
    "running_mean": "mean running", "waiting_mean": "mean waiting", "kv_usage_mean": "mean KV use",
    "kv_usage_max": "largest KV use", "num_preemptions": "preemptions",
    "prefix_hit_rate": "prefix hit rate", "num_gpu_blocks": "KV blocks",
}  # fmt: skip

_WALL_TIME = ": the tool's clock runs from before the first request to after the last"


def summary(answer: ReadResult) -> Summary:
    contents = [len(found.contents) for found in answer.files]
    return Summary(
        question="What do these files hold?",
        answer=f"{counted(sum(contents), 'run')} in {counted(len(contents), 'file')}",
        risk="Figures that a tool reports and those computed from its requests may differ: the tables show both.",
    )


def head(answer: ReadResult) -> list[Block]:
    return []


def body(answer: ReadResult) -> list[Block]:
    blocks: list[Block] = []
    for file in answer.files:
        for number, found in enumerate(file.contents, start=1):
            place = f", run {number} of {len(file.contents)}" if len(file.contents) > 1 else ""
            described = _run_blocks(found) if isinstance(found, MeasuredRun) else _recording_blocks(found)
            blocks += [Line(f"{place}: {file.format}", bold=file.path.name), *described, Line()]
    return blocks


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
        *(_difference_line(difference) for difference in differences(run)),
        *(Line(f"  {note}", dim=True) for note in run.notes),
    ]


def _left_out(excluded: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in excluded.items())
    return f"; left out: {reasons}" if reasons else ""


def _settings(title: str, values: Mapping[str, object]) -> list[Line]:
    known = {name: value for name, value in values.items() if value is not None}
    told = [f"{name} {value:,g}" if isinstance(value, float) else f"{name} {value}" for name, value in known.items()]
    return [Line(f"  {title:<12}{', '.join(told)}")] if told else []


def _latencies(here: Mapping[str, float], tool: Mapping[str, float]) -> Table:
    columns = [*_SHOWN] if here else []
    rows = []
    for name in LATENCIES:
        cells = [latency_text(name, here.get(f"{name}.{statistic}")) for statistic in columns]
        cells += [_tool_cell(tool, name, statistic) for statistic in _SHOWN if tool]
        if any(cell != "–" for cell in cells):
            rows.append((f"  {name.removesuffix('_s').upper()}", *cells))
    return Table(columns=("", *columns, *(f"tool's {statistic}" for statistic in _SHOWN if tool)), rows=rows)


def _tool_cell(tool: Mapping[str, float], name: str, statistic: str) -> str:
    """A figure, or the bounds that a histogram leaves."""
    key = f"{name}.{statistic}"
    if key not in tool and f"{key}.low" in tool:
        return " to ".join(latency_text(name, tool[f"{key}.{end}"]) for end in ("low", "high"))
    return latency_text(name, tool.get(key))


def _difference_line(found: Difference) -> Line:
    """Two figures of one name, and whether a clock that runs longer explains the difference."""
    is_wall_time = (
        found.tool > found.here if found.name == "duration_s" else found.name in _RATES and found.tool < found.here
    )
    return Line(
        f"  {found.name}: {found.here:.4g} from the requests, {found.tool:.4g} by the tool "
        f"({change(found.relative, 1)})" + _WALL_TIME * is_wall_time
    )


def _recording_blocks(found: Recording) -> list[Block]:
    steps, rows = found.steps, []
    for name in ("sequences", "tokens", "prefill_tokens", "elapsed_s", "cycle_s"):
        if name in steps and steps[name].notna().any():
            quantiles = steps[name].quantile([int(statistic[1:]) / 100 for statistic in _SHOWN[1:]])
            values = [float(steps[name].mean()), *quantiles.tolist()]
            rows.append((f"  {name}", *(milliseconds(x) if name.endswith("_s") else f"{x:,.1f}" for x in values)))
    return [
        *_settings("settings", found.options),
        *_settings("engine", found.environment),
        Line(f"  steps       {len(steps):,}{_left_out(found.excluded)}"),
        Table(columns=("", *_SHOWN), rows=rows),
        Line("  context lengths are not logged: a step's price cannot be split from this file alone", dim=True),
    ]
