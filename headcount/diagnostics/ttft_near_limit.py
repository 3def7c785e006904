"""TTFT's own error takes more than half of the users, because its limit is near at any load."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for whose, row in facts.near_limit:
        yield (
            f"{whose}: {row.users_at_ttft_error_high:,} of {row.users:,} users if TTFT is "
            f"{row.ttft_error:.0%} longer, as its error allows, because fewer users make "
            "TTFT little shorter. With a --ttft that is so much longer, far more are safe to promise",
            "",
        )
