"""Every figure of a table is whole however narrow the terminal is."""

import io
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headcount.text.blocks import Line, Table
from headcount.views.terminal.drawing import draw
from headcount.views.terminal.tables import bar_width, print_table

figures = st.integers(0, 10**9).map(lambda value: f"{value:,}")
widths = st.integers(30, 200)


def printed(made: Table, width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    print_table(out, made)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@given(rows=st.lists(st.lists(figures, min_size=6, max_size=6), min_size=1, max_size=4), width=widths)
@settings(max_examples=60)
def test_every_figure_stands_on_one_line(rows: Sequence[Sequence[str]], width: int) -> None:
    columns = ("GPUs", "users (95 % conf.)", "expected users", "upper end (90 %)", "req/s", "tokens/s")
    lines = printed(Table(columns=columns, rows=rows), width)
    assert all(len(line) <= width for line in lines)
    words = [word for line in lines for word in line.split()]
    for row in rows:
        assert all(figure in words for figure in row)


def test_parts_repeat_what_a_row_is() -> None:
    columns = ("GPUs", *(f"column{number}" for number in range(9)))
    made = Table(columns=columns, rows=[("16", *(f"{number:,}" for number in range(1000, 1009)))])
    lines = [line.split() for line in printed(made, 40)]
    assert [line[0] for line in lines if line] == ["GPUs", "16"] * 3
    assert [word for line in lines for word in line if word.startswith("1,")] == [f"{n:,}" for n in range(1000, 1009)]


def test_a_table_that_fits_is_one_table() -> None:
    made = Table(columns=("", "mean", "p99"), rows=[("TTFT", "28 ms", "31 ms")])
    assert len(printed(made, 80)) == 2


def test_a_file_gets_a_table_as_wide_as_it_is() -> None:
    columns, text = tuple(f"column{number}" for number in range(40)), io.StringIO()
    made = Table(columns=columns, rows=[[f"{number:,}" for number in range(1000, 1040)]])
    print_table(Console(file=text, width=80, highlight=False), made)
    assert len(text.getvalue().splitlines()) == 2


@given(width=st.integers(1, 300))
def test_bars_leave_room_for_names_and_figures(width: int) -> None:
    assert 0 <= bar_width(width, ["left to others"]) <= max(0, min(60, width - len("left to others  12345.67  ")))


@pytest.mark.parametrize(("columns", "is_split"), [(60, True), (400, False)])
def test_a_pipe_is_as_wide_as_the_terminal_that_shows_stderr(
    columns: int, is_split: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    cells = [f"{number:,}" for number in range(1000, 1020)]
    draw([Table(columns=tuple(f"column{number}" for number in range(20)), rows=[cells])])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert (len(lines) > 2) == is_split
    assert {word for line in lines for word in line.split()} >= set(cells)


def test_without_any_terminal_each_sentence_and_each_row_stays_on_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw([Line("word " * 60), Table(columns=("a " * 80, "b"), rows=[("x" * 150, "1")])])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["word"] * 60
    assert lines[-1].split() == ["x" * 150, "1"]
