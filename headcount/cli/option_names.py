"""Which option a name outside the command line means."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from files.errors import HeadcountError
from files.names import shortened
from headcount.cli.option_types import Reads
from simulator.engines.values import Kind, Listed, Text


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
