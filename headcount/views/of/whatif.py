"""What other traffic, users or settings cost, in words and for the person who signs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from os.path import commonprefix
from pathlib import Path
from typing import Final

from headcount.inputs.reading.variations import Axis, choice_text, value_text
from headcount.queries.compare import remarks_on
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.needs import Need, unserved_text
from headcount.queries.whatif import SWING, WhatifResult
from headcount.text.blocks import Block, Line, Table, cells, table_of, titles
from headcount.text.populations import context_text
from headcount.text.units import counted
from headcount.text.words import (
    AT_CONFIDENCE,
    EACH_GETS,
    PER_SAFE_MEANING,
    SAFE,
    UPPER,
    about_meaning,
    joined,
    model_title,
    ratio_text,
    sentence,
)
from headcount.views.of.layouts_summary import bought_of, layout_page, trace_lines
from headcount.views.of.whatif_cases import (
    NEEDS_MEANING,
    case_text,
    context_meaning,
    cut_texts,
    legend,
    page_columns,
    reasons,
    router_texts,
    table_columns,
    unbought_texts,
)
from headcount.views.report_data.study import study_json
from headcount.views.summary.confidence import Headroom
from headcount.views.summary.summary import MOST_OPTIONS, PRICE, Options, Summary

SURE: Final = (
    f"{SAFE}: 95 % of such fleets can serve at least that many. {UPPER}: 5 % of such fleets can serve more than that."
)
BOUGHT_MEANING: Final = (
    "GPUs needed: whole servers, simulated together; 4 × TP2 are 4 servers of 2 GPUs. If larger servers need fewer "
    "GPUs in all, those are taken."
)
MOST_TOLD: Final = 3  # cases beside the first, in a sentence
_SPOKEN: Final = {
    "turns": "Messages of a conversation",
    "step times": "Time of each step of the server",
    "output": "Length of the answers",
    "context": "Length of the context",
    "retrieved": "Documents retrieved for an answer",
    "think-time": "Pause before the next message",
    "system-prompt": "Length of the system prompt",
    "TTFT limit": "Limit on the wait for the first word",
    "TPOT limit": "Limit on the time per token",
}


def head(answer: WhatifResult) -> list[Block]:
    base = answer.base
    title = Line(f", workload {answer.workload}: {answer.slo}", bold=answer.model)
    if base is None or base.row is None:
        return [title]
    if said := bought_text(answer):
        return [title, Line(bold=said), *trace_lines(base), *remarks_on(answer.axes)]
    enough = f": {said}" if (said := enough_text(answer, base)) else ""
    on = f" on {counted(base.gpus, 'GPU')} ({base.name}, {base.layout}){enough}"
    return [
        title,
        Line(on, bold=f"{counted(base.users, 'user')} {AT_CONFIDENCE}"),
        *map(Line, filter(None, [_said(answer)])),
        *trace_lines(base),
        *remarks_on(answer.axes),
    ]


def body(answer: WhatifResult) -> list[Block]:
    blocks: list[Block] = []
    if answer.swings:
        columns = ("assumption", f"{SWING:.0%} less", f"{SWING:.0%} more")
        rows = [(swing.name, *map(ratio_text, swing.effects)) for swing in answer.swings]
        blocks += [Table(columns=columns, rows=rows), Line()]
    if answer.has_table:
        blocks += [table_of([*table_columns(answer)], range(len(answer.cells)))]
        coarse = [cell.row.step_time_error for cell in answer.cells if cell.is_coarse and cell.row]
        blocks += [Line(about_meaning(coarse)), Line()] if coarse else [Line()]
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


def summary(answer: WhatifResult) -> Summary:
    """The first case, or what is bought for it, and what the change does that matters most."""
    room = _bought_room(answer)
    shown = answer.fleets[0] if room else answer.base
    about = ""
    if answer.base and shown:
        named = f"With {case_text(answer.base)}" if answer.base.choice else "As given,"
        gpus = (answer.needs[0][0].gpus if answer.users else None) or answer.base.gpus
        about = f"{named} on {counted(gpus, 'GPU')}: "
    page = layout_page(
        answer, _question(answer), shown, slo=answer.slo, said=_said(answer), about=about, options=_options(answer),
        headroom=room, risk=_failure_text(answer) if len(answer.cells) > 1 else None,
    )  # fmt: skip
    if answer.base is None or answer.base.looked is None or not page.is_good:
        return page
    kept = (PRICE, "model", EACH_GETS) if len({cell.gpu_name for cell in answer.cells}) == 1 else ("model", EACH_GETS)
    figures = tuple(pair for pair in page.figures if pair[0] in kept)  # what holds for every case
    return replace(page, figures=(_first_case(answer, answer.base), *figures))


def bought_text(answer: WhatifResult) -> str:
    """What the users need, where one number of them is asked for; "" where the first case serves nobody."""
    return _said(answer) if len(answer.users) == 1 and _bought_room(answer) else ""


def _bought_room(answer: WhatifResult) -> Headroom | None:
    """Of what the first number of users needs in the first case; None without users, or where nothing serves them."""
    need = answer.needs[0][0] if answer.users and answer.needs else None
    if need is None or need.users_low is None or need.users_mean is None or need.users_high is None:
        return None
    return Headroom(needed=need.users, low=need.users_low, users=need.users_mean, high=need.users_high)


def _first_case(answer: WhatifResult, base: Layout) -> tuple[str, str]:
    """Whom it is for; where nobody asked for users, whom the base serves as it is given, and its cost."""
    assert base.looked is not None, "a layout that serves users was screened"
    context = [] if "context" in base.choice else [context_text(base.looked.question.workload)]
    load = ", ".join([f"workload {Path(answer.workload).name}", *context])
    if answer.users:
        return "for", f"{joined([f'{users:,}' for users in answer.users])} users at once, {load}"
    named = f"{case_text(base)}, " if base.choice else ""
    served = f"{counted(base.users, 'user')} {AT_CONFIDENCE} on {bought_of(base)}"
    cost = "" if base.usd_per_month is None else f", rent ${base.usd_per_month:,.0f} a month"
    return "first case" if answer.axes else "as given", f"{named}{load}: {served}{cost}"


def enough_text(answer: WhatifResult, cell: Layout) -> str:
    """For which numbers of users that are asked for it is enough as it is, and for which too few."""
    enough = [f"{users:,}" for users in answer.users if users <= cell.users]
    few = [f"{users:,}" for users in answer.users if users > cell.users]
    said = [f"{what} {joined(users)}" for what, users in (("enough for", enough), ("too few for", few)) if users]
    return ", ".join(said)


def _failure_text(answer: WhatifResult) -> str:
    """What a spare server costs in each case; what is said after it is of the first case alone."""
    bought = answer.fleets if answer.users else answer.cells
    costs = [each.usd_per_month / each.num_servers for each in bought if each.usd_per_month and each.num_servers]
    cost = ""
    if costs:
        least, most = (f"{usd:,.0f}" for usd in (min(costs), max(costs)))
        each = f"${least} a month in every case" if least == most else f"${least} to ${most} a month, by case"
        cost = f"; one more costs {each}"
    return f"No case includes a spare server{cost}. The following is for the first case."


def _question(answer: WhatifResult) -> str:
    base = answer.base
    users = joined([f"{users:,}" for users in answer.users])
    needed = f"{users} users of {model_title(answer.model)} need"
    gpus = f" on {base.gpus:,} × {base.asked.gpu.title}" if base and base.asked else ""
    served = f"{model_title(answer.model)}{gpus}"
    if not answer.axes and not answer.swings:
        return f"How many {base.asked.gpu.title if base and base.asked else 'GPUs'} do {needed}?"
    if not answer.axes:
        return f"Which assumptions about {served} matter most?"
    varied = "; ".join(_values_text(axis, answer) for axis in answer.axes)
    return sentence(f"{varied}: {f'what do {needed}' if users else f'what does it change for {served}'}?")


def _values_text(axis: Axis, answer: WhatifResult) -> str:
    """Such as `average context 4,096, 8,192 or 16,384`."""
    titles = {cell.choice.get("gpu"): cell.asked.gpu.title for cell in answer.cells if cell.asked}
    said = [value_text(axis.name, each) for each in axis.values]
    if axis.name == "gpu":
        said = [titles.get(name, name) for name in said]
    *between, last = said if axis.name == "gpu" else _without_shared(said)
    return f"{', '.join(between)} or {last}" if between else last


def _without_shared(texts: Sequence[str]) -> list[str]:
    """All but the first without the words that all of them begin with."""
    shared = commonprefix(texts)  # noqa: RUF071  words, not paths
    words = shared[: shared.rfind(" ") + 1]
    return [*texts[:1], *(each.removeprefix(words) for each in texts[1:])]


def _said(answer: WhatifResult) -> str:
    """From the base to what serves the fewest, or else the most; of a tornado what moves users most."""
    base = answer.base
    if answer.swings and not answer.axes:
        return _swing_said(answer) if base and base.users else ""
    if answer.users and _bought_room(answer):
        return f"{counted(answer.users[0], 'user')} {'needs' if answer.users[0] == 1 else 'need'} {_needs_said(answer)}"
    others = [cell for cell in answer.cells if cell is not base and cell.row is not None]
    if base is None or not base.users or not others:
        return ""
    fewest = min(others, key=lambda cell: cell.users)
    other = fewest if fewest.users < base.users else max(others, key=lambda cell: cell.users)
    named, changed = _without_shared([case_text(base), case_text(other)])
    on = f" on {bought_of(base)}" if (base.gpu_name, base.gpus) == (other.gpu_name, other.gpus) else ""
    return f"{counted(base.users, 'user')}{on} with {named}, {other.users:,} with {changed}"


def _needs_said(answer: WhatifResult) -> str:
    """What each case takes; of many, the first and the one that takes the most GPUs, or else the fewest."""
    base, *others = answer.cells
    served = [cell for cell in others if _needs(answer, cell)[0].gpus]
    if len(others) > MOST_TOLD and served:
        gpus = {id(cell): _needs(answer, cell)[0].gpus or 0 for cell in answer.cells}
        most = max(served, key=lambda cell: gpus[id(cell)])
        others = [most if gpus[id(most)] > gpus[id(base)] else min(served, key=lambda cell: gpus[id(cell)])]
    first = _bought_text(answer, base)
    if not others:
        return first
    then = [_bought_text(answer, cell, is_named=base.gpu_name != cell.gpu_name) for cell in others]
    if all(set(cell.choice) == {"gpu"} for cell in others):  # their names are said already
        return " or ".join([first, *then])
    named, *changed = _without_shared([case_text(cell) for cell in (base, *others)])
    pairs = zip(then, changed, strict=True)
    return "; ".join([f"{first} with {named}", *(f"{what} with {how}" for what, how in pairs)])


def _bought_text(answer: WhatifResult, cell: Layout, *, is_named: bool = True) -> str:
    """What the first number of users needs, such as `2 × NVIDIA H100 SXM ($5,825 a month)`, or `2 GPUs ($5,825)`."""
    need, title = _needs(answer, cell)[0], cell.asked.gpu.title if cell.asked else "GPU"
    if need.gpus is None:
        instead = f" (but {need.under_longer_limits})" if need.under_longer_limits else ""
        return f"no number of GPUs is enough{instead}"
    cost = "" if need.usd_per_month is None else f" (${need.usd_per_month:,.0f}{' a month' if is_named else ''})"
    return f"{f'{need.gpus or 0:,} × {title}' if is_named else counted(need.gpus or 0, 'GPU')}{cost}"


def _swing_said(answer: WhatifResult) -> str:
    """What costs the most users, a fifth less or more of it."""
    if not answer.swings or None in answer.swings[0].effects:
        return ""
    first = answer.swings[0]
    less, more = (found.mean if found else 0.0 for found in first.effects)
    change, left = ("less", less) if less < more else ("more", more)
    return f"{_spoken(first.name)}: 20 % {change} means {1 - left:.0%} fewer users"


def _spoken(name: str) -> str:
    return _SPOKEN.get(name, name)


def _needs(answer: WhatifResult, cell: Layout) -> tuple[Need, ...]:
    return answer.needs[answer.cells.index(cell)]


def _options(answer: WhatifResult) -> Options | None:
    if answer.swings and not answer.axes:
        rows = tuple((_spoken(swing.name), *map(ratio_text, swing.effects)) for swing in answer.swings[:MOST_OPTIONS])
        named = ("assumption", "users at 20 % less", "users at 20 % more")
        return Options(title="Sensitivity to each assumption", columns=named, rows=rows) if rows else None
    if len(answer.cells) < 2 and not answer.users:
        return None
    columns, places = [*page_columns(answer)], range(len(answer.cells))[:MOST_OPTIONS]
    needed = BOUGHT_MEANING if len(answer.users) == 1 else sentence(NEEDS_MEANING)
    more = [
        *context_meaning(answer),
        *cut_texts(answer),
        *_unserved_texts(answer),
        *(sentence(f"{each}.") for each in unbought_texts(answer)),
        *router_texts(answer),
    ]
    return Options(
        title="Cases" if len(places) == len(answer.cells) else f"The first {len(places)} of {len(answer.cells):,}",
        columns=titles(columns),
        rows=tuple(cells(columns, place) for place in places),
        marked=0,
        note=" ".join([SURE, *more, needed if answer.users else PER_SAFE_MEANING]),
    )


def _unserved_texts(answer: WhatifResult) -> list[str]:
    """Why a row that serves nobody does not: the first that no larger server serves either, if there is one."""
    pairs = zip(answer.cells[:MOST_OPTIONS], answer.others or repeat(None), strict=False)
    unserved = [(cell, other) for cell, other in pairs if cell.reason]
    worst = sorted(unserved, key=lambda pair: pair[1] is not None and pair[1].users > 0)
    return [sentence(f"{cell.name}, {unserved_text(cell, other)}.") for cell, other in worst][:1]
