"""Fewer than 1 % of conversations, messages, prompts or answers are not served as the workload has them."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from headcount.diagnostics.traffic_cut import FROM_SHARE
from headcount.text.words import traffic_text

SEVERITY = Severity.INFO


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.traffic is not None and 0 < facts.traffic.worst < FROM_SHARE:
        yield traffic_text(facts.traffic, facts.plans), ""
