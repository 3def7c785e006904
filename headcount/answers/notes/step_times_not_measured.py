"""Step times of this GPU are scaled from its specifications."""

from collections.abc import Iterator

from headcount.answers.notes import Facts, Severity

SEVERITY = Severity.ASSUMPTION
REMEDY = "take a measured GPU, or give --latency-model constant with your own --step-s"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        if not (plan.latency.is_measured or plan.latency.is_given):
            yield f"step times of {plan.gpu.name} are scaled from its specifications, not measured", ""
