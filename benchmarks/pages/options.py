"""The table of docs/reference/engine-options.md, from the command line."""

from collections.abc import Callable

import click

from benchmarks.markdown import table
from headcount.cli.main import cli
from headcount.cli.vllm_args import ENGINE_ARGUMENTS


def option_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {"options": _options}


def _options() -> str:
    found: dict[str, tuple[str, str, str]] = {}
    for name in ("memory", "capacity"):
        context = click.Context(cli)
        command = cli.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and option.name in ENGINE_ARGUMENTS:
                found.setdefault(option.opts[-1], _row(option))
    return table(("option", "what", "default"), found.values())


def _row(option: click.Option) -> tuple[str, str, str]:
    text, _, stated = (option.help or "").partition("  [")
    default = option.default if isinstance(option.default, int | float | str) else ""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names, text, stated.removeprefix("default: ").rstrip("]") or str(default)
