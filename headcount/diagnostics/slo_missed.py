"""No load that was tried meets the SLO."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.ERROR


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.why_missed is not None:
        yield facts.why_missed, ""
