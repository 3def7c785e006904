"""What changed between two answers, in words."""

from headcount.queries.diff import Difference, DiffResult
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import change, counted
from headcount.views.summary.summary import Summary


def head(answer: DiffResult) -> list[Block]:
    return [Line(f": {answer.questions[0]}", bold="before"), Line(f": {answer.questions[1]}", bold="after")]


def body(answer: DiffResult) -> list[Block]:
    if not answer.asked_changes and not answer.answer_changes:
        return [Line("the same question, and the same answer")]
    parts = (("in the question", answer.asked_changes), ("in the answer", answer.answer_changes))
    return [block for title, changes in parts for block in (_table(title, changes), Line())][:-1]


def summary(answer: DiffResult) -> Summary:
    named = [f"{each.name} {_shown(each.before)} → {_shown(each.after)}" for each in answer.answer_changes[:3]]
    return Summary(
        question=f"What changed between “{answer.questions[0]}” and “{answer.questions[1]}”?",
        answer="; ".join(named) or "The answer is the same",
        figures=(
            ("changed in the question", counted(len(answer.asked_changes), "thing")),
            ("changed in the answer", counted(len(answer.answer_changes), "figure")),
        ),
        sure="Each answer has its own interval; where both overlap, the difference may be noise.",
    )


def _table(title: str, changes: tuple[Difference, ...]) -> Table:
    rows = [
        (
            each.name,
            _shown(each.before),
            _shown(each.after),
            "" if each.change is None else change(each.change, 1),
        )
        for each in changes
    ]
    return Table(columns=(title, "before", "after", "change"), rows=rows or [("nothing", "", "", "")])


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,.5g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
