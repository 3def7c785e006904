"""`headcount calibrate fit`, `headcount calibrate check`: step times compared with measurements."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headcount.cli.command import Command, all_of, section
from headcount.cli.option_types import OutPath, Reads, flag, option
from headcount.cli.options import (
    LENGTH_SPREAD,
    cold_start_option,
    engine_argument_options,
    format_option,
    output_options,
    report_options,
    scheduler_options,
)
from simulator.engines.values import Duration, FilePath, Text

_measured = all_of(
    section(
        "Measurements",
        click.argument("paths", nargs=-1, required=True, type=Reads(FilePath())),
        format_option,
        option(
            "--length-spread",
            LENGTH_SPREAD,
            "For files with mean lengths only. 0.8: drawn about them, the shortest 0.8 of the longest.  [default: 1]",
        ),
        option(
            "--warmup warmup_s",
            Duration(),
            "Leave out requests sent within that time of the first, when a server is cold.  [default: 0s]",
        ),
        cold_start_option,
    ),
    section(
        "Deployment",
        option("--model", Text(may_be_path=True), "As the files name it, where they do.  [default: the files']"),
        option("--gpu", Text(), "GPU name, such as h100-sxm; recordings name it.  [default: the files']"),
    ),
    engine_argument_options(),
    scheduler_options,
)


@click.command("fit", cls=Command)
@_measured
@section(
    "Output",
    option("--out", OutPath(example="profile.toml"), "The latency profile to write (TOML).", required=True),
    option("--name", Text(), "Name of the profile.  [default: the file's]"),
    flag("--force", "Write the profile even if it misses the very data that it was fitted to."),
)
@report_options
@output_options
@click.pass_context
def fit_command(ctx: click.Context, /, paths: tuple[Path, ...], **values: Any) -> int:
    """Fit step times to measurements of a deployment; writes a profile for --latency-profile.

    PATHS are recordings of engine steps (headcount calibrate record), or results of benchmark clients, or folders of
    them. Options given here win over what the files say of the server. Overloaded runs are left out.
    """
    from headcount.cli.output import finish  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415
    from headcount.queries.calibrate.fit import fit  # noqa: PLC0415  imported once the command runs

    out: Path = values["out"]
    with watched("fit") as progress:
        given = _given(ctx, values)
        answer = fit(paths, name=values["name"] or out.stem, out=out, force=values["force"], progress=progress, **given)
    return finish(answer.save(out), values["report"], as_json=values["as_json"])


@click.command("check", cls=Command)
@_measured
@section(
    "Limits",
    option("--ttft", Duration(), "Limit on the mean time to first token: which load reaches it?  [default: 1s]"),
    option("--tpot", Duration(), "Limit on the mean time per output token.  [default: 50ms]"),
)
@report_options
@output_options
@click.pass_context
def check_command(ctx: click.Context, /, paths: tuple[Path, ...], **values: Any) -> int:
    """Simulate measured runs as they were sent, and say whether the server is as fast as it should be.

    PATHS are results of benchmark clients, servers' logs, or recordings of engine steps (headcount calibrate record):
    the time of each recorded batch then stands beside the simulator's.

    Each latency stands beside the measured one. Where they lie further apart than servers differ, the runs are
    simulated again with eager mode, other GPUs, formats and limits, and the best explanation is named.

    Overloaded runs (requests that failed, a queue that grew, a rate that was not served) are listed apart and excluded
    from the averages.
    """
    from headcount.cli.output import finish  # noqa: PLC0415
    from headcount.cli.progress import watched  # noqa: PLC0415
    from headcount.queries.calibrate.check import check  # noqa: PLC0415  imported once the command runs

    with watched("runs") as progress:
        limits = {"ttft_s": values.pop("ttft"), "tpot_s": values.pop("tpot")}
        answer = check(paths, strict=values["strict"], progress=progress, **limits, **_given(ctx, values))
    return finish(answer, values["report"], as_json=values["as_json"])


def _given(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, on the command line or in a file: defaults do not win over a run's own."""
    skipped = ("out", "report", "name", "force", "as_json", "seed", "router", "strict")
    return {
        name: value
        for name, value in values.items()
        if name not in skipped and ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }
