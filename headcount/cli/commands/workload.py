"""`headcount workload`: what users do, by name or in a file."""

import click

from files.errors import HeadcountError
from headcount.cli.command import Command
from headcount.cli.command_group import NearestGroup
from headcount.cli.commands.workload_traces import convert_command, describe_command, fit_command, generate_command
from headcount.cli.option_types import Reads, json_option
from headcount.cli.output import listing, print_json
from headcount.text.fitted import fitted_blocks, fitted_json
from headcount.text.populations import LIST_COLUMNS, list_row, population_blocks
from headcount.version import SCHEMA_VERSION
from headcount.views.terminal.drawing import draw
from simulator.engines.values import Text
from workloads.load import load_fitted, load_preset, load_workload, preset_names
from workloads.populations.population import Population
from workloads.populations.summary import population_summary


@click.group("workload", cls=NearestGroup)
def command() -> None:
    """List, describe, convert, generate and fit workloads: presets, populations in your own files, traces."""


for each in (describe_command, fit_command, convert_command, generate_command):
    command.add_command(each)


@command.command("list", cls=Command)
@json_option
def list_command(as_json: bool) -> int:
    """List the presets: think time, turns, tokens."""
    found = [population_summary(load_preset(name)) for name in preset_names()]
    rows = [list_row(each) for each in found]
    return listing("workloads", [each.to_json() for each in found], LIST_COLUMNS, rows, as_json=as_json)


@command.command("show", cls=Command)
@click.argument("workload", metavar="NAME|FILE", type=Reads(Text(may_be_path=True)))
@json_option
def show_command(workload: str, as_json: bool) -> int:
    """Show every number of a preset, a population's file or a fitted trace: mean, p50, p95 and its source."""
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
