"""What the answer's reader should know: warnings first, then what was assumed."""

from collections.abc import Sequence

from headcount.answers.answer import Answer
from headcount.answers.notes import Severity
from headcount.report.html import table

TITLE = "Notes"
ORDER = 72
COLUMNS = ("note", "kind", "source")


def render(answer: Answer) -> str:
    """Nothing where there is no note."""
    worst_first = sorted(answer.notes, key=lambda note: -list(Severity).index(note.severity))
    columns: Sequence[str] = COLUMNS
    rows: list[Sequence[str]] = [(note.text, str(note.severity), note.source) for note in worst_first]
    if not any(note.source for note in worst_first):
        columns, rows = COLUMNS[:2], [row[:2] for row in rows]
    return table(columns, rows, caption="", layout="text notes") if rows else ""
