"""The settings' own readers as the command line's types."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import click
from click.shell_completion import CompletionItem

from boundary.names import shortened
from boundary.outputs import check_out_file
from headcount.report.needs import check_report
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


@dataclass(frozen=True)
class NameOrPath:
    """A name that is known, or a file that is read."""

    name: str = "TEXT"

    def read(self, given: Any) -> str:
        return str(given)


@dataclass(frozen=True)
class OutPath:
    """A file that is written."""

    name: str = "PATH"
    suffixes: tuple[str, ...] = ()
    example: str = ""
    is_report: bool = False

    def read(self, given: Any) -> Path:
        return values.FilePath().read(given)

    def check(self, option: str, path: Path) -> None:
        """Raises ValueError, before the work, where it could not be written after it."""
        if self.is_report:
            check_report(option, path, self.suffixes)
        else:
            check_out_file(option, path, self.suffixes, self.example)


def read_limit(given: str) -> tuple[str, float]:
    """NAME=VALUE of --limit. Raises ValueError."""
    name, _, value = given.partition("=")
    if not value:
        raise ValueError(f"--limit '{shortened(given)}' has no value; give NAME=VALUE, such as rows=1G")
    try:
        number = values.COUNT.read(value) if value[-1].isalpha() else float(value)
    except ValueError:
        wrong = shortened(value)
        raise ValueError(f"--limit {shortened(name)}: '{wrong}' is not a number; give one such as 64M") from None
    return name.strip().replace("-", "_"), number


Duration = _read_by(values.Duration)
FilePath = _read_by(values.FilePath)
OutFile = _read_by(OutPath)
IntegerList = _read_by(values.IntegerList)
Number = _read_by(values.Number)
TokenCount = _read_by(values.TokenCount)
WholeNumber = _read_by(values.WholeNumber)
COUNT = Reads(values.COUNT)
NAME_OR_FILE = Reads(NameOrPath())
TRUSTED_NAME = Reads(values.TrustedName())
