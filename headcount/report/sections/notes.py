"""What the answer's reader should know: warnings first, then what was assumed."""

from headcount.answers.answer import Answer
from headcount.answers.notes import Severity
from headcount.report.html import table

TITLE = "Notes"
ORDER = 72
COLUMNS = ("note", "kind", "source")


def render(answer: Answer) -> str:
    """Nothing where there is no note."""
    worst_first = sorted(answer.notes, key=lambda note: -list(Severity).index(note.severity))
    rows = [(note.text, str(note.severity), note.source) for note in worst_first]
    return table(COLUMNS, rows, caption="", layout="text") if rows else ""
