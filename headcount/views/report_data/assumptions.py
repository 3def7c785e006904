"""What an answer rests on: each figure with its source, and whether it was measured, specified or assumed."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headcount.queries.report_data.demand import kind_of
from headcount.text.units import GIB
from kvcache.gpus.gpu import GPU

if TYPE_CHECKING:
    from simulator.deployment import Assumption


def of_terms(part: str, terms: "Iterable[Assumption]") -> list[dict[str, str]]:
    """Assumptions of one part."""
    return [
        {"part": part, "name": name, "value": value, "kind": kind_of(source), "source": source}
        for name, value, source in terms
    ]


def gpu_rows(gpu: GPU) -> "Iterator[Assumption]":
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
