"""Step times of this GPU, or parts of them, are scaled from its specifications."""

from collections.abc import Iterator

from headcount.answers.notes import Facts, Severity
from simulator.latency.evidence import EVERY_KERNEL

SEVERITY = Severity.ASSUMPTION
REMEDY = "take a measured GPU, or give --latency-model constant with your own --step-s"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        if not (plan.latency.is_measured or plan.latency.is_given):
            parts = [part for part in plan.latency.unmeasured if part != EVERY_KERNEL]
            what = f"{', '.join(parts)} on {plan.gpu.name}" if parts else plan.gpu.name
            yield f"step times of {what} are scaled from its specifications, not measured", ""
