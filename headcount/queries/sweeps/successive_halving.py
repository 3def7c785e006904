"""Which layout serves most, with few simulations of those that are clearly behind and more of the close ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from headcount.inputs.reading.variations import Choice
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts
from simulator.study.points import Watcher

ROUNDS: Final = (4, 8, 16, 32)  # replications of each load
CLOSE: Final = 0.01  # half of an interval: nearer ones need not be told apart
Simulate = Callable[[Layout, int], Layout]


def simulate_in(layouts: Layouts, layout: Layout, replications: int, watcher: Watcher | None = None) -> Layout:
    """The layout from so many replications of each load; earlier ones come from the store."""
    if layout.looked is None:
        return layout
    looked = replace(layout.looked, question=replace(layout.looked.question, replications=replications))
    return layouts.simulated(replace(layout, looked=looked, row=None), watcher)


def race(base: Layout, entrants: Sequence[Layout], simulate: Simulate) -> list[Layout]:
    """The base and all entrants with their rows, in order; the base runs in every round, so that all are paired."""
    field = [simulate(each, ROUNDS[0]) for each in (base, *entrants)]
    for replications in ROUNDS[1:]:
        leader = most_users(field)
        close = [place for place, each in enumerate(field) if each is leader or _may_lead(each, leader)]
        if all(field[place] is leader or _is_as_good(field[place], leader) for place in close):
            break
        for place in {0, *close}:
            field[place] = simulate(field[place], replications)
    return field


def most_users(field: Sequence[Layout]) -> Layout:
    """By the mean, of those that were simulated most often; the first of equals."""
    counts = [each.row.replications if each.row and each.row.users else 0 for each in field]
    last = [each for each, count in zip(field, counts, strict=True) if count == max(counts)]
    return max(last, key=lambda each: each.row.users if each.row else 0)


def _may_lead(layout: Layout, leader: Layout) -> bool:
    ratio = layout.users_over(leader)
    return ratio is not None and ratio.high >= 1


def _is_as_good(layout: Layout, leader: Layout) -> bool:
    """Whether it is known to serve as many to within CLOSE."""
    ratio = layout.users_over(leader)
    return ratio is not None and ratio.high - ratio.mean <= CLOSE and ratio.mean >= 1 - CLOSE


def leader(rows: Sequence[Layout]) -> Layout:
    """The layout that serves most, if it surely gains over the first, which is the base; else the base."""
    base, best = rows[0], most_users(rows)
    gain = best.users_over(base)
    return base if gain is not None and gain.low <= 1 else best


def simplest(best: Layout, at: Callable[[Choice], Layout]) -> Layout:
    """The best without every change that adds nothing; `at` gives the simulated layout of a choice."""
    for name in list(best.choice):
        without = at({key: value for key, value in best.choice.items() if key != name})
        ratio = without.users_over(best)
        if ratio is not None and ratio.mean >= 1 - CLOSE:
            best = without
    return best
