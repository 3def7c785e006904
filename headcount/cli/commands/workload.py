"""`headcount workload`: what users do, by name or in a file."""

import click

from files.errors import HeadcountError
from headcount.cli.command import Command
from headcount.cli.command_group import NearestGroup
from headcount.cli.commands.workload_convert import convert_command, generate_command
from headcount.cli.commands.workload_describe import describe_command
from headcount.cli.commands.workload_fit import fit_command
from headcount.cli.option_types import Reads, json_option
from headcount.version import SCHEMA_VERSION
from simulator.engines.values import Text


@click.group("workload", cls=NearestGroup)
def command() -> None:
    """List, describe, convert, generate and fit workloads: presets, populations in your own files, traces."""


for each in (describe_command, fit_command, convert_command, generate_command):
    command.add_command(each)


@command.command("list", cls=Command)
@json_option
def list_command(as_json: bool) -> int:
    """List the presets: think time, turns, tokens."""
    from headcount.cli.output import listing  # noqa: PLC0415  imported once the command runs
    from headcount.text.populations import LIST_COLUMNS, list_row  # noqa: PLC0415
    from workloads.load import load_preset, preset_names  # noqa: PLC0415
    from workloads.populations.summary import population_summary  # noqa: PLC0415

    found = [population_summary(load_preset(name)) for name in preset_names()]
    rows = [list_row(each) for each in found]
    return listing("workloads", [each.to_json() for each in found], LIST_COLUMNS, rows, as_json=as_json)


@command.command("show", cls=Command)
@click.argument("workload", metavar="NAME|FILE", type=Reads(Text(may_be_path=True)))
@json_option
def show_command(workload: str, as_json: bool) -> int:
    """Show every number of a preset, a population's file or a fitted trace: mean, p50, p95 and its source."""
    from headcount.cli.output import print_json  # noqa: PLC0415  imported once the command runs
    from headcount.text.fitted import fitted_blocks, fitted_json  # noqa: PLC0415
    from headcount.text.populations import population_blocks  # noqa: PLC0415
    from headcount.views.terminal.drawing import draw  # noqa: PLC0415
    from workloads.load import load_fitted, load_workload  # noqa: PLC0415
    from workloads.populations.population import Population  # noqa: PLC0415
    from workloads.populations.summary import population_summary  # noqa: PLC0415

    if (model := load_fitted(workload)) is not None:
        if as_json:
            print_json({"schema_version": SCHEMA_VERSION, **fitted_json(model)})
        else:
            draw(fitted_blocks(model))
        return 0
    found = load_workload(workload)
    if not isinstance(found, Population):
        raise HeadcountError(
            f"'{workload}' is a trace ({found.format}); show takes a preset or a population's TOML file"
        )
    summary = population_summary(found)
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, **summary.to_json()})
    else:
        draw(population_blocks(summary))
    return 0
