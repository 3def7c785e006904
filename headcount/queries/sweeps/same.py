"""Layouts that come to the same settings are one, however they were asked for."""

from collections.abc import Sequence
from dataclasses import replace

from headcount.queries.sweeps.layout import Layout


def same_as(layout: Layout, among: Sequence[Layout]) -> Layout | None:
    """The first of those that comes to the same."""
    return next((each for each in among if each.is_same_as(layout)), None)


def distinct(layouts: Sequence[Layout]) -> list[Layout]:
    """The first of those that come to the same, which knows the names of the others; in order."""
    found: list[Layout] = []
    for layout in layouts:
        first = same_as(layout, found)
        if first is None:
            found.append(layout)
        elif layout.name not in (first.name, *first.other_names):
            found[found.index(first)] = replace(first, other_names=(*first.other_names, layout.name))
    return found
