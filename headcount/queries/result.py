"""What every question returns: figures, diagnostics, a verdict. How it is shown is for the views."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from files.documents import Json, ReadJson
from files.outputs import check_out_files
from headcount.diagnostics import Diagnostic, Severity
from headcount.text.units import finite
from headcount.text.words import load_text
from headcount.version import SCHEMA_VERSION

if TYPE_CHECKING:
    from pandas import DataFrame

    from headcount.queries.report_data.study import Study
    from simulator.study.points import Point, Watcher
    from simulator.study.running.simulations import Simulations

_VIEWS: Final = "headcount.views.shown"  # by name: views import results, results no views


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
    so_far: "Result | None" = None  # the result if the work were stopped here
    what: str = ""  # what is counted, where it is not what the command counts


SCREENING: Final = "layouts screened"  # what progress counts before anything is simulated
Watch = Callable[[Progress], None]


def noted(progress: Watch, done: int, total: int, name: str = "", what: str = "") -> "Watcher":
    """Tells progress of each load that is simulated, for a layout of that name."""

    def watch(point: "Point", unit: str) -> None:
        note = ": ".join(filter(None, (name, load_text(point, unit))))
        progress(Progress(done=done, total=total, note=note, what=what))

    return watch


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result(ABC):
    """Plain figures with diagnostics and a verdict; text, JSON, tables and reports only show it."""

    diagnostics: tuple[Diagnostic, ...]
    verdict: Verdict = Verdict.DONE
    asked: str = ""  # the call that asks the same again
    inputs: tuple[tuple[str, Path], ...] = ()  # files that were read, by argument: no output replaces one
    explain: bool = True  # whether its text has every column, and says what they mean
    simulations: "Simulations | None" = None  # of its study, where its report's loads are run and saved too
    kind: ClassVar[str]  # of question, as JSON has it
    view: ClassVar[str]  # its module in `headcount.views.of`

    @abstractmethod
    def figures(self) -> Json:
        """Every figure under its name in JSON."""

    @abstractmethod
    def rows(self) -> list[Json]:
        """The figures that form a table."""

    @property
    def study(self) -> "Study | None":
        """The deployment that a report is about; None where nothing was searched or nothing runs."""
        return None

    def report_figures(self) -> Json:
        """What a report shows beyond the figures, simulated and estimated around the study: some seconds."""
        if self.study is None:
            return {}
        from headcount.queries.report_data.study import study_figures  # noqa: PLC0415  of studies alone

        return study_figures(self.study, self.simulations)

    def complete(self) -> Self:
        """The same with all that a report shows, worked out once."""
        if "evidence" not in vars(self):
            vars(self)["evidence"] = self.report_figures()
        return self

    @cached_property
    def evidence(self) -> ReadJson:
        """What `complete` worked out: views simulate nothing."""
        raise AssertionError("a result is completed before a report of it is drawn")

    @property
    def alerts(self) -> tuple[Diagnostic, ...]:
        """The warnings and errors."""
        return tuple(each for each in self.diagnostics if each.severity in (Severity.WARNING, Severity.ERROR))

    def to_json(self, *, report: bool = False) -> Json:
        """One JSON object; what is not finite is None.

        With `report`, as the command prints it with --json: with all that `headcount report` makes a report of, which
        may take some seconds to work out.
        """
        found = {
            "schema_version": SCHEMA_VERSION,
            **self.figures(),
            "diagnostics": [each.to_json() for each in self.diagnostics],
        }
        if report:
            found["report"] = _views().report_json(self.complete())
        return {key: finite(value) for key, value in found.items()}

    def to_frame(self) -> "DataFrame":
        """The figures as a pandas table; nested ones have names such as `ttft_s.p95`."""
        from pandas import json_normalize  # noqa: PLC0415  slow to load, and only needed here

        return json_normalize(self.rows())

    def __str__(self) -> str:
        return str(_views().text(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(_views().notebook(self))

    def report(self, path: str | os.PathLike[str], *, command: str | None = None) -> None:
        """Write the result as one file: .html opens offline; .md, .pdf, .csv, .json, .svg by the name's end.

        `command` is what it says how to ask again. The file appears whole or not at all. Raises HeadcountError where it
        cannot be written, or for another ending.
        """
        _views().check_report("report", path)
        check_out_files({"report": Path(path)}, self.inputs)
        asked = self if command is None else replace(self, asked=command)
        _views().write_report(Path(path), asked.to_json(report=True))


def _views() -> Any:
    return import_module(_VIEWS)
