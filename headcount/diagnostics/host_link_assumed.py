"""The rate at which KV is copied to and from CPU memory is assumed, since none is published for the GPU."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.ASSUMPTION


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        host = plan.budget.host
        if host is not None and plan.gpu.host_link_bytes_per_s is None:
            name, value, source = host.link
            yield f"{name}: {value}", source
