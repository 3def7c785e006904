"""What an answer consists of when it is read: lines and tables, drawn in a terminal, a notebook or a report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Generic, TypeVar

from files.documents import ReadJson

Row = TypeVar("Row")


@dataclass(frozen=True)
class Line:
    """A sentence; `bold` stands before it. Without either it is an empty line."""

    text: str = ""
    bold: str = ""
    dim: bool = False

    def __str__(self) -> str:
        return self.bold + self.text


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells under column names; the first `keys` columns say what a row is."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    text_columns: tuple[int, ...] = (0,)  # aligned to the left; the others are figures
    bold_column: int | None = None
    bars: Sequence[tuple[float, float]] = field(default=())  # from, to, as shares of the widest bar; one a row


Block = Line | Table


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column about things of one type: its title, and what stands under it for each."""

    title: str
    cell: Callable[[Row], str]
    is_text: bool = False  # aligned to the left
    is_bold: bool = False


def titles(columns: Iterable[Column[Row]]) -> tuple[str, ...]:
    return tuple(column.title for column in columns)


def cells(columns: Iterable[Column[Row]], row: Row) -> tuple[str, ...]:
    return tuple(column.cell(row) for column in columns)


def table_of(columns: Sequence[Column[Row]], rows: Iterable[Row], *, keys: int = 1) -> Table:
    """A line for each thing."""
    return Table(
        columns=titles(columns),
        rows=[cells(columns, row) for row in rows],
        keys=keys,
        text_columns=tuple(place for place, column in enumerate(columns) if column.is_text),
        bold_column=next((place for place, column in enumerate(columns) if column.is_bold), None),
    )


def block_json(block: Block) -> dict[str, object]:
    """A block as JSON has it; `block_of` reads it."""
    return {"table" if isinstance(block, Table) else "line": asdict(block)}


def block_of(given: ReadJson) -> Block:
    """Of what `block_json` wrote."""
    if "line" in given:
        return Line(**given["line"])
    table = dict(given["table"])
    return Table(**table | {"columns": tuple(table["columns"]), "text_columns": tuple(table["text_columns"])})
