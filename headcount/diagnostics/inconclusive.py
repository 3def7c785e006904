"""The replications ended before the capacity was known as precisely as asked."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for whose, precision, replications in facts.imprecise:
        known = f"±{precision:.2%}" if precision < 1 else "more than ±100%"
        yield (
            f"{whose}: simulation noise is still {known} of the users after {replications} replications; "
            "run more with --replications, or accept it with --precision",
            "",
        )
