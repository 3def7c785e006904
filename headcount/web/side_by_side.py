"""Finished answers beside one another: what was asked otherwise, what was answered otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headcount.web.saved_jobs import FIGURES, SavedJob, figure_text

MOST: Final = 4


@dataclass(frozen=True)
class Comparison:
    """Rows of cells, one for each answer; those that differ are marked."""

    asked: list[tuple[str, list[str], bool]]
    answered: list[tuple[str, list[str], bool]]


def compared(answers: Sequence[SavedJob]) -> Comparison:
    """Every field that one of them gave, every figure that one of them has."""
    names = dict.fromkeys(name for kept in answers for name, _ in kept.scenario.values)
    asked = [_row(name.replace("-", " "), [kept.scenario.shown(name) or "–" for kept in answers]) for name in names]
    rows = [kept.rows[0] if kept.rows else {} for kept in answers]
    figures = [name for name in FIGURES if any(name in row for row in rows)]
    answered = [_row(FIGURES[name], [figure_text(name, row.get(name)) for row in rows]) for name in figures]
    questions = [_row("question", [kept.scenario.question for kept in answers])]
    return Comparison(asked=[*questions, *asked], answered=answered)


def _row(name: str, cells: list[str]) -> tuple[str, list[str], bool]:
    return name, cells, len(set(cells)) > 1
