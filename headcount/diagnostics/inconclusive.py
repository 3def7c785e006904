"""The replications ended before the capacity was known as precisely as asked."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for whose, precision, replications in facts.imprecise:
        known = f"known only to ±{precision:.2%}" if precision < 1 else "hardly known"
        yield (
            f"{whose}: users are {known} after {replications} replications; "
            "ask for more with --replications, or accept it with --precision",
            "",
        )
