"""Where an answer's JSON becomes a report: its sections, and the formats it is written in."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from files.documents import ReadJson
from files.errors import HeadcountError
from files.outputs import check_out_file, write_whole
from files.registry import Registry
from files.schema import typed
from headcount.views.report.charts.chart import Chart
from headcount.views.report.parts import Part

SECTIONS = Registry(
    what="report section",
    section="report_sections",
    needs=("TITLE", "ORDER", "SHOWN_BY", "parts"),
    folder=Path(__file__).parent / "sections",
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
    modules = [(name, SECTIONS.load(name)) for name in SECTIONS.names()]
    order = sorted((typed(module.ORDER, int, str(module.__file__), "ORDER"), name) for name, module in modules)
    return Report(answer=answer, sections=tuple(_section(name, answer) for _, name in order))


def _section(name: str, answer: ReadJson) -> Section:
    module = SECTIONS.load(name)
    with SECTIONS.running(name):
        parts = tuple(module.parts(answer))
    return Section(name=name.replace("_", "-"), title=str(module.TITLE), shown_by=str(module.SHOWN_BY), parts=parts)


def _format_of(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
