"""Every figure of a table is whole however narrow the terminal is."""

import io
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from headcount.text.tables import print_table
from headcount.text.text import bar_width, table

figures = st.integers(0, 10**9).map(lambda value: f"{value:,}")
widths = st.integers(30, 200)


def printed(made: Table, width: int, keys: int = 1) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    print_table(out, made, keys)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@given(rows=st.lists(st.lists(figures, min_size=6, max_size=6), min_size=1, max_size=4), width=widths)
@settings(max_examples=60, deadline=None)
def test_every_figure_stands_on_one_line(rows: Sequence[Sequence[str]], width: int) -> None:
    made = table("GPUs", "users low", "users", "users high", "req/s", "tokens/s")
    for row in rows:
        made.add_row(*row)
    lines = printed(made, width)
    assert all(len(line) <= width for line in lines)
    words = [word for line in lines for word in line.split()]
    for row in rows:
        assert all(figure in words for figure in row)


def test_parts_repeat_what_a_row_is() -> None:
    made = table("GPUs", *(f"column{number}" for number in range(9)))
    made.add_row("[bold]16[/]", *(f"{number:,}" for number in range(1000, 1009)))
    lines = [line.split() for line in printed(made, 40)]
    assert [line[0] for line in lines if line] == ["GPUs", "16"] * 3
    assert [word for line in lines for word in line if word.startswith("1,")] == [f"{n:,}" for n in range(1000, 1009)]


def test_a_table_that_fits_is_one_table() -> None:
    made = table("", "mean", "p99")
    made.add_row("TTFT", "28 ms", "31 ms")
    assert len(printed(made, 80)) == 2


def test_a_file_gets_a_table_as_wide_as_it_is() -> None:
    made, text = table(*(f"column{number}" for number in range(40))), io.StringIO()
    made.add_row(*(f"{number:,}" for number in range(1000, 1040)))
    print_table(Console(file=text, width=80, highlight=False), made)
    assert len(text.getvalue().splitlines()) == 2


@given(width=st.integers(1, 300))
def test_bars_leave_room_for_names_and_figures(width: int) -> None:
    out = Console(file=io.StringIO(), width=width)
    assert 0 <= bar_width(out, ["left to others"]) <= max(0, min(60, width - len("left to others  12345.67  ")))
