"""What every answer has: figures, notes, a verdict, and the ways to read it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from boundary.outputs import check_out_files
from boundary.registry import Registry
from headcount.answers.notes import Note, Severity
from headcount.report.needs import check_report
from headcount.text.blocks import Block, Line
from headcount.text.drawing import as_html, as_text
from headcount.text.units import finite

if TYPE_CHECKING:
    from pandas import DataFrame


PAGES = Registry(
    what="report", section="reports", folder=Path(__file__).parents[1] / "report", package="headcount.report"
)
ASSUMED = "assumed: "  # how a note begins that stands above the figures


class Verdict(IntEnum):
    """How a question ends; the value is the command's exit code."""

    DONE = 0
    TARGET_MISSED = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    REFUSED = 4  # by --strict


@dataclass(frozen=True)
class Progress:
    """How far the work is, for whoever watches."""

    done: int
    total: int
    note: str = ""
    is_estimate: bool = False  # the note has a figure that nothing was simulated for
    found: str = ""  # what was found just now, in a line
    so_far: "Answer | None" = None  # the answer if the work were stopped here


Watch = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """Nobody watches."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Answer(ABC):
    """What every question returns: figures, notes and a verdict; text, JSON, tables and reports only show it."""

    notes: tuple[Note, ...]
    verdict: Verdict = Verdict.DONE
    asked: str = ""  # the call that asks the same again
    inputs: tuple[tuple[str, Path], ...] = ()  # files that were read, by argument: no output replaces one
    page: ClassVar[str | None] = None  # the module of `headcount/report` that draws it
    suffixes: ClassVar[tuple[str, ...]] = (".html",)  # that its report may have

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Every figure under its name in JSON."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The figures that form a table."""

    @abstractmethod
    def head(self) -> list[Block]:
        """What was asked, and the answer in a sentence."""

    @abstractmethod
    def body(self) -> list[Block]:
        """What stands below it."""

    def to_json(self) -> dict[str, Any]:
        """One JSON object, as the command prints it with --json; what is not finite is None."""
        found = {"schema_version": 1, **self.figures(), "notes": [note.to_json() for note in self.notes]}
        return {key: finite(value) for key, value in found.items()}

    def to_frame(self) -> "DataFrame":
        """The figures as a pandas table; nested ones have names such as `ttft_s.p95`."""
        from pandas import json_normalize  # noqa: PLC0415  slow to load, and only needed here

        return json_normalize(self.rows())

    def blocks(self) -> list[Block]:
        """The whole text: assumptions about the model first, other notes last; warnings and errors are apart."""
        quiet = [note for note in self.notes if note.severity in (Severity.INFO, Severity.ASSUMPTION)]
        first = [Line(str(note)) for note in quiet if note.remedy or note.text.startswith(ASSUMED)]
        last = [Line(f"  {note}", dim=True) for note in quiet if not note.remedy and not note.text.startswith(ASSUMED)]
        return [*self.head(), *first, Line(), *self.body(), *last]

    @property
    def alerts(self) -> tuple[Note, ...]:
        """The warnings and errors."""
        return tuple(note for note in self.notes if note.severity in (Severity.WARNING, Severity.ERROR))

    def __str__(self) -> str:
        return as_text([*self.blocks(), *(Line(f"{note.severity}: {note}") for note in self.alerts)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html([*self.blocks(), *(Line(f": {note}", bold=str(note.severity)) for note in self.alerts)])

    def report(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Write the answer as one file that opens offline; `command` is what it says how to ask again.

        The file appears whole or not at all. Needs the optional extra `report`. Raises ValueError where the file cannot
        be written, or where no report of such an answer exists.
        """
        if self.page is None:
            raise ValueError(f"no report of a {type(self).__name__} exists; take to_json() or to_frame()")
        check_report("report", path, self.suffixes)
        check_out_files({"report": Path(path)}, self.inputs)
        PAGES.load(self.page).write(Path(path), replace(self, asked=command or self.asked))


P = ParamSpec("P")
A = TypeVar("A", bound=Answer)


_READ = ("model", "workload", "paths", "before", "startup_log", "latency_profile")
_WRITTEN = ("requests_out", "steps_out", "out")


def question(function: Callable[P, A]) -> Callable[P, A]:
    """Makes the answer know how it was asked and what it read, and refuses an output that is an input."""

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> A:
        given = [repr(value) for value in args]
        given += [f"{name}={value!r}" for name, value in kwargs.items() if name != "progress"]
        named = signature(function).bind_partial(*args, **kwargs).arguments
        named |= named.pop("given", {}) | named.pop("engine", {})
        inputs = tuple((name, path) for name in _READ for path in _paths(named.get(name)))
        check_out_files({name: path for name in _WRITTEN for path in _paths(named.get(name))}, inputs)
        asked = f"hc.{function.__name__}({', '.join(given)})"
        return replace(function(*args, **kwargs), asked=asked, inputs=inputs)

    return ask


def _paths(value: Any) -> list[Path]:
    """The files that an argument names; a start-up log knows its own."""
    listed = value if isinstance(value, list | tuple) else [value]
    found = [Path(path) for each in listed if isinstance(path := getattr(each, "path", each), str | Path)]
    return [path / "config.json" if os.path.exists(path / "config.json") else path for path in found]
