"""Runs a probe of this folder under another interpreter."""

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from calibrate.conformance.probing import Record, probe_records

PROBES = Path(__file__).parent / "probes"


def answers(python: Path, probe: str, cases: Sequence[Record], *, failure: str) -> Generator[Record]:
    """One answer to each case, in order; both have a `name`. Raises ValueError as `probe_records` does."""
    with closing(probe_records(python, PROBES / f"{probe}.py", cases, failure=failure)) as records:
        for case, answer in zip(cases, records, strict=True):
            assert answer["name"] == case["name"], "the probe answers in order"
            yield answer
