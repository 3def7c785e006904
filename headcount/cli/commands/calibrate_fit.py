"""`headcount calibrate fit`, `headcount calibrate check`: step times beside measurements."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headcount.cli.option_types import FilePath, Number
from headcount.cli.options import (
    all_of,
    cold_start_option,
    deployment_options,
    engine_options,
    output_options,
    scheduler_options,
)


def _check_spread(_: click.Context, __: click.Parameter, spread: float | None) -> float | None:
    if spread is not None and not 0 < spread <= 1:
        raise ValueError(f"--length-spread is {spread:g}; it must be above 0, at most 1 (1 = exact lengths)")
    return spread


_inputs = all_of(
    click.argument("paths", nargs=-1, required=True, type=FilePath()),
    click.option("--format", "format_name", help="Of the files.  [default: found by their content]"),
    click.option(
        "--length-spread",
        type=Number("1 for exact lengths, 0.8 for 80 % to 100 % of them"),
        callback=_check_spread,
        help="Of runs without their requests: lengths uniform in 0.8–1 × those.  [default: 1]",
    ),
    cold_start_option,
)


@click.command("fit")
@_inputs
@deployment_options
@scheduler_options
@click.option("--out", required=True, type=FilePath(), help="The latency profile to write, TOML.")
@click.option("--name", help="Of the profile.  [default: the file's]")
@output_options
@click.pass_context
def fit_command(ctx: click.Context, /, paths: tuple[Path, ...], **values: Any) -> int:
    """Fit step times to what was measured of a deployment, into a profile for --latency-profile.

    PATHS are recordings of engine steps (headcount calibrate record), or results of benchmark clients, or folders of
    them. Options given here win over what the files say of the server. Overloaded runs are left out.
    """
    from calibrate.fit.inputs import read_inputs  # noqa: PLC0415
    from calibrate.fit.profile_fit import fit  # noqa: PLC0415  imported once the command runs
    from headcount.cli.json_output import print_json  # noqa: PLC0415
    from headcount.cli.out_files import check_out_file  # noqa: PLC0415
    from headcount.cli.progress import note_compiling, progress_bar  # noqa: PLC0415
    from headcount.text.fit_text import fit_text  # noqa: PLC0415
    from simulator.latency.profile import write_profile  # noqa: PLC0415

    given = _given(ctx, values)
    for name in ("latency_model", "step_s", "latency_profile"):
        if name in given:
            raise ValueError(f"--{name.replace('_', '-')} cannot be fitted; leave it out")
    out: Path = values["out"]
    check_out_file("--out", out, example="profile.toml")
    inputs = read_inputs(paths, values["format_name"])
    if out.resolve() in inputs.files:
        raise ValueError(f"--out {out}: is one of the files to fit, which it would replace; name another")
    if inputs.runs:
        note_compiling()
    with progress_bar("fit", total=1) as bar:
        fitted = fit(inputs, given, name=values["name"] or out.stem, watch=bar.note)
    write_profile(fitted.profile, out)
    if values["as_json"]:
        print_json({"schema_version": 1, **fitted.to_json()})
    else:
        fit_text(fitted, out)
    return 0


@click.command("check")
@_inputs
@deployment_options
@scheduler_options
@click.option("--out", type=FilePath(), help="Also draw it: a page (.html) or a chart (.svg).")
@output_options
@click.pass_context
def check_command(ctx: click.Context, /, paths: tuple[Path, ...], **values: Any) -> int:
    """Simulate measured runs as they were sent, and say how far each latency is off.

    Overloaded runs (requests that failed, a queue that grew, a rate that was not served) are told apart and are in no
    average.
    """
    from calibrate.check.replay import replay  # noqa: PLC0415
    from calibrate.check.runs import check_run, find_knee, summary_rows  # noqa: PLC0415  once the command runs
    from calibrate.fit.inputs import read_inputs  # noqa: PLC0415
    from headcount.cli.json_output import print_json  # noqa: PLC0415
    from headcount.cli.progress import note_compiling, progress_bar  # noqa: PLC0415
    from headcount.text.fit_text import check_text  # noqa: PLC0415

    if values["out"] is not None:
        from headcount.report.check_page import check_out  # noqa: PLC0415

        check_out(values["out"])
    inputs = read_inputs(paths, values["format_name"])
    if not inputs.runs:
        raise ValueError(f"{paths[0]} holds engine steps, not requests; give a benchmark's result")
    given, checked, replays = _given(ctx, values), [], []
    note_compiling()
    with progress_bar("runs", total=len(inputs.runs)) as bar:
        for run in inputs.runs:
            bar.note(run.source.name)
            replays.append(replay(run, given))
            checked.append(check_run(replays[-1]))
            bar.advance()
    for warning in dict.fromkeys(text for item in replays for text in item.plan.latency.warnings):
        click.echo(f"headcount: warning: {warning}", err=True)
    knee, summary = find_knee(checked), summary_rows(checked)
    if values["out"] is not None:
        from headcount.report.check_page import write_check  # noqa: PLC0415

        plan = replays[0].plan
        title = {"model": plan.architecture.name, "gpu": plan.gpu.name, "workload": f"{len(checked)} measured runs",
                 "vllm_version": replays[0].deployment.vllm_version}  # fmt: skip
        write_check(values["out"], title, checked)
    if values["as_json"]:
        found = {"runs": [item.to_json() for item in checked], "summary": summary}
        bend = None if knee is None else {"unit": knee.unit, "measured": knee.measured, "simulated": knee.simulated}
        print_json({"schema_version": 1, **found, "knee": bend})
    else:
        check_text(checked, knee, summary)
    return 0


def _given(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, on the command line or in a file: defaults do not win over a run's own."""
    skipped = ("format_name", "out", "name", "as_json", "seed", "router", "startup_log", "strict")
    found = {
        name: value
        for name, value in values.items()
        if name not in skipped
        and value is not None
        and ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }
    if values.get("startup_log") is not None:
        found["num_gpu_blocks_override"] = engine_options(values).num_gpu_blocks_override
    return found
