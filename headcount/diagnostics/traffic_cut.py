"""At least 1 % of conversations, messages, prompts or answers are not served as the workload has them."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from headcount.text.words import traffic_text

SEVERITY = Severity.WARNING
FROM_SHARE = 0.01


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.traffic is not None and facts.traffic.worst >= FROM_SHARE:
        said = traffic_text(facts.traffic, facts.plans)
        yield f"{facts.traffic_of}: {said}" if facts.traffic_of else said, ""
