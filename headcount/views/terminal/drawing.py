"""Lines and tables in a terminal, as plain text and as HTML for notebooks."""

import io
import sys
from collections.abc import Iterable
from html import escape

from rich.console import Console
from rich.text import Text

from files.names import printable
from headcount.text.blocks import Block, Table
from headcount.views.terminal.tables import print_table

FILE_WIDTH = 100  # characters, where no terminal says how wide it is


def console() -> Console:
    """Stdout: as wide as its terminal, or as that of stderr where it is a pipe."""
    out = Console(highlight=False)
    if out.is_terminal:
        return out
    if sys.stderr is not None and sys.stderr.isatty():
        width = Console(stderr=True).width
        return Console(highlight=False, width=width, force_terminal=True, color_system=None)
    return Console(highlight=False, width=FILE_WIDTH)


def draw(blocks: Iterable[Block], out: Console | None = None) -> None:
    """Print blocks on stdout, or where `out` says; a file or a pipe gets each sentence and each row on one line."""
    out = out or console()
    for block in blocks:
        if isinstance(block, Table):
            print_table(out, block)
        else:
            text = Text.assemble((printable(block.bold), "bold"), (printable(block.text), "dim" if block.dim else ""))
            out.print(text, soft_wrap=not out.is_terminal)


def as_text(blocks: Iterable[Block]) -> str:
    """The same without colours, FILE_WIDTH characters wide."""
    file = io.StringIO()
    draw(blocks, Console(file=file, highlight=False, width=FILE_WIDTH, force_terminal=True, color_system=None))
    return file.getvalue().rstrip("\n")


def as_html(blocks: Iterable[Block]) -> str:
    """The same as HTML, for notebooks."""
    found = []
    for block in filter(str, blocks):
        if isinstance(block, Table):
            found.append(_html_table(block))
        else:
            tag = "small" if block.dim else "span"
            found.append(f"<div><b>{escape(block.bold)}</b><{tag}>{escape(block.text)}</{tag}></div>")
    return "\n".join(found)


def _html_table(table: Table) -> str:
    sides = ["left" if place in table.text_columns else "right" for place in range(len(table.columns))]

    def row(tag: str, cells: Iterable[str]) -> str:
        pairs = zip(cells, sides, strict=False)
        found = (f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for cell, side in pairs)
        return f"<tr>{''.join(found)}</tr>"

    return "".join(["<table>", row("th", table.columns), *(row("td", cells) for cells in table.rows), "</table>"])
