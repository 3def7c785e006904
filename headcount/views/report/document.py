"""Where an answer's JSON becomes a report: its sections, and the formats it is written in."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from files.documents import ReadJson
from files.errors import HeadcountError
from files.outputs import check_out_file, write_whole
from files.registry import Registry
from files.schema import typed
from headcount.views.report.charts.chart import Chart
from headcount.views.report.parts import Part
from headcount.views.report.sections import SHIPPED, Shipped

GROUPS = ("fleet", "load", "evidence")  # files of shipped sections, imported once a report is made
SECTIONS = Registry(
    what="report section",
    section="report_sections",
    needs=("TITLE", "ORDER", "SHOWN_BY", "parts"),
    folder=Path(__file__).parent / "sections",
    ignored=tuple(f"{group}.py" for group in GROUPS),
    package="headcount.views.report.sections",
)
FORMATS = Registry(
    what="report format",
    section="report_formats",
    needs=("missing", "made"),
    folder=Path(__file__).parent / "formats",
    package="headcount.views.report.formats",
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report; without parts this answer has nothing for it, and `shown_by` says which command has."""

    name: str
    title: str
    shown_by: str
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What every format writes."""

    answer: ReadJson
    sections: tuple[Section, ...]

    @property
    def summary(self) -> ReadJson:
        found: ReadJson = self.answer["report"]["summary"]
        return found

    @property
    def shown(self) -> list[Section]:
        return [section for section in self.sections if section.parts]

    @property
    def absent(self) -> list[Section]:
        return [section for section in self.sections if not section.parts]

    @property
    def charts(self) -> list[Chart]:
        return [part for section in self.shown for part in section.parts if isinstance(part, Chart)]


def check_report(option: str, path: str | os.PathLike[str]) -> None:
    """Refuse what would make a report impossible after the work. Raises HeadcountError."""
    check_out_file(option, Path(path), tuple(f".{name}" for name in FORMATS.names()), example="report.html")
    missing = FORMATS.load(_format_of(Path(path))).missing()
    if missing:
        raise HeadcountError(f"{option} {path}: {missing}")


def write(path: Path, answer: ReadJson) -> None:
    """Write an answer's report in the format that the file's name ends in; the file appears whole or not at all."""
    write_whole(path, made(path, answer))


def made(path: Path, answer: ReadJson) -> str | bytes:
    """What to write there."""
    name = _format_of(path)
    with FORMATS.running(name):
        content: str | bytes = FORMATS.load(name).made(report_of(answer))
    return content


def render(answer: ReadJson) -> str:
    """An answer's report as one HTML document."""
    content: str = FORMATS.load("html").made(report_of(answer))
    return content


def report_of(answer: ReadJson) -> Report:
    """The sections of an answer's JSON. Raises HeadcountError where there is nothing to report from."""
    if not isinstance(answer.get("report"), Mapping):
        raise HeadcountError(
            "the answer has no report in it; write it with --json, with --report FILE.json, or with "
            "to_json(report=True)"
        )
    kinds = sections()
    for name, kind in kinds.items():
        typed(kind.ORDER, int, str(getattr(kind, "__file__", name)), "ORDER")
    order = sorted(kinds.items(), key=lambda item: (item[1].ORDER, item[0]))
    return Report(answer=answer, sections=tuple(_section(name, kind, answer) for name, kind in order))


def sections() -> dict[str, Shipped | ModuleType]:
    """Each by its name; of two with one name the user's own."""
    for group in GROUPS:
        import_module(f"{SECTIONS.package}.{group}")
    return SHIPPED | {name: SECTIONS.load(name) for name in SECTIONS.names()}


def _section(name: str, kind: Shipped | ModuleType, answer: ReadJson) -> Section:
    with nullcontext() if isinstance(kind, Shipped) else SECTIONS.running(name):
        parts = tuple(kind.parts(answer))
    return Section(name=name.replace("_", "-"), title=str(kind.TITLE), shown_by=str(kind.SHOWN_BY), parts=parts)


def _format_of(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
