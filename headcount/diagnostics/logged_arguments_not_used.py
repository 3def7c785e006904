"""A start-up log holds arguments that may change the answer, but are not used."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.unused_arguments:
        yield f"arguments of the start-up log that are not used: {', '.join(facts.unused_arguments)}", ""
