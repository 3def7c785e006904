"""Sentences and names that several sections share."""

from headcount.text.units import percent
from simulator.deployment import Deployment
from simulator.study.slo import SLO


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def slo_text(slo: SLO) -> str:
    """The SLO in words that need no glossary."""
    limits = [f"a time to first token (TTFT) of at most {slo.ttft_s:g} s"] if slo.ttft_s is not None else []
    limits += [f"a time per output token (TPOT) of at most {slo.tpot_s * 1e3:g} ms"] if slo.tpot_s is not None else []
    return f"{percent(slo.attainment)} of requests have " + " and ".join(limits)


def weights_text(plan: Deployment) -> str:
    """The weights' format; `none` alone would not say which."""
    name = plan.budget.quantization
    return f"{plan.architecture.dtype} (not quantized)" if name == "none" else name


def kv_cache_text(plan: Deployment) -> str:
    """The KV cache's format; `auto` alone would not say which."""
    name = plan.budget.kv_cache_dtype
    return f"{plan.architecture.dtype} (auto)" if name == "auto" else name
