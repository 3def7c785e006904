"""The replications ended before the capacity was known as precisely as asked."""

from collections.abc import Iterator

from headcount.answers.notes import Facts, Severity
from headcount.text.units import counted

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for gpus, precision, replications in facts.imprecise:
        known = f"known to ±{precision:.1%}" if precision < 1 else "hardly known"
        yield (
            f"{counted(gpus, 'GPU')}: users are {known} after {replications} replications; "
            "ask for more with --replications, or accept it with --precision",
            "",
        )
