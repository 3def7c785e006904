"""vLLM would do by default what the simulation leaves out."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.ASSUMPTION


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        for name, value, why in plan.not_simulated:
            yield f"assumed: {name}, {value}", why
