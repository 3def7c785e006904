"""The cases of a what-if: their names, their columns, and what the columns mean."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from headcount.inputs.reading.variations import value_text
from headcount.queries.compare import HITS_LEGEND, SHOWN_CUT
from headcount.queries.money import usd_per_user_month
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.needs import Need, unserved_text
from headcount.queries.whatif import WhatifResult, decides_hits
from headcount.text.blocks import Column
from headcount.text.populations import mean_context_tokens
from headcount.text.units import counted, dollars, percent, seconds, whole_dollars
from headcount.text.words import (
    BEST,
    COVERED,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    UPPER,
    joined,
    ratio_text,
    safe_meaning,
)
from headcount.views.of.layouts_summary import spoken
from headcount.views.summary.summary import MOST_OPTIONS
from simulator.study.candidate import AFFINITY
from simulator.study.served import latency_summary
from workloads.effects import TrafficEffects
from workloads.populations.population import Population
from workloads.traffic_changes import Amount

NEEDS_MEANING: Final = (
    "for N users: the fewest GPUs that serve N users at 95 % confidence, their layout and dollars a month, for all "
    "servers together. If larger servers than the row's need fewer GPUs in all, those are counted."
)
LITTLE_CUT: Final = 0.95  # of the average prompt of a trace


def table_columns(answer: WhatifResult) -> Iterator[Column[int]]:
    """Of a cell's place; what does not vary with the axes has no column."""
    cells = answer.cells
    yield Column("what if", lambda place: _row_name(cells[place]), is_text=True)
    yield Column("servers", lambda place: cells[place].layout, is_text=True)
    yield Column(SAFE, lambda place: f"{cells[place].about}{cells[place].users:,}", is_bold=True)
    if answer.explain:
        yield Column(BEST, lambda place: _figure(row.users if (row := cells[place].row) else None))
    yield Column("vs base", lambda place: _ratio(answer, cells[place]))
    yield from _needs_columns(answer, "for {:,}", str)
    if _varies_context(answer):
        yield Column(
            "simulated context", lambda place: _figure(cut.context_tokens if (cut := cells[place].traffic) else None)
        )
    if any(cell.traffic and cell.traffic.worst >= SHOWN_CUT for cell in cells):
        yield Column("traffic cut", lambda place: percent(cut.worst) if (cut := cells[place].traffic) else "–")
    yield from _cache_columns(answer)
    if answer.explain:
        yield Column("bottleneck", lambda at: (row.binding if (row := cells[at].row) else None) or "–", is_text=True)


def page_columns(answer: WhatifResult) -> Iterator[Column[int]]:
    """The same of the summary: what one number of users needs, or whom each case serves."""
    yield Column("case", lambda place: case_text(answer.cells[place]))
    yield from (_bought_columns if len(answer.users) == 1 else _served_columns)(answer)
    yield from _cache_columns(answer)


def _bought_columns(answer: WhatifResult) -> Iterator[Column[int]]:
    """What the users need, and whom it serves."""
    first = [needs[0] for needs in answer.needs]
    yield Column(f"needed for {counted(answer.users[0], 'user')}", lambda place: _gpus_text(first[place]))
    yield Column("$ a month", lambda place: whole_dollars(first[place].usd_per_month))
    yield Column(
        "$ per user", lambda place: dollars(usd_per_user_month(first[place].usd_per_month, first[place].users))
    )
    yield Column(SAFE, lambda place: _figure(first[place].users_low))
    yield Column(BEST, lambda place: _figure(first[place].users_mean))
    yield Column(UPPER, lambda place: _figure(first[place].users_high))


def _served_columns(answer: WhatifResult) -> Iterator[Column[int]]:
    """Whom the cell serves, and what each number of users needs."""
    cells, counts = answer.cells, {cell.gpus for cell in answer.cells[:MOST_OPTIONS]}
    on = f" on {counted(counts.pop(), 'GPU')}" if len(counts) == 1 else ""
    yield Column(f"{SAFE}{on}", lambda place: f"{cells[place].users:,}")
    yield Column(BEST, lambda place: _figure(row.users if (row := cells[place].row) else None))
    yield Column(UPPER, lambda place: _figure(row.users_high if (row := cells[place].row) else None))
    yield from _needs_columns(answer, "for {:,} users, a month", Need.with_each)


def _needs_columns(answer: WhatifResult, title: str, shown: Callable[[Need], str]) -> Iterator[Column[int]]:
    """What each number of users needs; without one, the cost of a user."""
    if not answer.users:
        yield Column(PER_SAFE_USER, lambda place: dollars(answer.cells[place].usd_per_user_month))
    for needs, users in zip(zip(*answer.needs, strict=True), answer.users, strict=False):
        yield Column(title.format(users), partial(_shown_need, needs, shown))


def _cache_columns(answer: WhatifResult) -> Iterator[Column[int]]:
    """Prefix hits, and TTFT under one load, where the axes decide them."""
    if decides_hits(answer.axes):
        yield Column("prefix hits (full load)", lambda place: answer.cells[place].hits)
        for quantile in ("p50", "p95") if answer.shared_load else ():
            yield Column(f"TTFT {quantile} ({answer.shared_load})", partial(_shared_ttft, answer, quantile))


