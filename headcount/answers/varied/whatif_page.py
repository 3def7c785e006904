"""What changes when something changes, for the person who signs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headcount.answers.details.first_page import EACH_GETS, MOST_OPTIONS, FirstPage, Options
from headcount.answers.varied.layout import Layout
from headcount.answers.varied.needs import unserved_text
from headcount.answers.varied.pages import bought_of, layout_page, spoken
from headcount.answers.varied.whatif_text import NEEDS_MEANING, cache_cells, cache_columns, context_meaning
from headcount.questions.variations import Axis, value_text
from headcount.text.populations import context_text, mean_context_tokens
from headcount.text.units import counted, dollars
from headcount.text.words import (
    BEST,
    PER_SAFE_MEANING,
    PER_SAFE_USER,
    SAFE,
    UPPER,
    joined,
    model_title,
    ratio_text,
    sentence,
)

if TYPE_CHECKING:
    from headcount.answers.varied.needs import Need
    from headcount.answers.varied.whatif import WhatifAnswer

LITTLE_CUT: Final = 0.98  # of the average context
SURE: Final = f"In every row 19 of 20 real fleets should serve what is {SAFE}, and 1 of 20 more than the {UPPER}."
_SPOKEN: Final = {
    "turns": "Messages of a conversation",
    "step times": "Time of each step of the server",
    "output": "Length of the answers",
    "context": "Length of the context",
    "retrieved": "Documents that are looked up for an answer",
    "think-time": "Pause before the next message",
    "system-prompt": "Length of the system prompt",
    "TTFT limit": "Wait for the first word that is allowed",
    "TPOT limit": "Time per token that is allowed",
}


def whatif_page(answer: "WhatifAnswer") -> FirstPage:
    """The base, and what the change does that matters most."""
    base = answer.base
    about = f"{_first_named(base)} on {counted(base.gpus, 'GPU')}: " if base else ""
    needed = answer.users[0] if answer.users else None
    page = layout_page(
        answer, _question(answer), base, slo=answer.slo, said=_said(answer), about=about, options=_options(answer),
        needed=needed, risk=_failure_text(answer) if len(answer.cells) > 1 else None,
    )  # fmt: skip
    if base is None or base.looked is None or not page.is_good:
        return page
    return replace(page, figures=(_first_case(answer, base), *_kept(page)))


def _kept(page: FirstPage) -> tuple[tuple[str, str], ...]:
    """The figures that hold for every case."""
    return tuple(pair for pair in page.figures if pair[0] in ("model", EACH_GETS))


def _first_named(base: Layout) -> str:
    return f"With {case_text(base)}" if base.choice else "As given,"


def _first_case(answer: "WhatifAnswer", base: Layout) -> tuple[str, str]:
    """Whom the base serves as it is given, whether they are enough, and its cost."""
    assert base.looked is not None, "who serves somebody was looked at"
    load = base.looked.question.workload
    named = [case_text(base)] if base.choice else []
    context = [] if "context" in base.choice else [context_text(load)]
    served = f"{counted(base.users, 'user')} {SAFE} on {bought_of(base)}"
    enough = f" ({said})" if (said := enough_text(answer, base)) else ""
    cost = "" if base.usd_per_month is None else f", rent ${base.usd_per_month:,.0f} a month"
    about = ", ".join([*named, f"workload {Path(answer.workload).name}", *context])
    return "first case" if answer.axes else "as given", f"{about}: {served}{enough}{cost}"


def enough_text(answer: "WhatifAnswer", cell: Layout) -> str:
    """For which numbers of users that are asked for it is enough as it is, and for which too few."""
    enough = [f"{users:,}" for users in answer.users if users <= cell.users]
    few = [f"{users:,}" for users in answer.users if users > cell.users]
    said = [f"{what} {joined(users)}" for what, users in (("enough for", enough), ("too few for", few)) if users]
    return ", ".join(said)


def _failure_text(answer: "WhatifAnswer") -> str:
    """What a spare server costs in each case; what is said after it is of the first case alone."""
    bought = answer.fleets if answer.users else answer.cells
    costs = [each.usd_per_month / each.num_servers for each in bought if each.usd_per_month and each.num_servers]
    cost = f"; {_one_more_costs(min(costs), max(costs))}" if costs else ""
    return f"No case has a spare server{cost}. Of the first case:"


def _one_more_costs(least: float, most: float) -> str:
    if round(least) == round(most):
        return f"one more costs ${least:,.0f} a month in every case"
    return f"one more costs ${least:,.0f} to ${most:,.0f} a month, by case"


def case_text(cell: Layout) -> str:
    """Its name, with the tokens of its context."""
    asked, name = cell.choice.get("context"), spoken(cell)
    if asked is None or cell.looked is None:
        return name
    named, tokens = value_text("context", asked), mean_context_tokens(cell.looked.question.workload)
    simulated = cell.traffic.context_tokens if cell.traffic else tokens
    cut = f"{simulated:,.0f} once max_model_len has cut the longest" if simulated < LITTLE_CUT * tokens else ""
    if asked.is_factor:
        return name.replace(named, f"{named} ({'; '.join(filter(None, [f'{tokens:,.0f} tokens', cut]))})")
    return name.replace(named, f"{named} tokens" + (f" ({cut})" if cut else ""))


def _question(answer: "WhatifAnswer") -> str:
    base = answer.base
    gpus = f" on {base.gpus:,} × {base.asked.gpu.title}" if base and base.asked else ""
    served = f"{model_title(answer.model)}{gpus}"
    if not answer.axes and not answer.swings:
        title = base.asked.gpu.title if base and base.asked else "GPUs"
        users = joined([f"{users:,}" for users in answer.users])
        return f"How many {title} do {users} users of {model_title(answer.model)} need?"
    if not answer.axes:
        return f"Which assumptions about {served} matter most?"
    varied = "; ".join(map(_values_text, answer.axes))
    return sentence(f"{varied}: what does it change for {served}?")


def _values_text(axis: Axis) -> str:
    """Such as `average context 4,096, 8,192 or 16,384`."""
    *between, last = _without_shared([value_text(axis.name, value) for value in axis.values])
    return f"{', '.join(between)} or {last}" if between else last


def _without_shared(texts: Sequence[str]) -> list[str]:
    """All but the first without the words that all of them begin with."""
    shared = commonprefix(texts)  # noqa: RUF071  words, not paths
    words = shared[: shared.rfind(" ") + 1]
    return [*texts[:1], *(each.removeprefix(words) for each in texts[1:])]


def _said(answer: "WhatifAnswer") -> str:
    """From the base to what serves the fewest, or else the most; of a tornado what moves users most."""
    base = answer.base
    if base is None or not base.users:
        return ""
    if answer.swings and not answer.axes:
        return _swing_said(answer)
    others = [cell for cell in answer.cells if cell is not base and cell.row is not None]
    if not others:
        return f"{_people_need(answer)} {_bought_text(answer, base)}" if answer.users else ""
    fewest = min(others, key=lambda cell: cell.users)
    other = fewest if fewest.users < base.users else max(others, key=lambda cell: cell.users)
    named, changed = _without_shared([case_text(base), case_text(other)])
    if answer.users and all(_needs(answer, cell)[0].gpus for cell in (base, other)):
        first, then = _bought_text(answer, base), _bought_text(answer, other, is_named=base.gpu_name != other.gpu_name)
        return f"{_people_need(answer)} {first} with {named}, {then} with {changed}"
    on = f" on {bought_of(base)}" if (base.gpu_name, base.gpus) == (other.gpu_name, other.gpus) else ""
    return f"{counted(base.users, 'user')}{on} with {named}, {other.users:,} with {changed}"


def _people_need(answer: "WhatifAnswer") -> str:
    return f"{counted(answer.users[0], 'user')} {'needs' if answer.users[0] == 1 else 'need'}"


def _bought_text(answer: "WhatifAnswer", cell: Layout, *, is_named: bool = True) -> str:
    """What the first number of users needs, such as `2 × NVIDIA H100 SXM ($5,825 a month)`; unnamed, `2 GPUs ($…`."""
    need, title = _needs(answer, cell)[0], cell.asked.gpu.title if cell.asked else "GPU"
    cost = "" if need.usd_per_month is None else f" (${need.usd_per_month:,.0f} a month)"
    return f"{f'{need.gpus or 0:,} × {title}' if is_named else counted(need.gpus or 0, 'GPU')}{cost}"


def _swing_said(answer: "WhatifAnswer") -> str:
    """What costs the most users, a fifth less or more of it."""
    if not answer.swings or None in answer.swings[0].effects:
        return ""
    first = answer.swings[0]
    less, more = (found.mean if found else 0.0 for found in first.effects)
    change, left = ("less", less) if less < more else ("more", more)
    return f"{_spoken(first.name)}: a fifth {change}, {1 - left:.0%} fewer users"


def _spoken(name: str) -> str:
    return _SPOKEN.get(name, name)


def _needs(answer: "WhatifAnswer", cell: Layout) -> "tuple[Need, ...]":
    return answer.needs[answer.cells.index(cell)]


def _options(answer: "WhatifAnswer") -> Options | None:
    if answer.swings and not answer.axes:
        rows = tuple((_spoken(swing.name), *map(ratio_text, swing.effects)) for swing in answer.swings[:MOST_OPTIONS])
        columns = ("assumption", "users with a fifth less", "users with a fifth more")
        return Options(title="What each assumption moves", columns=columns, rows=rows) if rows else None
    if len(answer.cells) < 2 and not answer.users:
        return None
    shown = answer.cells[:MOST_OPTIONS]
    counts = {cell.gpus for cell in shown}
    on = f" on {counted(counts.pop(), 'GPU')}" if len(counts) == 1 else ""
    needed = [f"for {users:,} users, a month" for users in answer.users] or [PER_SAFE_USER]
    return Options(
        title="Case by case" if len(shown) == len(answer.cells) else f"The first {len(shown)} of {len(answer.cells):,}",
        columns=("case", f"{SAFE}{on}", BEST, UPPER, *needed, *cache_columns(answer)),
        rows=tuple(_row(answer, place) for place in range(len(shown))),
        marked=0,
        note=" ".join(
            [SURE]
            + context_meaning(answer)
            + _unserved_texts(answer)
            + ([sentence(NEEDS_MEANING)] if answer.users else [PER_SAFE_MEANING])
        ),
    )


def _row(answer: "WhatifAnswer", place: int) -> tuple[str, ...]:
    cell, needs = answer.cells[place], answer.needs[place]
    ends = [f"{cell.row.users:,}", f"{cell.row.users_high:,}"] if cell.row else ["–", "–"]
    each = [need.with_each() for need in needs] or [dollars(cell.usd_per_user_month)]
    return (case_text(cell), f"{cell.users:,}", *ends, *each, *cache_cells(answer, place))


def _unserved_texts(answer: "WhatifAnswer") -> list[str]:
    """Why a row that serves nobody does not: the first that no larger server serves either, if there is one."""
    pairs = zip(answer.cells[:MOST_OPTIONS], answer.others or repeat(None), strict=False)
    unserved = [(cell, other) for cell, other in pairs if cell.reason]
    worst = sorted(unserved, key=lambda pair: pair[1] is not None and pair[1].users > 0)
    return [sentence(f"{cell.name}, {unserved_text(cell, other)}.") for cell, other in worst][:1]
