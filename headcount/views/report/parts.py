"""What a section consists of: sentences, tables, commands, charts, files, and what is folded away."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headcount.views.report.charts.chart import Chart


@dataclass(frozen=True, kw_only=True)
class Text:
    """A sentence or a few; `items` are a list below it."""

    text: str = ""
    items: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells under column names, the first of a row being its name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: Sequence[int] = (0,)  # aligned to the left; the others are figures
    bold_column: int | None = None


@dataclass(frozen=True, kw_only=True)
class Command:
    """A line to paste."""

    says: str
    line: str


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to keep, as text."""

    name: str
    text: str
    says: str = ""


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Parts that are hidden until they are asked for."""

    title: str
    parts: Sequence["Part"] = field(default=())


Part = Text | Table | Command | File | Folded | Chart
