"""What an answer rests on: each figure with its source, and whether it was measured, specified or assumed."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headcount.queries.report_data.demand import kind_of
from headcount.text.units import GIB
from headcount.text.words import slo_text
from headcount.views.report_data.workload import workload_rows
from kvcache.gpus.gpu import GPU
from simulator.deployment import Assumption, Deployment, default_router
from simulator.engines.engines import engine_of

if TYPE_CHECKING:
    from simulator.study.capacity_question import CapacityQuestion


def assumptions_of(question: "CapacityQuestion", plan: Deployment | None) -> list[dict[str, str]]:
    """Of the load, the GPU, memory and step times, those of the load first."""
    asked = (
        ("service level (SLO)", slo_text(question.slo), "as asked, or the preset's"),
        ("router", _router(question), "as asked, or the default"),
        ("precision of the users", f"±{question.precision:.1%}", "as asked, or the default"),
    )
    found = [*of_terms("load", [*asked, *workload_rows(question)]), *of_terms("GPU", gpu_rows(question.gpu))]
    return [*found, *([] if plan is None else of_terms("memory and step times", plan.assumptions))]


def of_terms(part: str, terms: Iterable[Assumption]) -> list[dict[str, str]]:
    """Assumptions of one part."""
    return [
        {"part": part, "name": name, "value": value, "kind": kind_of(source), "source": source}
        for name, value, source in terms
    ]


def _router(question: "CapacityQuestion") -> str:
    if question.router is not None:
        return str(getattr(question.router, "__name__", question.router))
    ranks = question.args.num_engines
    several = default_router(ranks, 2)
    alone = default_router(ranks, 1, engine_of(question.args))
    return several if ranks == 1 else f"{alone} in one server, {several} for several"


def gpu_rows(gpu: GPU) -> Iterator[Assumption]:
    """Of the catalog, with the sources there."""
    flops = ", ".join(f"{name} {value / 1e12:,.4g}" for name, value in gpu.flops_per_s.items())
    price = gpu.usd_per_hour
    for field, name, value in (
        ("memory_bytes", "memory", f"{gpu.memory_bytes / GIB:.2f} GiB"),
        ("memory_bandwidth_bytes_per_s", "memory bandwidth", f"{gpu.memory_bandwidth_bytes_per_s / 1e12:.3g} TB/s"),
        ("flops_per_s", "dense Tflop/s by type", flops),
        ("interconnect_bytes_per_s", f"interconnect ({gpu.interconnect})",
         f"{gpu.interconnect_bytes_per_s / 1e9:,.4g} GB/s in one direction"),
        ("usd_per_hour", "list price", "none known" if price is None else f"${price:,.2f} per GPU and hour"),
    ):  # fmt: skip
        yield name, value, gpu.source.get(field, "")
