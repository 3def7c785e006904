"""Where the sections become one file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boundary.outputs import write_whole
from boundary.registry import Registry
from boundary.schema import typed
from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import page

SECTIONS = Registry(
    what="report section",
    section="report_sections",
    needs=("TITLE", "ORDER", "render"),
    folder=Path(__file__).parent / "sections",
    package="headcount.report.sections",
)


@dataclass(frozen=True)
class Section:
    """A module of `headcount/report/sections`; one that has nothing to say renders an empty string."""

    name: str
    title: str
    order: int
    render: Callable[[CapacityAnswer], str]


def sections() -> list[Section]:
    """Every section that has a file, in the order of reading. Raises InputError for a wrong title or order."""
    found = []
    for name in SECTIONS.names():
        module = SECTIONS.load(name)
        title, order = typed((module.TITLE, module.ORDER), tuple[str, int], module.__file__, "TITLE with ORDER")
        found.append(Section(name, title, order, module.render))
    return sorted(found, key=lambda section: section.order)


def write(path: Path, answer: CapacityAnswer) -> None:
    """Write the report of a capacity answer; the file appears whole or not at all."""
    write_whole(path, render_report(answer))


def render_report(answer: CapacityAnswer) -> str:
    """The whole HTML document."""
    asked = answer.question
    return page(
        "page.html",
        [(section.name, section.title, _rendered(section, answer)) for section in sections()],
        model=asked.architecture.name,
        gpu=asked.gpu.name,
        workload=asked.workload.name,
        vllm_version=asked.args.vllm_version,
    )


def _rendered(section: Section, answer: CapacityAnswer) -> str:
    with SECTIONS.running(section.name):
        return typed(section.render(answer), str, SECTIONS.path(section.name), "what render returns")
