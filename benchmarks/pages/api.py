"""The tables of docs/reference/python.md, notes.md and routers.md, from the code."""

from collections.abc import Callable
from inspect import getdoc, isfunction

import headcount
from benchmarks.markdown import table
from headcount.answers.notes import NOTES
from simulator.fleet.router import ROUTERS, View

Tables = dict[str, Callable[[], str]]


def python_tables() -> Tables:
    """By the names of the page's markers."""
    return {"names": _names}


def note_tables() -> Tables:
    """By the names of the page's markers."""
    return {"notes": _notes}


def router_tables() -> Tables:
    """By the names of the page's markers."""
    return {"routers": _routers, "view": _view}


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
        rows.append((f"`{code.replace('_', '-')}`", str(note.SEVERITY), _first_line(note.__doc__), remedy))
    return table(("code", "severity", "when", "refused by `--strict`; what to do"), rows)


def _routers() -> str:
    rows = []
    for name in ROUTERS.names():
        router = ROUTERS.load(name)
        rows.append((f"`{name.replace('_', '-')}`", _first_line(router.__doc__), ", ".join(router.SEES)))
    return table(("router", "what", "what it sees"), rows)


def _view() -> str:
    found = {name: value for name, value in vars(View).items() if isinstance(value, property) and name[0] != "_"}
    return table(("`view.…`", "what"), [(f"`{name}`", _first_line(value.__doc__)) for name, value in found.items()])


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")
