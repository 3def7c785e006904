"""Settings of public closed-loop runs of real vLLM on real GPUs, with their measured latencies.

`measured/silicon_vllm_runs.csv`: InferenceMAX runs and NVIDIA's own, as shipped with aiconfigurator-core. What a row
leaves blank is assumed:

* backend version: 0.10.2, whose image InferenceMAX's workflows name until 2025-11-04 (.github/workflows/70b-tmpl.yml,
  gptoss-tmpl.yml; commit 7103d66 took 0.11.0); of a nightly build: 0.19.0;
* precision: the checkpoint's own (Qwen3-32B: bf16).

What it says of expert and attention parallelism is what a configuration asked for, multiplied up since 2026-03-27:
tp 4 with ep 4 became attention_dp_size 4 and moe_ep_size 16. What ran follows from the public configurations
(SemiAnalysisAI/InferenceX, .github/configs/nvidia-master.yaml) and from which of them each launch script reads.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

RUNS_FILE = Path("measured") / "silicon_vllm_runs.csv"
BLANK_VERSION, NIGHTLY_VERSION = "0.10.2", "0.19.0"
KEYS = ("model", "gpu", "precision", "tp", "dp", "ep", "version", "isl", "osl", "concurrency", "script")
TF32_SCRIPT = "2026-04-21"
# Model, GPU, precision: from when on another launch script started the same release (InferenceX, pull requests 1047,
# 1068, 1069, 1106, 1107; validation/single_node/minimaxm2.5_fp4_b200.sh, commit a9c1992).
CHANGED_SCRIPTS = {
    ("moonshotai/Kimi-K2.5", "b200_sxm", "fp4"): ("2026-04-20",),
    ("MiniMaxAI/MiniMax-M2.5", "b200_sxm", "fp4"): ("2026-04-07", TF32_SCRIPT),
    ("MiniMaxAI/MiniMax-M2.5", "b200_sxm", "fp8"): (TF32_SCRIPT,),
    ("MiniMaxAI/MiniMax-M2.5", "b300_sxm", "fp4"): (TF32_SCRIPT,),
    ("MiniMaxAI/MiniMax-M2.5", "b300_sxm", "fp8"): (TF32_SCRIPT,),
}
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
    script: str = ""  # since when it was in use, of a deployment whose launch script changed

    @property
    def gpus(self) -> int:
        return self.tp * self.dp

    @property
    def group(self) -> tuple[str | int, ...]:
        """Of one deployment."""
        changed = (self.script,) if self.script else ()
        return self.model, self.gpu, self.version, self.precision, self.tp, self.dp, self.ep, *changed

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
    gpus = np.maximum(rows["tp_size"], rows["moe_tp_size"].fillna(1)).astype(int)
    is_data_parallel = _attends_in_parallel(rows)
    deployments = zip(rows["model_path"], rows["system"], rows["precision"], strict=True)
    scripts = [
        max((since for since in CHANGED_SCRIPTS.get(name, ()) if since <= day), default="")
        for name, day in zip(deployments, _days(rows), strict=True)
    ]
    table = pd.DataFrame(
        {
            "model": rows["model_path"],
            "gpu": rows["system"].map(GPUS),
            "precision": rows["precision"].fillna("native"),
            # Qwen3-235B lists attention replicas as tp_size 1 under experts over 2 or 4 GPUs.
            "tp": gpus.where(~is_data_parallel, 1),
            "dp": gpus.where(is_data_parallel, 1),
            "ep": gpus.where(_splits_experts(rows), 1),
            "version": version.where(~version.str.startswith("nightly"), NIGHTLY_VERSION),
            "isl": rows["isl"],
            "osl": rows["osl"],
            "concurrency": rows["concurrency"].astype(int),
            "ttft_s": rows["silicon_ttft_ms"] / 1e3,
            "tpot_s": rows["silicon_tpot_ms"] / 1e3,
            "script": scripts,
        }
    )
    medians = table.groupby(list(KEYS), as_index=False).median()
    return [Setting(**{str(key): value for key, value in row.items()}) for row in medians.to_dict("records")], counts


def _days(rows: pd.DataFrame) -> "pd.Series[str]":
    """When they were measured; empty where the list does not say."""
    return rows["measured"].fillna("").str[:10]


def _splits_experts(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Whether experts are dealt out whole: Kimi's launch scripts do not read what a configuration asks for."""
    return (rows["moe_ep_size"].fillna(1) > 1) & (rows["model_path"] != "moonshotai/Kimi-K2.5")


def _attends_in_parallel(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Whether each GPU attends for itself: MiniMax's fp4 scripts read `dp-attn`, set from 256 clients on at last."""
    asked = (rows["tp_size"] == 2) & (rows["moe_ep_size"] > 1) & (rows["concurrency"] >= 256)
    asked &= (rows["isl"] == 1024) | (rows["system"] == "b300_sxm")
    return (
        asked
        & (rows["model_path"] == "MiniMaxAI/MiniMax-M2.5")
        & (rows["precision"] == "fp4")
        & (_days(rows) >= TF32_SCRIPT)
    )
