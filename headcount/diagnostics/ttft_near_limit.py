"""TTFT's own error takes more than half of the users, because its limit is near at any load."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for whose, row in facts.near_limit:
        yield (
            f"{whose}: if TTFT is {row.ttft_error:.0%} longer than simulated, which is within its error, capacity "
            f"falls from {row.users:,} to {row.users_at_ttft_error_high:,} users; relax --ttft",
            "",
        )
