"""Steps of SGLang take vLLM's times."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headcount.diagnostics import Facts, Severity
from simulator.engines.engines import SGLANG, engine_of

if TYPE_CHECKING:
    from simulator.deployment import Deployment

SEVERITY = Severity.ASSUMPTION
TEXT = (
    "SGLang is simulated with vLLM's step times; their median error on the mean TPOT of 201 public SGLang settings "
    "is 8 %, which the interval covers. A comparison with vLLM shows what the schedulers do, not whose kernels are "
    "faster"
)
SOURCE = "docs/measurements/sglang.md"
REMEDY = "fit step times to your SGLang server (headcount calibrate fit --engine sglang), or give your own --step-s"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if any(takes_times_of_vllm(plan) for plan in facts.plans):
        yield TEXT, SOURCE


def takes_times_of_vllm(plan: "Deployment") -> bool:
    """Whether a server runs SGLang, and nobody has measured its steps."""
    return engine_of(plan.args) == SGLANG and not (plan.latency.calibrated or plan.latency.is_given)
