"""`headcount gpus`: what is known by name."""

from dataclasses import asdict

import click

from headcount.cli.command import Command
from headcount.cli.option_types import flag
from headcount.cli.output import listing
from headcount.text.units import GIB, dollars
from kvcache.models.catalog import find_gpu, gpu_names


@click.command("gpus", cls=Command)
@flag("--json as_json", "Print one JSON object on stdout, with all sources.")
def command(as_json: bool) -> int:
    """List the GPUs known by name, with memory, bandwidth, FLOP/s, interconnect and price."""
    found = [find_gpu(name) for name in gpu_names()]
    rows = [
        (
            gpu.name,
            f"{gpu.memory_bytes / GIB:.1f} GiB",
            f"{gpu.memory_bandwidth_bytes_per_s / 1e12:.2f} TB/s",
            " ".join(f"{name} {value / 1e12:,.0f}" for name, value in gpu.flops_per_s.items()),
            f"{gpu.interconnect_title} {gpu.interconnect_bytes_per_s / 1e9:,.0f} GB/s",
            dollars(gpu.usd_per_hour),
        )
        for gpu in found
    ]
    columns = ("GPU", "memory", "bandwidth", "dense TFLOP/s", "interconnect, one way", "$/hour")
    return listing("gpus", [asdict(gpu) for gpu in found], columns, rows, as_json=as_json)
