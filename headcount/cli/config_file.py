"""Options given outside the command line: which option a name means, and what a file says of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from files.documents import read_toml, read_yaml
from files.errors import HeadcountError
from files.names import nearest_hint, shortened
from files.reading import InputError
from headcount.cli.option_types import Reads
from simulator.engines.values import ONE_VALUE, IntegerList, Kind, Listed, Text
from simulator.engines.vllm.environment import Variables


@dataclass(frozen=True)
class Spelling:
    """An option under one of its names; `turns_off` for the second half of an on/off pair."""

    option: click.Option
    turns_off: bool

    @property
    def key(self) -> str:
        """What click calls the option."""
        assert self.option.name is not None, "an option without a name"
        return self.option.name

    @property
    def kind(self) -> Kind | None:
        """What reads its value."""
        return self.option.type.kind if isinstance(self.option.type, Reads) else None


def spellings(parameters: Iterable[click.Parameter]) -> dict[str, Spelling]:
    """Options by each of their names, dashes inside kept, those in front left out; eager ones cannot be set so."""
    found: dict[str, Spelling] = {}
    for option in parameters:
        if isinstance(option, click.Option) and not option.is_eager:
            found |= {name.lstrip("-"): Spelling(option, False) for name in option.opts}
            found |= {name.lstrip("-"): Spelling(option, True) for name in option.secondary_opts}
    return found


def converted(ctx: click.Context, spelling: Spelling, text: str) -> Any:
    """A value as the command line would read it. Raises HeadcountError with the option's own message, without a prefix.

    What names code is refused: others write files and pasted lines, and it would be run.
    """
    kind = spelling.kind.each if isinstance(spelling.kind, Listed) else spelling.kind
    if isinstance(kind, Text) and kind.runs_code(text):
        raise HeadcountError(
            f"'{shortened(text)}' would run code that a file or a pasted line names; give it on the command line itself"
        )
    try:
        return spelling.option.type_cast_value(ctx, text)
    except click.BadParameter as error:
        raise HeadcountError(error.message) from None


def read_config(path: Path, ctx: click.Context) -> dict[str, object]:
    """Option values by parameter name; the file may write names with - or _.

    `ctx` learns which file it was. Raises HeadcountError for a name that the command does not have, or for a value that
    the option would refuse.
    """
    ctx.meta["headcount.config"] = path
    try:
        values = read_toml(path) if path.suffix == ".toml" else read_yaml(path)
    except InputError as error:
        raise HeadcountError(f"--config {error}") from None
    if not isinstance(values, dict):
        raise HeadcountError(f"--config {path}: it must hold option names with values, such as 'max-model-len: 8192'")
    names = spellings(ctx.command.params)
    found: dict[str, object] = {}
    for key, value in values.items():
        name = str(key).lstrip("-").replace("_", "-")
        if name not in names:
            raise HeadcountError(
                f"--config {path}: no option '{shortened(str(key))}'; {nearest_hint(name, list(names))}"
            )
        if names[name].key in found:
            raise HeadcountError(f"--config {path}: '{shortened(str(key))}' is given twice; leave out one of them")
        try:
            found[names[name].key] = _value(ctx, names[name], value)
        except ValueError as error:
            raise HeadcountError(f"--config {path}: {name}: {error}") from None
    return found


def _value(ctx: click.Context, spelling: Spelling, value: object) -> Any:
    if spelling.option.is_flag:
        if not isinstance(value, bool):
            raise HeadcountError(f"'{shortened(str(value))}' is neither true nor false")
        return value != spelling.turns_off
    if value is None or value == []:
        raise HeadcountError("it has no value; give one, or leave it out")
    if isinstance(value, list) and value:
        separator = {IntegerList: ",", Listed: ",", Variables: " "}.get(type(spelling.kind))
        if separator is None:
            raise HeadcountError(
                f"'{shortened(', '.join(_shown(each).strip(chr(39)) for each in value))}' is a list; {ONE_VALUE}"
            )
        wrong = next((each for each in value if not isinstance(each, str | int | float)), "")
        if wrong != "":
            raise HeadcountError(f"it is a list that holds {_shown(wrong)}; give text or numbers")
        value = separator.join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise HeadcountError(f"{_shown(value)} is not a value for it; give text (in quotes) or a number")
    return converted(ctx, spelling, str(value))


def _shown(value: object) -> str:
    kinds = {dict: "a table", list: "a list", type(None): "nothing"}
    return kinds.get(type(value)) or f"'{shortened(str(value))}'"
