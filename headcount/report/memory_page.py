"""The memory of one GPU as an SVG drawing or an HTML page, each one file."""

from pathlib import Path

from boundary.outputs import write_whole
from headcount.answers.memory import MemoryAnswer
from headcount.answers.memory_comparison import COLUMNS, MemoryComparison
from headcount.report.html import drawing, figure, figures, page, spaced, table
from headcount.report.waterfall import waterfall_chart
from headcount.text.units import GIB


def write(path: Path, answer: MemoryAnswer | MemoryComparison) -> None:
    """Write the drawing or the page, as the name says. The file appears whole or not at all."""
    single = answer.single if isinstance(answer, MemoryComparison) else answer
    if path.suffix.lower() == ".html":
        made = _page(single, answer)
    else:
        made = drawing(waterfall_chart(single.budget), _title(single), _setting(single))
    write_whole(path, made)


def _page(answer: MemoryAnswer, asked: MemoryAnswer | MemoryComparison) -> str:
    budget = answer.budget
    headline, _, rest = answer.headline.partition(": ")
    return page(
        "memory.html",
        title=_title(answer),
        model=budget.model,
        gpu=budget.gpu,
        setting=_setting(answer),
        fits=budget.fits,
        headline=headline,
        rest=spaced(rest),
        assumed=[str(note) for note in answer.notes if note.code not in ("memory-terms", "does-not-fit")],
        pool=[spaced(line) for line in answer.pool],
        figure=figures(figure(_caption(answer), waterfall_chart(budget), _note(answer))),
        comparison=_compared(asked) if isinstance(asked, MemoryComparison) else None,
        assumptions=table(("term", "value", "where it comes from"), budget.assumptions, caption="", layout="text"),
        command=asked.asked,
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
