"""Where the sections become one file."""

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


def sections() -> list[tuple[int, str, str]]:
    """Order, title and name of every section that has a file, in the order of reading.

    Raises InputError for a wrong title or order.
    """
    found = []
    for name in SECTIONS.names():
        module = SECTIONS.load(name)
        title, order = typed((module.TITLE, module.ORDER), tuple[str, int], module.__file__, "TITLE with ORDER")
        found.append((order, title, name))
    return sorted(found)


def write(path: Path, answer: CapacityAnswer) -> None:
    """Write the report of a capacity answer; the file appears whole or not at all."""
    write_whole(path, render_report(answer))


def render_report(answer: CapacityAnswer) -> str:
    """The whole HTML document."""
    asked = answer.question
    return page(
        "page.html",
        [(name, title, _rendered(name, answer)) for _, title, name in sections()],
        model=asked.architecture.name,
        gpu=asked.gpu.name,
        workload=asked.workload.name,
        vllm_version=asked.args.vllm_version,
    )


def _rendered(name: str, answer: CapacityAnswer) -> str:
    """What a section says; nothing where it has nothing to say."""
    with SECTIONS.running(name):
        return typed(SECTIONS.load(name).render(answer), str, SECTIONS.path(name), "what render returns")
