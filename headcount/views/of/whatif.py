"""What other traffic, users or settings cost, in words."""

from typing import TYPE_CHECKING

from headcount.inputs.reading.variations import choice_text, value_text
from headcount.queries.compare import remarks_on
from headcount.queries.whatif import SWING, WhatifResult
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted
from headcount.text.words import (
    AT_CONFIDENCE,
    ratio_text,
)
from headcount.views.of.whatif_summary import bought_text, enough_text, summary
from headcount.views.of.whatif_text import cells_table, legend, reasons
from headcount.views.report_data.study import study_json

if TYPE_CHECKING:
    from headcount.queries.whatif import WhatifResult

__all__ = ["body", "details", "head", "summary"]


def head(answer: WhatifResult) -> list[Block]:
    base = answer.base
    title = Line(f", workload {answer.workload}: {answer.slo}", bold=answer.model)
    if base is None or base.row is None:
        return [title]
    if said := bought_text(answer):
        return [title, Line(bold=said), *remarks_on(answer.axes)]
    enough = f": {said}" if (said := enough_text(answer, base)) else ""
    on = f" on {counted(base.gpus, 'GPU')} ({base.name}, {base.layout}){enough}"
    return [title, Line(on, bold=f"{counted(base.users, 'user')} {AT_CONFIDENCE}"), *remarks_on(answer.axes)]


def body(answer: WhatifResult) -> list[Block]:
    blocks: list[Block] = []
    if answer.swings:
        columns = ("assumption", f"{SWING:.0%} less", f"{SWING:.0%} more")
        rows = [(swing.name, *map(ratio_text, swing.effects)) for swing in answer.swings]
        blocks += [Table(columns=columns, rows=rows), Line()]
    if answer.has_table:
        blocks += [cells_table(answer), Line()]
    said = map(Line, reasons(answer))
    return [*blocks, *said, *(Line(text, dim=True) for text in legend(answer))]


def details(answer: WhatifResult) -> dict[str, object]:
    found = study_json(answer, answer.study) | {"grid": _grid_json(answer)}
    if answer.swings:
        both = [(swing.name, swing.effects) for swing in answer.swings]
        swings = [
            {"name": name, "less": less.mean if less else 0.0, "more": more.mean if more else 0.0}
            for name, (less, more) in both
        ]
        found |= {"swing": SWING, "tornado": swings, "is_tornado_simulated": True}
    return found


def _grid_json(answer: WhatifResult) -> dict[str, object] | None:
    """Users at 95 % confidence, or GPUs where users are asked for; the last axis across."""
    if answer.users:
        rows = [
            {"name": cell.name, "values": [need.gpus for need in needs]}
            for cell, needs in zip(answer.cells, answer.needs, strict=True)
        ]
        columns = [f"{users:,} users" for users in answer.users]
        return {"title": "GPUs needed by number of users", "columns": columns, "rows": rows}
    if not answer.axes:
        return None
    last = [value_text(answer.axes[-1].name, value) for value in answer.axes[-1].values]
    names = [choice_text({axis.name: cell.choice[axis.name] for axis in answer.axes[:-1]}) for cell in answer.cells]
    rows = [
        {"name": names[place], "values": [cell.users for cell in answer.cells[place : place + len(last)]]}
        for place in range(0, len(answer.cells), len(last))
    ]
    return {"title": "Users at 95 % confidence", "columns": last, "rows": rows}
