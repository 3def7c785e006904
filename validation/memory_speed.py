"""How fast memory is planned: `python -m validation.memory_speed [--gpus N] [--command] [--json]`.

Every catalog model on the first N GPUs of the catalog at TP 1, 2, 4 and 8, one thread, nothing kept between budgets;
splits that vLLM refuses count as budgets, since finding that out is the same work. With --command also
`headcount memory` in a process of its own, start to end, on every model: what a person waits for.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from kvcache.models.catalog import find_gpu, gpu_names, load_model, model_names
from simulator.engines.memory import memory_budget

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Sweep:
    """What was planned in how many seconds."""

    models: int
    gpus: int
    budgets: int
    fitting: int
    refused: int
    catalog_s: float
    sweep_s: float

    @property
    def budgets_per_s(self) -> float:
        return self.budgets / self.sweep_s


def sweep(num_gpus: int | None = None) -> Sweep:
    """Plan the whole catalog; `num_gpus` None for every GPU."""
    begun = time.perf_counter()
    models = [load_model(name) for name in model_names()]
    gpus = [find_gpu(name) for name in gpu_names()[:num_gpus]]
    read = time.perf_counter()
    budgets = fitting = refused = 0
    for model in models:
        for gpu in gpus:
            for size in TENSOR_PARALLEL_SIZES:
                budgets += 1
                try:
                    fitting += memory_budget(model, gpu, tensor_parallel_size=size).fits
                except ValueError:
                    refused += 1
    ended = time.perf_counter()
    return Sweep(len(models), len(gpus), budgets, fitting, refused, read - begun, ended - read)


def command_seconds() -> dict[str, tuple[float, float]]:
    """`headcount memory` per model, a process each: wall time, processor time. They differ on a busy machine."""
    found = {}
    for name in model_names():
        begun, used = time.perf_counter(), _processor_s()
        line = ("memory", "--model", name, "--gpu", "h100-sxm")
        program = "from headcount.cli.main import main; main()"
        subprocess.run([sys.executable, "-c", program, *line], capture_output=True, check=False)
        found[name] = (time.perf_counter() - begun, _processor_s() - used)
    return found


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, help="how many GPUs of the catalog; all by default")
    parser.add_argument("--command", action="store_true", help="also time the command, model by model")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    arguments = parser.parse_args()
    found = sweep(arguments.gpus)
    seconds = command_seconds() if arguments.command else {}
    if arguments.json:
        times = {name: dict(zip(("wall_s", "processor_s"), both, strict=True)) for name, both in seconds.items()}
        rate = {"budgets_per_s": found.budgets_per_s, "command": times}
        print(json.dumps({"schema_version": 1, **asdict(found), **rate}, indent=2))
        return
    print(
        f"{found.models} models × {found.gpus} GPUs × TP 1, 2, 4, 8; reading the catalog took {found.catalog_s:.2f} s"
    )
    print(
        f"{found.budgets:,} budgets in {found.sweep_s:.2f} s ({found.budgets_per_s:,.0f} per second): "
        f"{found.fitting:,} fit, {found.refused:,} refused"
    )
    for index, kind in enumerate(("wall", "processor") if seconds else ()):
        times = {name: both[index] for name, both in seconds.items()}
        slowest = max(times, key=lambda name: times[name])
        print(
            f"headcount memory, {kind} time: median {statistics.median(times.values()):.2f} s, "
            f"slowest {times[slowest]:.2f} s ({slowest})"
        )


if __name__ == "__main__":
    main()
