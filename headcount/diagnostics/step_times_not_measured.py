"""Of this GPU, or of parts of the step times on it, no whole runs were measured: kernels alone, or nothing."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity
from simulator.latency.evidence import EVERY_KERNEL
from simulator.latency.gpu_constants import KERNELS, measured_text

SEVERITY = Severity.ASSUMPTION
REMEDY = "choose a measured GPU, or give --latency-model constant with your own --step-s"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        if not (plan.latency.is_measured or plan.latency.is_given):
            parts = [part for part in plan.latency.unmeasured if part != EVERY_KERNEL]
            text = measured_text(plan.gpu)
            if parts:
                yield f"step times of {', '.join(parts)} on {plan.gpu.name}: specifications only; the rest: {text}", ""
            else:
                yield f"step times of {plan.gpu.name}: {text}{', no complete runs' if text == KERNELS else ''}", ""
