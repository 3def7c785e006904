"""The tables of docs/reference/gpus.md and models.md, from the catalogs."""

from collections import Counter
from collections.abc import Callable

from conformance.models import quantized_names
from headcount.text.units import dollars
from kvcache.gpus.gpu import GPU, find_gpu, gpu_names
from kvcache.models.builds import builds
from kvcache.models.catalog import load_model, model_names
from kvcache.shape.parameters import active_parameters, total_parameters
from simulator.latency.gpu_constants import FEW_RUNS, measured_text
from validation.markdown import table

GIB = 2**30


def gpu_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {"gpus": _gpus}


def model_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {"models": _models, "builds": _builds}


def _gpus() -> str:
    rows = []
    for name in gpu_names():
        gpu = find_gpu(name)
        speeds = {dtype: f"{flops / 1e12:,.0f}" for dtype, flops in gpu.flops_per_s.items()}
        rows.append(
            (
                f"`{name}`",
                f"{gpu.memory_bytes / GIB:.1f}",
                f"{gpu.memory_bandwidth_bytes_per_s / 1e12:.2f}",
                speeds.get("bf16", speeds.get("fp16", "–")),
                speeds.get("fp8", "–"),
                f"{gpu.interconnect_title} {gpu.interconnect_bytes_per_s / 1e9:,.0f}",
                "–" if gpu.host_link_bytes_per_s is None else f"{gpu.host_link_bytes_per_s / 1e9:,.0f}",
                dollars(gpu.usd_per_hour),
                "–" if gpu.tdp_watts is None else f"{gpu.tdp_watts:,.0f}",
                _evidence(gpu),
            )
        )
    return table(
        (
            "GPU",
            "GiB",
            "TB/s",
            "bf16 TFLOP/s",
            "fp8 TFLOP/s",
            "link, GB/s",
            "host, GB/s",
            "$/hour",
            "TDP, W",
            "step times",
        ),
        rows,
    )


def _evidence(gpu: GPU) -> str:
    """What the GPU's step times rest on."""
    text = measured_text(gpu)
    return f"{text}, of one dense model" if text == FEW_RUNS else text


def _models() -> str:
    packed = Counter(quantized_names().values())
    rows = []
    for name in model_names():
        arch = load_model(name)
        total, active = total_parameters(arch), active_parameters(arch)
        rows.append(
            (
                name,
                arch.model_type,
                f"{total / 1e9:.1f}",
                f"{active / 1e9:.1f}" if active < total else "",
                f"{arch.max_position_embeddings:,}",
                str(packed[name] or ""),
            )
        )
    return table(("model", "type", "parameters, B", "active, B", "longest context", "packed checkpoints"), rows)


def _builds() -> str:
    rows = [
        (
            ", ".join(build.owners),
            ", ".join(f"`{ending}`" for ending in build.endings if ending) or "as the model's",
            ", ".join(f"`{each}…`" for each in build.models) or "any",
            build.like,
        )
        for build in builds()
    ]
    return table(("publisher", "the name ends in", "models", "packed like"), rows)
