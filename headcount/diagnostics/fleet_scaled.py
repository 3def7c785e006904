"""A fleet is larger than what was simulated together."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.INFO
MEASURED = "docs/measurements/large-fleets.md"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for simulated, servers in facts.scaled:
        yield (
            f"users of {servers:,} servers are scaled from {simulated:,} servers that were simulated together, less "
            "the estimated loss of prefix hits",
            MEASURED,
        )
