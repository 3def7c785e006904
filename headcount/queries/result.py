"""What every answer has: figures, notes, a verdict, and the ways to read it."""

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property, wraps
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, TypeVar

from files.outputs import check_out_files
from headcount import __version__
from headcount.diagnostics import Diagnostic, Severity
from headcount.queries.report_data.input_files import inputs_json
from headcount.views.report import document
from headcount.views.summary.summary import Summary, risk_of
from headcount.text.blocks import Block, Line, block_json
from headcount.views.terminal.drawing import as_html, as_text
from headcount.text.units import finite

if TYPE_CHECKING:
    from pandas import DataFrame

    from simulator.study.running.simulations import Simulations


PACKAGES = ("numpy", "numba", "scipy")
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
    so_far: "Result | None" = None  # the answer if the work were stopped here
    what: str = ""  # what is counted, where it is not what the command counts


SCREENING: Final = "layouts screened by estimate"  # what progress counts before anything is simulated
Watch = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """Nobody watches."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result(ABC):
    """What every question returns: figures, notes and a verdict; text, JSON, tables and reports only show it."""

    diagnostics: tuple[Diagnostic, ...]
    verdict: Verdict = Verdict.DONE
    asked: str = ""  # the call that asks the same again
    inputs: tuple[tuple[str, Path], ...] = ()  # files that were read, by argument: no output replaces one
    simulations: "Simulations | None" = None  # of its study, where its report's loads are run and kept too
    kind: ClassVar[str] = "answer"  # of question, such as plan

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

    def summary(self) -> Summary:
        """What the person who signs reads first."""
        said = [str(block) for block in self.head() if str(block)] or [self.kind]
        return Summary(question=said[0], answer=said[-1], risk=risk_of(self.diagnostics, ""))

    def details(self) -> dict[str, Any]:
        """What a report shows beyond the figures; it may take some seconds to work out."""
        return {}

    @cached_property
    def known_details(self) -> dict[str, Any]:
        """The same, worked out once."""
        return self.details()

    def to_json(self, *, report: bool = False) -> dict[str, Any]:
        """One JSON object; what is not finite is None.

        With `report`, as the command prints it with --json: with all that `headcount report` makes a report of, which
        may take some seconds to work out.
        """
        found = {"schema_version": 2, **self.figures(), "diagnostics": [each.to_json() for each in self.diagnostics]}
        if report:
            found["report"] = self._report_json()
        return {key: finite(value) for key, value in found.items()}

    def _report_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "summary": self.summary().to_json(),
            "body": [block_json(block) for block in self.body()],
            "asked": self.asked,
            "inputs": inputs_json(self.inputs),
            "versions": versions_json(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            **self.known_details,
        }

    def to_frame(self) -> "DataFrame":
        """The figures as a pandas table; nested ones have names such as `ttft_s.p95`."""
        from pandas import json_normalize  # noqa: PLC0415  slow to load, and only needed here

        return json_normalize(self.rows())

    def blocks(self) -> list[Block]:
        """The whole text: assumptions about the model first, other notes last; warnings and errors are apart."""
        quiet = [note for note in self.diagnostics if note.severity in (Severity.INFO, Severity.ASSUMPTION)]
        first = [Line(str(note)) for note in quiet if note.remedy or note.text.startswith(ASSUMED)]
        last = [Line(f"  {note}", dim=True) for note in quiet if not note.remedy and not note.text.startswith(ASSUMED)]
        return [*self.head(), *first, Line(), *self.body(), *last]

    @property
    def alerts(self) -> tuple[Diagnostic, ...]:
        """The warnings and errors."""
        return tuple(note for note in self.diagnostics if note.severity in (Severity.WARNING, Severity.ERROR))

    def __str__(self) -> str:
        return as_text([*self.blocks(), *(Line(f"{note.severity}: {note}") for note in self.alerts)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html([*self.blocks(), *(Line(f": {note}", bold=str(note.severity)) for note in self.alerts)])

    def report(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Write the answer as one file: .html opens offline; .md, .pdf, .csv, .json, .svg by the name's end.

        `command` is what it says how to ask again. The file appears whole or not at all. Raises ValueError where it
        cannot be written, or for another ending.
        """
        document.check_report("report", path)
        check_out_files({"report": Path(path)}, self.inputs)
        asked = self if command is None else replace(self, asked=command)
        document.write(Path(path), asked.to_json(report=True))


def versions_json() -> dict[str, str]:
    """With which the same figures come again."""
    return {
        "headcount": __version__,
        **{name: version(name) for name in PACKAGES},
        "Python": platform.python_version(),
    }


P = ParamSpec("P")
A = TypeVar("A", bound=Result)


_READ = ("model", "workload", "paths", "before", "after", "startup_log", "latency_profile")
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
