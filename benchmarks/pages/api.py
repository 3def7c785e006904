"""The tables of docs/reference/python.md and notes.md, from the code."""

from collections.abc import Callable
from inspect import getdoc, isfunction

import headcount
from benchmarks.markdown import table
from headcount.answers.notes import NOTES

Tables = dict[str, Callable[[], str]]


def python_tables() -> Tables:
    """By the names of the page's markers."""
    return {"names": _names}


def note_tables() -> Tables:
    """By the names of the page's markers."""
    return {"notes": _notes}


def _names() -> str:
    rows = []
    for name in dir(headcount):
        found = getattr(headcount, name)
        rows.append((f"`{name}{'()' if isfunction(found) else ''}`", _first_line(getdoc(found))))
    return table(("name", "what"), rows)


def _notes() -> str:
    rows = []
    for code in NOTES.names():
        note = NOTES.load(code)
        remedy = getattr(note, "REMEDY", "")
        rows.append((f"`{code}`", str(note.SEVERITY), _first_line(note.__doc__), remedy))
    return table(("code", "severity", "when", "refused by `--strict`; what to do"), rows)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")
