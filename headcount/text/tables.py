"""Tables that keep every figure whole however narrow the terminal is."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

GAP = 2  # blanks after a column


def print_table(out: Console, whole: Table, keys: int = 1) -> None:
    """Print a table, in parts one below the other where the terminal is narrower; each begins with the key columns.

    A file gets it as wide as it is.
    """
    natural = sum(_width(column, _longest(column.header)) + GAP for column in whole.columns)
    if not out.is_terminal:
        wide = Console(file=out.file, highlight=False, width=max(out.width, natural))
        wide.print(whole)
    elif natural <= out.width:
        out.print(whole)
    else:
        parts = _parts([_width(column, _longest_word(column.header)) for column in whole.columns], keys, out.width)
        for number, chosen in enumerate(parts):
            if number:
                out.print()
            out.print(_part(whole, chosen))


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


def _part(whole: Table, chosen: Sequence[int]) -> Table:
    made = Table(title=whole.title, title_justify="left", box=None, padding=(0, GAP, 0, 0), header_style="bold")
    for place in chosen:
        column = whole.columns[place]
        width = _width(column, _longest_word(column.header))
        made.add_column(column.header, justify=column.justify, overflow="fold", width=width)
    cells = [list(whole.columns[place].cells) for place in chosen]
    for row in zip(*cells, strict=True):
        made.add_row(*row)
    return made


def _width(column: Column, header: int) -> int:
    return max([header, *(_longest(cell) for cell in column.cells)])


def _longest(text: object) -> int:
    return cell_len(Text.from_markup(str(text)).plain)


def _longest_word(text: object) -> int:
    return max((cell_len(word) for word in Text.from_markup(str(text)).plain.split()), default=0)
