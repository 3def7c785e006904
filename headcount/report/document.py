"""Where the sections become one file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from headcount.cli.out_files import check_out_file, write_whole
from headcount.report.findings import Findings, command_line
from headcount.report.html import render_template
from registry.registry import Registry
from simulator.study.capacity_table import CapacityQuestion, CapacityRow

SECTIONS = Registry(
    what="report section",
    section="report_sections",
    folder=Path(__file__).parent / "sections",
    package="headcount.report.sections",
)


@dataclass(frozen=True)
class Section:
    """A module of `headcount/report/sections`; one that has nothing to say renders an empty string."""

    name: str
    title: str
    order: int
    render: Callable[[Findings], str]


def sections() -> list[Section]:
    """Every section that has a file, in the order of reading."""
    modules = [(name, SECTIONS.load(name)) for name in SECTIONS.names()]
    found = [Section(name, module.TITLE, module.ORDER, module.render) for name, module in modules]
    return sorted(found, key=lambda section: section.order)


def prepare_report(path: str | os.PathLike[str], option: str = "report") -> None:
    """Refuse before the long work what would make the report impossible after it. Raises ValueError."""
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise ValueError("the report needs matplotlib and jinja2; install headcount[report]")
    check_out_file(option, Path(path), example="report.html")


def write_report(
    path: str | os.PathLike[str],
    question: CapacityQuestion,
    rows: Sequence[CapacityRow],
    workload_name: str,
    *,
    command: str | None = None,
    written_at: datetime | None = None,
) -> None:
    """Write the report of these rows; `command` repeats the run (by default this process's own command line).

    The file appears whole or not at all. Raises ValueError as `prepare_report` does.
    """
    prepare_report(path)
    findings = Findings(
        question=question, rows=tuple(rows), workload_name=workload_name, command=command or command_line()
    )
    text = render_report(findings, written_at or datetime.now(UTC))
    write_whole(path, text)


def render_report(findings: Findings, written_at: datetime) -> str:
    """The whole HTML document."""
    parts = [(section, section.render(findings)) for section in sections()]
    question = findings.question
    return render_template(
        "page.html",
        model=question.architecture.name,
        gpu=question.gpu.name,
        workload=question.workload.name,
        vllm_version=question.options.vllm_version,
        written=f"{written_at:%Y-%m-%d}",
        sections=[{"title": section.title, "name": section.name, "body": body} for section, body in parts if body],
    )
