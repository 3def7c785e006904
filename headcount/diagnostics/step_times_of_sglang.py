"""Steps of SGLang take vLLM's times."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headcount.diagnostics import Facts, Severity
from simulator.engines.engines import SGLANG, engine_of

if TYPE_CHECKING:
    from simulator.deployment import Deployment

SEVERITY = Severity.ASSUMPTION
TEXT = (
    "step times of SGLang are vLLM's, which miss the mean TPOT of 201 public settings of SGLang by 8 % in the median; "
    "the interval covers that. Beside vLLM its users show what the schedulers decide, not whose kernels are faster"
)
SOURCE = "docs/measurements/sglang.md"
REMEDY = "fit step times to your SGLang server (headcount calibrate fit --engine sglang), or give your own --step-s"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if any(takes_times_of_vllm(plan) for plan in facts.plans):
        yield TEXT, SOURCE


def takes_times_of_vllm(plan: "Deployment") -> bool:
    """Whether a server runs SGLang, and nobody has measured its steps."""
    return engine_of(plan.args) == SGLANG and not (plan.latency.calibrated or plan.latency.is_given)
