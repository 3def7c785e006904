"""Tables of options: the engine's, and those of a command."""

from collections.abc import Callable, Iterator
from functools import partial

import click

from headcount.cli.commands import plan
from simulator.engines.argument import arguments_of, flags_of
from simulator.engines.engines import ENGINES
from simulator.engines.flags import IGNORED, MODELLED, WITHOUT_EFFECT, flag_groups
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.arguments import EngineArgs
from validation.markdown import table

_SHARED = tuple(arguments_of(EngineArgs))


def option_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {"options": partial(_options, EngineArgs), "sglang-options": partial(_options, SGLangArgs, without=_SHARED)}


def flag_tables() -> dict[str, Callable[[], str]]:
    """Of docs/reference/engine-flags.md, a table for each engine."""
    return {engine: partial(_flags, engine) for engine in ENGINES}


def _flags(engine: str) -> str:
    titles = {MODELLED: "modelled as", WITHOUT_EFFECT: "no effect", IGNORED: "ignored, with a warning"}
    rows = [
        (
            titles.get(group.effect, "refused"),
            group.why or group.what + (f"; give {group.instead}" if group.instead else ""),
            " ".join(f"`{flag}`" for flag in group.flags),
        )
        for group in flag_groups(engine)
    ]
    return table(("what happens", "why", "flags"), rows)


def plan_tables() -> dict[str, Callable[[], str]]:
    """Of docs/reference/plan-options.md, a table for each heading of the help."""
    own = ("People", "Choice", "Money", "Output")
    return {heading.lower(): partial(_of_command, plan.command, heading) for heading in own}


def _of_command(command: click.Command, heading: str) -> str:
    context = click.Context(command)
    rows = (each.get_help_record(context) for each in command.params if vars(each).get("heading") == heading)
    return table(("option", "what"), [(f"`{row[0]}`", " ".join(row[1].split())) for row in rows if row is not None])


def _options(engine_args: type, without: tuple[str, ...] = ()) -> str:
    rows = [
        (" / ".join(f"`{flag}`" for flag in flags.split("/")), value, default, text)
        for flags, value, default, text in reference_rows(engine_args, without=without)
    ]
    return table(("option", "value", "default", "what"), rows)


def reference_rows(engine_args: type, *, without: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str, str]]:
    """Flags with / between, value, default and help of every argument but some, for a table."""
    for name, described in arguments_of(engine_args).items():
        if name in without:
            continue
        known = "" if described.default in (None, ()) else str(described.default)
        if described.is_switch and described.default is not None:
            known = "on" if described.default else "off"
        value = "" if described.is_switch else described.kind.name
        yield "/".join(flags_of(name, described)), value, described.default_text or known, described.help
