"""Tables of measured kernel times, by GPU, family of kernels and release."""

from pathlib import Path

import pandas as pd

from kvcache.releases import precedes, release_key

FOLDER = Path("measured") / "op_tables"
GPUS = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "l40s": "l40s",
}


def available(data: Path) -> list[str]:
    """The tables' names of the GPUs that are there. Raises ValueError where none is."""
    found = [name for name in GPUS if (data / FOLDER / name).is_dir()]
    if not found:
        raise ValueError(f"no kernel tables in {data / FOLDER}; give the folder that holds {FOLDER}/<gpu>/<family>")
    return found


def read_table(data: Path, gpu: str, family: str, name: str, *, before: str | None = None) -> pd.DataFrame | None:
    """The newest release's table, or that before a release, with times in seconds; None where there is none."""
    files = sorted(
        (data / FOLDER / gpu / family / "vllm").glob(f"*/{name}_perf.parquet"),
        key=lambda path: release_key(path.parent.name),
    )
    if before is not None:
        files = [path for path in files if precedes(path.parent.name, before)]
    if not files:
        return None
    table = pd.read_parquet(files[-1])
    table["measured_s"] = table["latency"] / 1e3
    return table[table["measured_s"] > 0]


def releases(data: Path, gpu: str, family: str) -> list[str]:
    return [path.name for path in (data / FOLDER / gpu / family / "vllm").glob("*")]
