"""Step times of this GPU, or parts of them, are scaled from its specifications."""

from collections.abc import Iterator

from headcount.answers.notes import Facts, Severity
from simulator.latency.evidence import EVERY_KERNEL, SGLANG_S_STEPS

SEVERITY = Severity.ASSUMPTION
OF_SGLANG = (
    "step times of SGLang are vLLM's with a wider interval, as no run of SGLang was at hand; beside vLLM its users "
    "show what the schedulers decide, not whose kernels are faster"
)
REMEDY = "take a measured GPU, or give --latency-model constant with your own --step-s"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for plan in facts.plans:
        if not (plan.latency.is_measured or plan.latency.is_given):
            unmeasured = [part for part in plan.latency.unmeasured if part != SGLANG_S_STEPS]
            parts = [part for part in unmeasured if part != EVERY_KERNEL]
            what = f"{', '.join(parts)} on {plan.gpu.name}" if parts else plan.gpu.name
            if unmeasured or not plan.latency.unmeasured:
                yield f"step times of {what} are scaled from its specifications, not measured", ""
            if SGLANG_S_STEPS in plan.latency.unmeasured:
                yield OF_SGLANG, ""
