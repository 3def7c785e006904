"""The memory of one GPU as an SVG drawing or an HTML page, each one file."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from boundary.outputs import write_whole
from headcount.answers.memory import MemoryAnswer
from headcount.answers.memory_comparison import COLUMNS, MemoryComparison
from headcount.report.html import figure, figures, render_template, spaced, table
from headcount.report.waterfall import waterfall_chart
from headcount.text.units import GIB

LONGEST_TITLE = 46  # characters of an SVG's title in large type
PIXELS_PER_UNIT = 2  # of an SVG on its own: twice the inline charts' size, since nothing else is on the page


def write(path: Path, answer: MemoryAnswer | MemoryComparison) -> None:
    """Write the drawing or the page, as the name says. The file appears whole or not at all."""
    comparison = answer if isinstance(answer, MemoryComparison) else None
    single = answer.single if isinstance(answer, MemoryComparison) else answer
    shown = replace(single, asked=answer.asked)
    is_page = path.suffix.lower() == ".html"
    write_whole(path, render_page(shown, comparison, datetime.now(UTC)) if is_page else render_svg(shown))


def render_svg(answer: MemoryAnswer) -> str:
    """The waterfall alone, in colours that follow the reader's light or dark mode."""
    drawn = waterfall_chart(answer.budget)
    found = re.match(r'<svg viewBox="([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)" (.*?)>(.*)</svg>$', drawn, re.DOTALL)
    assert found is not None, "a chart begins with its viewBox"
    width, height = float(found[3]), float(found[4])
    return str(
        render_template(
            "memory.svg",
            title=_title(answer),
            title_size=13 if len(_title(answer)) <= LONGEST_TITLE else 10,
            setting=_setting(answer),
            label=type(drawn)(found[5]),
            body=type(drawn)(found[6]),
            width=width,
            height=height,
            scale=PIXELS_PER_UNIT,
        )
    )


def render_page(answer: MemoryAnswer, comparison: MemoryComparison | None, written_at: datetime) -> str:
    """The whole HTML document."""
    budget = answer.budget
    headline, _, rest = answer.headline.partition(": ")
    return str(
        render_template(
            "memory.html",
            title=_title(answer),
            model=budget.model,
            gpu=budget.gpu,
            setting=_setting(answer),
            written=f"{written_at:%Y-%m-%d}",
            fits=budget.fits,
            headline=headline,
            rest=spaced(rest),
            assumed=[str(note) for note in answer.notes if note.code not in ("memory-terms", "does-not-fit")],
            pool=[spaced(line) for line in answer.pool],
            figure=figures(figure(_caption(answer), waterfall_chart(budget), _note(answer))),
            comparison=None if comparison is None else _compared(comparison),
            assumptions=table(("term", "value", "where it comes from"), budget.assumptions, caption="", layout="text"),
            command=answer.asked,
        )
    )


def _title(answer: MemoryAnswer) -> str:
    return f"{answer.budget.model} on {answer.budget.gpu}"


def _setting(answer: MemoryAnswer) -> str:
    return f"{answer.setting}, max_model_len {answer.budget.max_model_len:,}, vLLM {answer.budget.vllm_version}"


def _caption(answer: MemoryAnswer) -> str:
    budget = answer.budget
    total = f"{budget.total_bytes / GIB:,.1f} GiB"
    if budget.fits:
        return f"{budget.available_kv_bytes / GIB:,.1f} of {total} hold the KV cache"
    needed = budget.total_bytes + budget.missing_bytes
    return f"vLLM needs {needed / GIB:,.1f} GiB to start; the GPU has {total}"


def _note(answer: MemoryAnswer) -> str:
    budget = answer.budget
    return (
        f"Each {budget.gpu} at TP {budget.tp}; each bar begins where the one above it ends. 'left to others' is the "
        f"memory that gpu_memory_utilization {budget.gpu_memory_utilization:g} keeps from vLLM."
    )


def _compared(comparison: MemoryComparison) -> dict[str, object]:
    return {
        "summary": comparison.summary,
        "table": table(COLUMNS, comparison.cells(), caption="", layout="numbers comparison"),
        "notes": comparison.remarks,
    }
