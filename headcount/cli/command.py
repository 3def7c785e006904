"""A command: help under headings, raised limits, no file both read and written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from files.errors import HeadcountError
from files.limits import limits_raised
from files.outputs import cache_folder, check_out_files
from files.registry import SEARCH_PATH, search_path
from headcount.cli.given import Given
from headcount.cli.option_types import Option, Reads, flag, option, read_limit
from headcount.inputs.out_path import OutPath
from simulator.engines.values import FilePath, Text

OTHER = "Other options"
GIVEN_WORDS = "headcount.given_words"  # in a context: the command line's options as they are written
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CATALOGS = (".toml", ".py", ".json")  # what a registry reads in a folder of HEADCOUNT_PATH


def all_of(*options: Option) -> Option:
    """Options or arguments as one decorator, in the order of `--help`."""

    def decorate(function: object) -> Any:
        for each in reversed(options):
            function = each(function)
        return function

    return decorate


def section(heading: str, *options: Option) -> Option:
    """The same, under a heading of the help."""

    def decorate(function: Any) -> Any:
        before = len(_declared(function))
        all_of(*options)(function)
        for parameter in _declared(function)[before:]:
            vars(parameter).setdefault("heading", heading)
        return function

    return decorate


def _declared(function: Callable[..., Any]) -> list[click.Parameter]:
    return list(vars(function).get("__click_params__", ()))


EARLY: Any = {"expose_value": False, "is_eager": True}  # of options that change how the others are read
# main() looks for --debug among the words, so that it holds while options are read, too.
_debug_option = flag("--debug", "Show the traceback of an error.", **EARLY)
_LIMITS = "Raise a limit on input size, such as rows=1G. May be repeated. See docs/reference/limits.md."
_limit_option = option("--limit", Text("NAME=VALUE"), _LIMITS, multiple=True, **EARLY)


class Command(click.Command):
    """What every command has in common; its callback runs once all that can be checked before is checked."""

    def __init__(self, *args: Any, **known: Any) -> None:
        super().__init__(*args, **known)
        common = all_of(_limit_option, _debug_option)(lambda: None)
        self.params += reversed(_declared(common))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                rows.setdefault(vars(parameter).get("heading", OTHER), []).append(row)
        others = rows.pop(OTHER)  # --help at least
        for heading, found in {**rows, OTHER if rows else "Options": others}.items():
            with formatter.section(heading):
                formatter.write_dl(found)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Limits first: --config and --startup-log are read while the options are."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        _check_given_once(order)
        ctx.meta[GIVEN_WORDS] = given
        try:
            ctx.with_resource(limits_raised(**dict(map(read_limit, given.get("limit") or ()))))
            return super().parse_args(ctx, args)
        except BaseException:
            ctx.close()
            raise

    def invoke(self, ctx: click.Context) -> Any:
        _check_files(ctx)
        return super().invoke(ctx)


def _print_schema(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        from headcount.web.fields import fields_in  # noqa: PLC0415  catalogs of names, for this alone
        from headcount.web.schemas import options_schema  # noqa: PLC0415  as above

        schema = {"$schema": _DIALECT, "title": ctx.command_path, **options_schema(fields_in(ctx.command))}
        click.echo(json.dumps(schema, indent=1))
        ctx.exit()


_SCHEMA = "Print a JSON schema of the options, for scripts and agents, and exit."
_schema_option = flag("--json-schema", _SCHEMA, callback=_print_schema, **EARLY)


class QuestionCommand(Command):
    """A command whose callback takes what was given as inputs."""

    def __init__(self, *args: Any, **known: Any) -> None:
        super().__init__(*args, **known)
        self.params += _declared(_schema_option(lambda: None))

    def invoke(self, ctx: click.Context) -> object:
        _check_files(ctx)
        assert self.callback is not None, "a command has something to do"
        return ctx.invoke(self.callback, Given(ctx.params))


def _check_given_once(order: list[click.Parameter]) -> None:
    """Raise HeadcountError for an option of several values that is given twice: the second list would win in silence.

    Of one value the last wins, so that an alias with defaults can be overridden.
    """
    seen: set[click.Parameter] = set()
    for each in order:
        if isinstance(each, click.Option) and isinstance(each.type, Reads) and "," in each.type.name:
            if each in seen and not each.multiple:
                raise HeadcountError(f"{each.opts[-1]} is given twice; give it once, its values separated by commas")
            seen.add(each)


def _values(ctx: click.Context, *types: type) -> Iterator[tuple[str, Any, Any]]:
    """The values of options and arguments of these types: the option, its type, each value."""
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        kind = parameter.type
        if isinstance(kind, Reads) and isinstance(kind.kind, types) and value is not None:
            name = parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.human_readable_name
            for each in value if isinstance(value, tuple) else (value,):
                yield name, kind.kind, each


def _check_files(ctx: click.Context) -> None:
    """Raise HeadcountError before any work for an output that cannot be written, or that is an input as well."""
    outputs = {}
    for name, kind, path in _values(ctx, OutPath):
        kind.check(name, path)
        outputs[name] = path
    if outputs:
        check_out_files(outputs, [*input_files(ctx), ("the cache", cache_folder())])


def input_files(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """Every file and folder that the command reads, with its option."""
    for name, kind, value in _values(ctx, FilePath, Text):
        if isinstance(kind, FilePath) or kind.may_be_path:
            path = Path(getattr(value, "path", value))  # a start-up log is read already
            yield name, path / "config.json" if name == "--model" and path.is_dir() else path
    if (config := ctx.meta.get("headcount.config")) is not None:
        yield "--config", config
    for folder in search_path():
        yield from ((SEARCH_PATH, path) for path in folder.glob("*/*") if path.suffix in _CATALOGS)
