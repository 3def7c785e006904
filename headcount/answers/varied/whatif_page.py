"""What changes when something changes, for the person who signs."""

from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headcount.answers.details.first_page import EACH_GETS, MOST_OPTIONS, FirstPage, Options
from headcount.answers.varied.layout import Layout
from headcount.answers.varied.needs import unserved_text
from headcount.answers.varied.pages import bought_of, layout_page
from headcount.answers.varied.whatif_text import context_text, first_columns, varies_context
from headcount.questions.variations import Axis, value_text
from headcount.text.units import counted, whole_dollars
from headcount.text.words import SAFE, model_title, ratio_text, sentence

if TYPE_CHECKING:
    from headcount.answers.varied.needs import Need
    from headcount.answers.varied.whatif import WhatifAnswer

CONTEXT: Final = "prompt and answer together: instructions, the conversation so far, the new message and its answer."

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
    named = f"With {base.name}" if base and base.choice else "As given,"
    about = f"{named} on {counted(base.gpus, 'GPU')}: " if base else ""
    page = layout_page(
        answer, _question(answer), base, slo=answer.slo, said=_said(answer), about=about, options=_options(answer),
        words=[("context", CONTEXT)] if varies_context(answer) else (),
    )  # fmt: skip
    if base is None or not page.is_good:
        return page
    cost = "" if base.usd_per_month is None else f", rent ${base.usd_per_month:,.0f} a month"
    workload = f"workload {Path(answer.workload).name}: "
    named = f"{base.name}, {workload}" if base.choice else workload
    first = f"{named}{counted(base.users, 'user')} on {bought_of(base)}{cost}"
    return replace(
        page,
        figures=(
            ("first row" if answer.axes else "as given", first),
            *(pair for pair in page.figures if pair[0] in ("model", EACH_GETS)),
        ),
    )


def _question(answer: "WhatifAnswer") -> str:
    base = answer.base
    gpus = f" on {base.gpus:,} × {base.asked.gpu.title}" if base and base.asked else ""
    served = f"{model_title(answer.model)}{gpus}"
    if not answer.axes:
        return f"Which assumptions about {served} matter most?"
    varied = "; ".join(map(_values_text, answer.axes))
    return sentence(f"{varied}: what does it change for {served}?")


def _values_text(axis: Axis) -> str:
    """Such as `context 4,096, 8,192 or 16,384`."""
    first, *others = (value_text(axis.name, value) for value in axis.values)
    name = first.partition(" ")[0] + " "
    *between, last = [first, *(each.removeprefix(name) for each in others)]
    return f"{', '.join(between)} or {last}" if between else last


def _said(answer: "WhatifAnswer") -> str:
    """From the base to what serves the fewest, or else the most; of a tornado what moves users most."""
    base = answer.base
    if base is None or not base.users:
        return ""
    if not answer.axes:
        return _swing_said(answer)
    others = [cell for cell in answer.cells if cell is not base and cell.row is not None]
    if not others:
        return ""
    fewest = min(others, key=lambda cell: cell.users)
    other = fewest if fewest.users < base.users else max(others, key=lambda cell: cell.users)
    if answer.users:
        before, after = (_needs(answer, cell)[0] for cell in (base, other))
        people = counted(answer.users[0], "user")
        if before.gpus is not None and after.gpus is not None:
            need = "needs" if answer.users[0] == 1 else "need"
            at_first, then = counted(before.gpus, "GPU"), counted(after.gpus, "GPU")
            return f"{people} {need} {at_first} with {base.name}, {then} with {other.name}"
    return f"{base.users:,} users with {base.name}, {other.users:,} with {other.name}"


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
    if not answer.axes:
        rows = tuple((_spoken(swing.name), *map(ratio_text, swing.effects)) for swing in answer.swings[:MOST_OPTIONS])
        columns = ("assumption", "users with a fifth less", "users with a fifth more")
        return Options(title="What each assumption moves", columns=columns, rows=rows) if rows else None
    if len(answer.cells) < 2:
        return None
    shown = answer.cells[:MOST_OPTIONS]
    needed = [name for users in answer.users for name in (f"GPUs for {users:,} users", f"$ a month for {users:,}")]
    more, more_cells = first_columns(answer)
    counts = {cell.gpus for cell in shown}
    on = f" on {counted(counts.pop(), 'GPU')}" if len(counts) == 1 else ""
    return Options(
        title="Side by side" if len(shown) == len(answer.cells) else f"The first {len(shown)} of {len(answer.cells):,}",
        columns=("what if", f"{SAFE}{on}", *needed, *more),
        rows=tuple(
            (cell.name, f"{cell.users:,}", *_need_cells(_needs(answer, cell)), *cells)
            for cell, cells in zip(shown, more_cells, strict=False)
        ),
        marked=0,
        note=" ".join(
            [context_text(answer.base, axis.values) for axis in answer.axes if axis.name == "context"]
            + _unserved_texts(answer)
            + (["No spare server is counted in."] if answer.users else [])
        ),
    )


def _unserved_texts(answer: "WhatifAnswer") -> list[str]:
    """Why a row that serves nobody does not: the first that no larger server serves either, if there is one."""
    pairs = zip(answer.cells[:MOST_OPTIONS], answer.others or repeat(None), strict=False)
    unserved = [(cell, other) for cell, other in pairs if cell.reason]
    worst = sorted(unserved, key=lambda pair: pair[1] is not None and pair[1].users > 0)
    return [sentence(f"{cell.name}, {unserved_text(cell, other)}.") for cell, other in worst][:1]


def _need_cells(needs: "tuple[Need, ...]") -> tuple[str, ...]:
    return tuple(
        text
        for need in needs
        for text in ("–" if need.gpus is None else f"{need.gpus:,} ({need.layout})", whole_dollars(need.usd_per_month))
    )
