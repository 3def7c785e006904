"""Rows of a trace are left out, or something of it is taken for granted."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.INFO


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for text in facts.trace:
        yield text, ""
