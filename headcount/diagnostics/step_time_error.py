"""How far step times may be off."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from headcount.text.words import step_time_error

SEVERITY = Severity.INFO


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    """Of the first plan of each kind of GPU; the first of all leads."""
    said: dict[str, str] = {}
    for plan in facts.plans:
        if plan.gpu.name not in said:
            sequences = next((step.sequences for other, step in facts.steps if other is plan), None)
            said[plan.gpu.name] = step_time_error(plan.latency, sequences)
    for name, text in said.items():
        yield f"{name}: {text}" if len(said) > 1 else text, ""
