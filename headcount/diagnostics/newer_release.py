"""The rules of an older release apply."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from kvcache.releases import newer_than_known

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    newer = None if facts.vllm_version is None else newer_than_known(facts.vllm_version)
    if newer is not None:
        yield f"--vllm-version {newer}", ""
