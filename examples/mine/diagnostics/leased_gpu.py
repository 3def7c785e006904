"""The price of a leased GPU ends with its contract."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.INFO


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if any(plan.gpu.name == "h100-leased" for plan in facts.plans):
        yield "the price of h100-leased holds until the contract ends in 2027", "our leasing contract"
