"""What was compared, as bars, a table and sentences of a report."""

from collections.abc import Iterable, Sequence

from files.documents import Json
from headcount.text.blocks import Table

Bar = tuple[str, float | None, str, str]
"""Name, value, label, and a kind of bar: plain, marked or pale."""


def layouts_json(
    title: str, axis: str, bars: Iterable[Bar], said: Sequence[str], *, text: str = "count", table: Table | None = None
) -> Json:
    """What the section of the layouts draws; `text` says how the axis writes its figures."""
    shown = table or Table(columns=(), rows=[], text_columns=())
    return {
        "title": title,
        "axis": axis,
        "text": text,
        "bars": [dict(zip(("name", "value", "label", "kind"), bar, strict=True)) for bar in bars],
        "columns": shown.columns,
        "rows": shown.rows,
        "text_columns": list(shown.text_columns),
        "said": said,
    }
