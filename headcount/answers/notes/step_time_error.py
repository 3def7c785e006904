"""How far step times may be off."""

from collections.abc import Iterator

from headcount.answers.notes import Facts, Severity
from headcount.text.words import step_time_error

SEVERITY = Severity.INFO


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    """Of the first plan, whose answer leads."""
    for plan in facts.plans[:1]:
        sequences = next((step.sequences for other, step in facts.steps if other is plan), None)
        yield step_time_error(plan.latency, sequences), ""
