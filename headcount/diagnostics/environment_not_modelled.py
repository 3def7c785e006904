"""A variable of the server's environment may change what is answered, and is not looked at."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for variable in facts.environment:
        yield f"{variable} is not modelled: the answer ignores it", ""
