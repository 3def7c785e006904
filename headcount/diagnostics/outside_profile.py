"""The deployment or its load lies outside what the latency profile was fitted on."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from simulator.latency.model import steps_outside

SEVERITY = Severity.WARNING
REMEDY = "fit a profile to a server and load like these"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        yield from ((text, "") for text in plan.latency.warnings)
    for plan, step in facts.steps:
        yield from ((text, "") for text in steps_outside(plan.latency, step))