def _shared_ttft(answer: WhatifResult, quantile: str, place: int) -> str:
    point = answer.under_shared_load[place]
    return "–" if point is None else seconds(latency_summary(point, "ttft_s")[quantile])


def _shown_need(needs: Sequence[Need], shown: Callable[[Need], str], place: int) -> str:
    return shown(needs[place])


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _gpus_text(need: Need) -> str:
    return str(need) if need.gpus is None else f"{counted(need.gpus, 'GPU')} ({need.layout})"


def _ratio(answer: WhatifResult, cell: Layout) -> str:
    if cell.row is None or not cell.row.users or answer.base is None:
        return "–"
    return "base" if cell is answer.base else ratio_text(cell.users_over(answer.base))


def _varies_context(answer: WhatifResult) -> bool:
    return any(axis.name == "context" for axis in answer.axes)


def reasons(answer: WhatifResult) -> list[str]:
    """Why some cells serve nobody, and what a larger server makes of it."""
    pairs = zip(answer.cells, answer.others or (None,) * len(answer.cells), strict=False)
    found = [f"{cell.name}, {unserved_text(cell, other)}" for cell, other in pairs if cell.reason]
    return [*found, *unbought_texts(answer), *router_texts(answer)]


def unbought_texts(answer: WhatifResult) -> list[str]:
    """Why no number of GPUs serves the users that were asked for, and what would."""
    pairs = zip(answer.cells, answer.needs, strict=True)
    return [
        f"{cell.name}, for {counted(need.users, 'user')}: {need.reason}"
        for cell, needs in pairs
        for need in needs
        if need.reason is not None
    ]


def router_texts(answer: WhatifResult) -> list[str]:
    """Which fleets need session affinity that nobody asked for."""
    pairs = zip(answer.cells, answer.needs, strict=True)
    found = [f"{need.layout} ({cell.name})" for cell, needs in pairs for need in needs if need.router == AFFINITY]
    if not found or any(cell.is_router_given for cell in answer.cells):
        return []
    return [
        f"{joined(list(dict.fromkeys(found)))}: with the router {AFFINITY}, which keeps each conversation on one "
        "server, so that its prefix is cached there. With another router they may serve far fewer users."
    ]


def legend(answer: WhatifResult) -> list[str]:
    """What the columns mean."""
    said = [
        f"{safe_meaning(COVERED)} {BEST}: the mean. vs base: users at 95 % confidence compared with the first "
        "case, from the same random numbers, with the 95 % interval.",
    ]
    if _varies_context(answer):
        said += [*context_meaning(answer), "Simulated context: the average after max_model_len cuts the longest."]
    if answer.has_table:
        said.append(NEEDS_MEANING if answer.users else PER_SAFE_MEANING)
    if decides_hits(answer.axes):
        at = f" TTFT is simulated with {answer.shared_load} in every row." if answer.shared_load else ""
        said.append(f"{HITS_LEGEND}{at}")
    return said


def context_meaning(answer: WhatifResult) -> list[str]:
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


def _row_name(cell: Layout) -> str:
    """Its name, with the tokens that are simulated where they are fewer than those asked for."""
    if "context" not in cell.choice or cell.traffic is None or not _is_cut(cell, cell.traffic):
        return cell.name
    return f"{cell.name}, simulated at {cell.traffic.context_tokens:,.0f}"


def case_text(cell: Layout) -> str:
    """Its name, with the tokens of its context."""
    asked, name = cell.choice.get("context"), spoken(cell)
    if asked is None or cell.looked is None:
        return name
    named, tokens = value_text("context", asked), mean_context_tokens(cell.looked.question.workload)
    cut = f"cut to {cell.traffic.context_tokens:,.0f}" if cell.traffic and _is_cut(cell, cell.traffic) else ""
    if asked.is_factor:
        return name.replace(named, f"{named} ({', '.join(filter(None, [f'{tokens:,.0f} tokens', cut]))})")
    return name.replace(named, f"{named} tokens" + (f", {cut}" if cut else ""))


def _is_cut(cell: Layout, traffic: TrafficEffects) -> bool:
    """Whether the longest context makes the mean one clearly shorter."""
    if traffic.asked_context_tokens:
        return not traffic.is_as_long
    asked = mean_context_tokens(cell.looked.question.workload) if cell.looked else 0.0
    return traffic.context_tokens < LITTLE_CUT * asked


def cut_texts(answer: WhatifResult) -> list[str]:
    """Why a context is simulated shorter than it was asked for."""
    cells = (cell for cell in answer.cells[:MOST_OPTIONS] if "context" in cell.choice)
    longest = sorted({cell.traffic.max_model_len for cell in cells if cell.traffic and _is_cut(cell, cell.traffic)})
    tokens = joined([f"{each:,}" for each in longest])
    return (
        [f"Cut to: the average that is simulated, because no request may exceed {tokens} tokens (max_model_len)."]
        if longest
        else []
    )
