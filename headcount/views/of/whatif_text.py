"""The cells of a what-if as a table, and what its columns mean."""

from typing import TYPE_CHECKING, Final

from headcount.queries.compare import HITS_LEGEND, SHOWN_CUT
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.needs import unserved_text
from headcount.queries.whatif import WhatifResult, decides_hits
from headcount.text.blocks import Table
from headcount.text.populations import mean_context_tokens
from headcount.text.units import dollars, percent, seconds
from headcount.text.words import (
    BEST,
    COVERED,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    joined,
    ratio_text,
    safe_meaning,
)
from simulator.study.fleets.layouts import AFFINITY
from simulator.study.points import Point
from simulator.study.served import latency_summary
from workloads.populations.population import Population
from workloads.traffic_changes import Amount

if TYPE_CHECKING:
    from headcount.queries.whatif import WhatifResult


NEEDS_MEANING: Final = (
    "for N users: the fewest GPUs that serve N users at 95 % confidence, their layout and dollars a month, for all "
    "servers together. If larger servers than the row's need fewer GPUs in all, those are counted."
)


def cells_table(answer: "WhatifResult") -> Table:
    """A row for each cell; what does not vary with the axes has no column."""
    first = ("what if", "servers", SAFE, BEST, "vs base")
    needs = [f"for {users:,}" for users in answer.users] or [PER_SAFE_USER]
    columns = (*first, *needs, *_context_columns(answer), *_cut_columns(answer), *cache_columns(answer), "bottleneck")
    rows = [_cells(answer, place) for place in range(len(answer.cells))]
    return Table(columns=columns, rows=rows, text_columns=(0, 1, len(columns) - 1), bold_column=2)


def _cells(answer: "WhatifResult", place: int) -> tuple[str, ...]:
    cell, needs = answer.cells[place], answer.needs[place]
    return (
        cell.name,
        cell.layout,
        f"{cell.users:,}",
        f"{cell.row.users:,}" if cell.row else "–",
        _ratio(answer, cell),
        *([*map(str, needs)] or [dollars(cell.usd_per_user_month)]),
        *_context_cells(answer, cell),
        *_cut_cells(answer, cell),
        *cache_cells(answer, place),
        (cell.row.binding if cell.row else None) or "–",
    )


def _ratio(answer: "WhatifResult", cell: Layout) -> str:
    if cell.row is None or not cell.row.users or answer.base is None:
        return "–"
    return "base" if cell is answer.base else ratio_text(cell.users_over(answer.base))


def _is_cut(answer: "WhatifResult") -> bool:
    return any(cell.traffic and cell.traffic.worst >= SHOWN_CUT for cell in answer.cells)


def varies_context(answer: "WhatifResult") -> bool:
    return any(axis.name == "context" for axis in answer.axes)


def _context_columns(answer: "WhatifResult") -> list[str]:
    return ["simulated context"] if varies_context(answer) else []


def _context_cells(answer: "WhatifResult", cell: Layout) -> list[str]:
    if not varies_context(answer):
        return []
    return [f"{cell.traffic.context_tokens:,.0f}" if cell.traffic else "–"]


def _cut_columns(answer: "WhatifResult") -> list[str]:
    return ["traffic cut"] if _is_cut(answer) else []


def _cut_cells(answer: "WhatifResult", cell: Layout) -> list[str]:
    if not _is_cut(answer):
        return []
    return [percent(cell.traffic.worst) if cell.traffic else "–"]


def cache_columns(answer: "WhatifResult") -> list[str]:
    if not decides_hits(answer.axes):
        return []
    at = answer.shared_load
    return ["prefix hits", *([f"TTFT p50 ({at})", f"TTFT p95 ({at})"] if at else [])]


def cache_cells(answer: "WhatifResult", place: int) -> list[str]:
    if not decides_hits(answer.axes):
        return []
    times = [_ttft_cells(answer.under_shared_load[place])] if answer.shared_load else []
    return [answer.cells[place].hits, *(cell for cells in times for cell in cells)]


def _ttft_cells(point: Point | None) -> tuple[str, str]:
    if point is None:
        return "–", "–"
    found = latency_summary(point, "ttft_s")
    return seconds(found["p50"]), seconds(found["p95"])


def reasons(answer: "WhatifResult") -> list[str]:
    """Why some cells serve nobody, and what a larger server makes of it."""
    pairs = zip(answer.cells, answer.others or (None,) * len(answer.cells), strict=False)
    found = [f"{cell.name}, {unserved_text(cell, other)}" for cell, other in pairs if cell.reason]
    return [*found, *router_texts(answer)]


def router_texts(answer: "WhatifResult") -> list[str]:
    """Which fleets need session affinity that nobody asked for."""
    pairs = zip(answer.cells, answer.needs, strict=True)
    found = [f"{need.layout} ({cell.name})" for cell, needs in pairs for need in needs if need.router == AFFINITY]
    if not found or any(each.looked and each.looked.question.router for each in answer.cells):
        return []
    return [
        f"{joined(list(dict.fromkeys(found)))}: with the router {AFFINITY}, which keeps each conversation on one "
        "server, so that its prefix is cached there. With another router they may serve far fewer users."
    ]


def legend(answer: "WhatifResult") -> list[str]:
    """What the columns mean."""
    said = [
        f"{safe_meaning(COVERED)} {BEST}: the mean. vs base: expected users compared with the first case, from the "
        "same random numbers, with the 95 % interval.",
    ]
    if varies_context(answer):
        said += [*context_meaning(answer), "Simulated context: the average after max_model_len cuts the longest."]
    if answer.has_table:
        said.append(NEEDS_MEANING if answer.users else PER_SAFE_MEANING)
    if decides_hits(answer.axes):
        at = f" TTFT is simulated with {answer.shared_load} in every row." if answer.shared_load else ""
        said.append(f"{HITS_LEGEND}{at}")
    return said


def context_meaning(answer: "WhatifResult") -> list[str]:
    """What a context is, where it is varied; in a trace it is the prompts that change."""
    base, axis = answer.base, next((axis for axis in answer.axes if axis.name == "context"), None)
    if axis is None or base is None or base.looked is None:
        return []
    load = base.looked.question.workload
    what = "a prompt and its answer" if isinstance(load, Population) else "a prompt"
    factors = [value for value in axis.values if isinstance(value, Amount) and value.is_factor and value.value != 1]
    times = f"; x{factors[0].value:g} is {factors[0].value:g} times as many" if factors else ""
    mean = f"{mean_context_tokens(load):,.0f} in the first case"
    return [f"Average context: tokens of {what}; {mean}{times}."]
