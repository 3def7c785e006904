"""A fleet is larger than what was simulated together."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.INFO
MEASURED = "docs/measurements/large-fleets.md"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for simulated, servers in facts.scaled:
        yield (
            f"users of {servers:,} servers follow from {simulated:,} that were simulated together: as many for each, "
            "less what prefix caches lose by the estimate",
            MEASURED,
        )
