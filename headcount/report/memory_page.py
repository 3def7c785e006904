"""The memory of one GPU as an SVG drawing or an HTML page, each one file."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headcount.cli.out_files import write_whole
from headcount.report.document import prepare_report
from headcount.strict import assumed_notes
from headcount.text.memory_answer import MemoryAnswer, pool, verdict

if TYPE_CHECKING:
    from kvcache.memory.comparison import Candidate

SUFFIXES = (".svg", ".html")
LONGEST_TITLE = 46  # characters of an SVG's title in large type
PIXELS_PER_UNIT = 2  # of an SVG on its own: twice the inline charts' size, since nothing else is on the page


def check_out(path: Path) -> None:
    """Refuse before any work what could not be written. Raises ValueError."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out {path}: the file's name must end in .svg or .html")
    prepare_report(path, "--out")


def write_memory(path: Path, answer: MemoryAnswer, candidates: Sequence["Candidate"] = ()) -> None:
    """Write the drawing or the page, as the name says. The file appears whole or not at all."""
    is_page = path.suffix.lower() == ".html"
    write_whole(path, render_page(answer, candidates, datetime.now(UTC)) if is_page else render_svg(answer))


def render_svg(answer: MemoryAnswer) -> str:
    """The waterfall alone, in colours that follow the reader's light or dark mode."""
    from headcount.report.html import render_template  # noqa: PLC0415  with jinja2, an optional extra
    from headcount.report.waterfall import waterfall_chart  # noqa: PLC0415

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


def render_page(answer: MemoryAnswer, candidates: Sequence["Candidate"], written_at: datetime) -> str:
    """The whole HTML document."""
    from headcount.report.findings import command_line  # noqa: PLC0415  with the core of the simulator
    from headcount.report.html import figure, figures, render_template, spaced, table  # noqa: PLC0415
    from headcount.report.waterfall import waterfall_chart  # noqa: PLC0415

    budget = answer.budget
    headline, _, rest = verdict(answer).partition(": ")
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
            assumed=assumed_notes(answer.assumed),
            pool=[spaced(line) for line in pool(answer)],
            figure=figures(figure(_caption(answer), waterfall_chart(budget), _note(answer))),
            comparison=_comparison(answer, candidates),
            assumptions=table(("term", "value", "where it comes from"), budget.assumptions, caption="", layout="text"),
            command=command_line(),
        )
    )


def _title(answer: MemoryAnswer) -> str:
    return f"{answer.budget.model} on {answer.budget.gpu}"


def _setting(answer: MemoryAnswer) -> str:
    budget = answer.budget
    weights = "16-bit" if budget.quantization == "none" else budget.quantization
    return (
        f"{budget.split}, {weights} weights, {budget.kv_cache_dtype} KV cache, max_model_len "
        f"{budget.max_model_len:,}, vLLM {budget.vllm_version}"
    )


def _caption(answer: MemoryAnswer) -> str:
    from headcount.text.text import GIB  # noqa: PLC0415  with rich, once a page is written

    budget = answer.budget
    total = f"{budget.total_bytes / GIB:,.1f} GiB"
    if budget.fits:
        return f"{budget.available_kv_bytes / GIB:,.1f} of {total} hold the KV cache"
    needed = budget.total_bytes + budget.missing_bytes
    return f"Starting takes {needed / GIB:,.1f} GiB of a GPU that has {total}"


def _note(answer: MemoryAnswer) -> str:
    budget = answer.budget
    return (
        f"Each {budget.gpu} at TP {budget.tp}; each bar begins where the one above it ends. 'left to others' is what "
        f"gpu_memory_utilization {budget.gpu_memory_utilization:g} keeps from vLLM."
    )


def _comparison(answer: MemoryAnswer, candidates: Sequence["Candidate"]) -> dict[str, object] | None:
    if not candidates:
        return None
    from headcount.report.html import table  # noqa: PLC0415
    from headcount.text.memory_comparison import (  # noqa: PLC0415  only where it is asked for
        COLUMNS,
        comparison_rows,
        conditions,
        conversations_note,
        refusals,
        summary,
    )

    rows = comparison_rows(answer, candidates)
    return {
        "summary": summary(candidates),
        "table": table(COLUMNS, rows, caption="", layout="numbers comparison"),
        "notes": [conversations_note(answer), *refusals(candidates), *conditions(candidates)],
    }
