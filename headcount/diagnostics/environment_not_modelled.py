"""An environment variable of the server may change the answer, but is not modelled."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for variable in facts.environment:
        yield f"{variable} is not modelled: the answer ignores it", ""
