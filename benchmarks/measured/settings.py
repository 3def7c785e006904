"""Settings of public closed-loop runs of real vLLM on real GPUs, with their measured latencies.

`measured/silicon_vllm_runs.csv`: InferenceMAX runs and NVIDIA's own, as shipped with aiconfigurator-core. What a row
leaves blank is assumed:

* backend version: 0.11.0 (Llama-3.1-70B was measured in 2025-10, others are few); of a nightly build: 0.19.0;
* precision: the checkpoint's own (Qwen3-32B: bf16);
* attention_dp_size: 1. With attention data parallelism, one GPU per attention rank, experts over all of them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

RUNS_FILE = Path("measured") / "silicon_vllm_runs.csv"
BLANK_VERSION, NIGHTLY_VERSION = "0.11.0", "0.19.0"
KEYS = ("model", "gpu", "precision", "tp", "dp", "ep", "version", "isl", "osl", "concurrency")
GPUS = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
}
FORMATS = {"fp8": "fp8", "fp4": "nvfp4", "int4": "int4-experts"}


@dataclass(frozen=True)
class Setting:
    """One measured setting, its repeats reduced to their median."""

    model: str
    gpu: str
    precision: str
    tp: int
    dp: int
    ep: int
    version: str
    isl: int
    osl: int
    concurrency: int
    ttft_s: float
    tpot_s: float

    @property
    def gpus(self) -> int:
        return self.tp * self.dp

    @property
    def group(self) -> tuple[str, str, str, str, int, int, int]:
        return self.model, self.gpu, self.version, self.precision, self.tp, self.dp, self.ep

    @property
    def quantization(self) -> str | None:
        """The format's name; None for the checkpoint's own."""
        if self.model == "openai/gpt-oss-120b":
            return "mxfp4"
        return FORMATS.get(self.precision)


def read_settings(data: Path) -> tuple[list[Setting], dict[str, int]]:
    """The settings that a simulation can express, with how many rows were left out for which reason."""
    rows = pd.read_csv(data / RUNS_FILE)
    skipped = {
        "disaggregated": rows["mode"] != "agg",
        "no concurrency": rows["concurrency"].isna(),
        "pipeline parallelism": rows["pp_size"].fillna(1) > 1,
    }
    kept, counts = pd.Series(True, index=rows.index), {}
    for reason, mask in skipped.items():
        counts[reason] = int((kept & mask).sum())
        kept &= ~mask
    rows = rows[kept]
    version = rows["backend_version"].fillna(BLANK_VERSION)
    # The list gives attention-parallel runs tp_size = attention_dp_size = GPUs: each attends on one GPU.
    dp = rows["attention_dp_size"].fillna(1).astype(int)
    table = pd.DataFrame(
        {
            "model": rows["model_path"],
            "gpu": rows["system"].map(GPUS),
            "precision": rows["precision"].fillna("native"),
            # Qwen3-235B lists attention replicas as tp_size 1 under experts over 2 or 4 GPUs.
            "tp": (np.maximum(rows["tp_size"], rows["moe_tp_size"].fillna(1)) // dp).astype(int),
            "dp": dp,
            "ep": rows["moe_ep_size"].fillna(1).clip(lower=1).astype(int),
            "version": version.where(~version.str.startswith("nightly"), NIGHTLY_VERSION),
            "isl": rows["isl"],
            "osl": rows["osl"],
            "concurrency": rows["concurrency"].astype(int),
            "ttft_s": rows["silicon_ttft_ms"] / 1e3,
            "tpot_s": rows["silicon_tpot_ms"] / 1e3,
        }
    )
    medians = table.groupby(list(KEYS), as_index=False).median()
    return [Setting(**{str(key): value for key, value in row.items()}) for row in medians.to_dict("records")], counts
