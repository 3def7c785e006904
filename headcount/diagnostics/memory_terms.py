"""Where the sizes of a memory budget come from."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.ASSUMPTION


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for name, value, source in facts.terms:
        yield f"{name}: {value}", source
