"""Tables that keep every figure whole however narrow the terminal is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from files.names import printable
from headcount.text.blocks import Table

GAP = 2  # blanks after a column
BAR_WIDTH = 60  # characters
ROOM_BESIDE_BARS = 14  # for the column of figures, with gaps


def print_table(out: Console, table: Table) -> None:
    """Print a table, in parts one below the other where the terminal is narrower; each begins with the key columns.

    A file gets it as wide as it is.
    """
    table = replace(table, rows=[[printable(cell) for cell in row] for row in table.rows])
    if table.bars:
        out.print(_bar_table(table, bar_width(out.width, [row[0] for row in table.rows])))
        return
    named = list(enumerate(table.columns))
    widths = [_width(table, place, max(map(cell_len, name.split()), default=0)) for place, name in named]
    natural = sum(_width(table, place, cell_len(name)) + GAP for place, name in named)
    if natural <= out.width or not out.is_terminal:
        wide = Console(file=out.file, highlight=False, width=max(out.width, natural), no_color=out.no_color)
        (out if natural <= out.width else wide).print(_part(table, range(len(table.columns))))
        return
    for number, chosen in enumerate(_parts(widths, table.keys, out.width)):
        if number:
            out.print()
        out.print(_part(table, chosen, widths))


def bar_width(room: int, names: Sequence[str]) -> int:
    """Characters of the longest bar beside names and figures."""
    return max(0, min(BAR_WIDTH, room - max(map(len, names)) - ROOM_BESIDE_BARS))


def _width(table: Table, place: int, header: int) -> int:
    return max([header, *(cell_len(row[place]) for row in table.rows if place < len(row))])


def _parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Which columns stand side by side: the keys, then as many others as there is room for, at least one."""
    head = list(range(keys))
    taken = sum(widths[place] + GAP for place in head)
    parts: list[list[int]] = []
    left = -1
    for place in range(keys, len(widths)):
        left -= widths[place] + GAP
        if left < 0:
            parts.append([*head])
            left = room - taken - widths[place] - GAP
        parts[-1].append(place)
    return parts


def _part(table: Table, chosen: Sequence[int], widths: Sequence[int] | None = None) -> RichTable:
    made = _empty()
    for place in chosen:
        width = None if widths is None else widths[place]
        made.add_column(Text(table.columns[place]), justify=_side(table, place), overflow="fold", width=width)
    styles = ["bold" if place == table.bold_column else "" for place in chosen]
    for row in table.rows:
        cells = (row[place] if place < len(row) else "" for place in chosen)
        made.add_row(*(Text(cell, style) for cell, style in zip(cells, styles, strict=True)))
    return made


def _bar_table(table: Table, width: int) -> RichTable:
    made = _empty()
    for place, name in [*enumerate(table.columns), (0, "")]:
        made.add_column(Text(name), justify=_side(table, place), no_wrap=True)
    for row, (begin, end) in zip(table.rows, table.bars, strict=True):
        blanks = round(begin * width)
        made.add_row(*map(Text, row), " " * blanks + "█" * (round(end * width) - blanks))
    return made


def _side(table: Table, place: int) -> Literal["left", "right"]:
    return "left" if place in table.text_columns else "right"


def _empty() -> RichTable:
    return RichTable(box=None, padding=(0, GAP, 0, 0), header_style="bold", pad_edge=False)
