"""Fits `simulator/latency/all_to_all.toml` to measured times of DeepEP's kernels, and prints it with its errors.

    python -m validation.constants.all_to_all --data DATA

A kernel takes the longer of a floor and a start with what a rank sends the other seven of its server over NVLink.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from simulator.latency.all_to_all import FP8_BYTES, reached
from simulator.latency.step_time import FloatArray
from validation.constants.kernel_tables.tables import FOLDER
from validation.markdown import table

FAMILIES = {"hopper": ("h100_sxm", "h200_sxm"), "blackwell": ("b200_sxm",)}
KERNELS = {"deepep_low_latency": "deepep_ll", "deepep_high_throughput": "deepep_ht"}
PHASES = {"dispatch": FP8_BYTES, "combine": 2.0}
FILE = "comm/vllm/0.24.0/moe_a2a_perf.parquet"
RANKS = 8


def sent_bytes(rows: pd.DataFrame, backend: str, element: float) -> FloatArray:
    """What a rank sends the others: a token to each of its experts, or once to each GPU."""
    by_chosen = {int(chosen): float(chosen) for chosen in rows["topk"].unique()}
    if backend == "deepep_high_throughput":
        by_chosen = {chosen: reached(RANKS, chosen) for chosen in by_chosen}
    copies = rows["topk"].map(by_chosen).to_numpy(float) * (RANKS - 1) / RANKS
    return np.asarray(rows["num_tokens"].to_numpy(float) * copies * rows["hidden_size"].to_numpy(float) * element)


def fitted(sent: FloatArray, measured_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Floor, start, bytes a second; and by what share each row is missed."""

    def residuals(logs: FloatArray) -> FloatArray:
        floor_s, start_s, rate = np.exp(logs)
        return np.asarray(np.log(np.maximum(floor_s, start_s + sent / rate) / measured_s))

    starts = (np.log([5e-5, 3e-5, rate]) for rate in (1e11, 2e11, 4e11))
    tried = [least_squares(residuals, start, loss="soft_l1", f_scale=0.1) for start in starts]
    best = min(tried, key=lambda found: float(found.cost))
    return np.exp(best.x), np.abs(np.expm1(residuals(best.x)))


def page_table(data: Path) -> str:
    """The constants with their errors, as Markdown."""
    rows = []
    for family, gpus in FAMILIES.items():
        times = pd.concat([pd.read_parquet(data / FOLDER / gpu / FILE) for gpu in gpus])
        for backend, kernel in KERNELS.items():
            for phase, element in PHASES.items():
                own = times[(times["comm_backend"] == kernel) & (times["phase"] == phase)]
                found, errors = fitted(sent_bytes(own, backend, element), own["latency"].to_numpy(float) * 1e-6)
                rows.append(
                    [
                        family, backend, phase, f"{found[0] * 1e6:.0f} µs", f"{found[1] * 1e6:.0f} µs",
                        f"{found[2] / 1e9:.0f} GB/s", f"{len(own)}", f"{np.median(errors):.0%}",
                        f"{np.quantile(errors, 0.9):.0%}",
                    ]
                )  # fmt: skip
    heads = ["family", "kernels", "way", "at least", "start", "rate", "times", "median error", "90 % within"]
    return table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the times of DeepEP's kernels.")
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    print(page_table(parser.parse_args().data))


if __name__ == "__main__":
    main()
