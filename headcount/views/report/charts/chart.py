"""What a chart shows, with the table that says the same."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headcount.text.units import percent, seconds, short

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]  # column names, cells
MOST_ROWS: Final = 30  # of a chart's table

TEXTS: Final[dict[str, Callable[[float], str]]] = {
    "count": lambda value: f"{value:,.0f}" if value == int(value) else short(value),
    "percent": percent,
    "change": lambda value: f"{100 * value:+.0f} %",
    "time": lambda value: seconds(value) if value < 1 else f"{value:,.3g} s",
    "dollars": lambda value: f"${value:,.0f}",
}
"""How an axis writes its figures."""


@dataclass(frozen=True, kw_only=True)
class Chart(ABC):
    """A sentence that the chart shows, and how to read it."""

    title: str
    note: str = ""

    @abstractmethod
    def table(self) -> Rows:
        """The same figures, for whoever does not see it."""

    @property
    def told(self) -> str:
        """The same in a line, for a screen reader."""
        columns, rows = self.table()
        return f"{self.title}. {'; '.join(', '.join(row) for row in list(rows)[:8])}. Columns: {', '.join(columns)}."


@dataclass(frozen=True)
class Series:
    """Points under a name; `low` and `high` make a band around them."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    is_step: bool = False
    has_points: bool = False
    has_line: bool = True


@dataclass(frozen=True)
class Limit:
    """A line across, with its meaning."""

    value: float
    label: str
    is_vertical: bool = False


@dataclass(frozen=True, kw_only=True)
class Lines(Chart):
    """Series over one axis."""

    x_name: str
    y_name: str
    series: Sequence[Series]
    x_text: str = "count"
    y_text: str = "count"
    limits: Sequence[Limit] = ()
    is_log: bool = False  # the axis below; with is_equal both
    is_equal: bool = False  # with the line on which both are equal
    from_zero: bool = True  # the axis at the side
    shaded: tuple[float, float, str] | None = None  # from, to, what it is

    def table(self) -> Rows:
        show_x, show_y = TEXTS[self.x_text], TEXTS[self.y_text]
        xs = list(self.series[0].x)
        if all(list(each.x) == xs for each in self.series):
            every = max(-(-len(xs) // MOST_ROWS), 1)
            ys = [each.y[::every] for each in self.series]
            rows = [[show_x(x), *map(show_y, at)] for x, *at in zip(xs[::every], *ys, strict=True)]
            return [self.x_name, *(each.name for each in self.series)], rows
        every = max(-(-sum(len(each.x) for each in self.series) // MOST_ROWS), 1)
        return ["what", self.x_name, self.y_name], [
            [each.name, show_x(x), show_y(y)]
            for each in self.series
            for x, y in zip(each.x[::every], each.y[::every], strict=True)
        ]


@dataclass(frozen=True)
class Bar:
    """From one value to another; a `kind` other than plain is drawn with its own pattern."""

    name: str
    end: float
    label: str
    kind: str = "plain"  # plain, marked, pale, warning
    begin: float = 0


@dataclass(frozen=True, kw_only=True)
class Bars(Chart):
    """Bars one below the other."""

    axis_name: str
    bars: Sequence[Bar]
    text: str = "count"
    limit: Limit | None = None
    columns: tuple[str, str] = ("what", "value")

    def table(self) -> Rows:
        return self.columns, [(bar.name, bar.label) for bar in self.bars]


@dataclass(frozen=True, kw_only=True)
class Grid(Chart):
    """Values by row and column: the darker a cell, the larger its value."""

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None]]]
    x_name: str = ""
    text: str = "count"

    def table(self) -> Rows:
        show = TEXTS[self.text]
        cells = [[name, *("–" if value is None else show(value) for value in values)] for name, values in self.rows]
        return [self.corner, *self.columns], cells
