"""The settings' own readers as the command line's types."""

from collections.abc import Callable
from typing import Any, ParamSpec

import click
from click.shell_completion import CompletionItem

from simulator.engines import values
from simulator.engines.values import Kind

P = ParamSpec("P")


class Reads(click.ParamType[Any]):
    """An option's type that reads as a setting does, and fails with its message."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")] if isinstance(self.kind, values.FilePath) else []


def _read_by(kind: Callable[P, Kind]) -> Callable[P, Reads]:
    def made(*args: P.args, **named: P.kwargs) -> Reads:
        return Reads(kind(*args, **named))

    return made


Duration = _read_by(values.Duration)
FilePath = _read_by(values.FilePath)
IntegerList = _read_by(values.IntegerList)
Number = _read_by(values.Number)
TokenCount = _read_by(values.TokenCount)
WholeNumber = _read_by(values.WholeNumber)
COUNT = Reads(values.COUNT)
