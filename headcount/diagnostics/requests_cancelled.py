"""At least 1 % of requests are cancelled: they missed the SLO, and latencies are those of the others."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from headcount.text.words import cancelled_text

SEVERITY = Severity.WARNING
FROM_SHARE = 0.01


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    found = facts.cancelled
    if found is not None and found.cancelled >= FROM_SHARE:
        others = "each counts as an SLO miss; latencies are of the other requests only"
        by = "cancelled by clients" if not found.rejected else "without a complete answer"
        yield f"{by}: {cancelled_text(found)}; {others}", ""
