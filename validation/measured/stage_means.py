"""Stages of H100 runs of which only mean latencies are known, as loads of the same kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.measured_run import MeasuredRun
from validation.measured.request_logs import H100_PROMPTS, SAMPLED_WITH_TOP_P, found_in_cache
from workloads.synthetic import open_load

# question, output, system prompt tokens; seconds, requests/s of each stage; system prompts: data README,
# h100_experiments; roleplay's system prompts are taken to be as many as codegen's
LOADS = {
    "general": (447, 248, 100, ((600, 8), (600, 20)), 9),
    "codegen": (466, 247, 100, ((600, 5), (600, 10)), 11),
    "roleplay": (600, 251, 150, ((1200, 6),), 11),
}
TEMPLATE_TOKENS = 27  # recorded prompts are longer than question and system prompt by so many


def stages_of_means(data: Path) -> tuple[list[MeasuredRun], int]:
    """Stages of H100 runs of which only means are known, as a load of the same kind; how many are left out."""
    table = pd.read_csv(data / "measured" / "h100_aggregates_by_stage.csv")
    whole = table[(table["subset"] == "all") & (table["stage_index"] >= 0)]
    own = set(pd.read_csv(data / "measured" / "h100_experiments.csv")["experiment"])
    known = whole[
        whole["workload"].isin(LOADS) & ~whole["exp"].str.contains("-lite") & ~whole["exp"].isin(own)
    ].drop_duplicates(["exp", "stage_index"])
    return [_stage_run(row) for row in known.itertuples()], len(whole) - len(known)


def _stage_run(row: Any) -> MeasuredRun:
    question, output, system, stages, system_prompts = LOADS[row.workload]
    duration_s, rate = stages[int(row.stage_index)]
    prompt = question + system + TEMPLATE_TOKENS
    count = duration_s * rate
    load = open_load(rate_per_s=rate, num_requests=count, input_len=prompt, output_len=output)
    sent = np.arange(count) + sum(seconds * known for seconds, known in stages[: int(row.stage_index)])
    requests = pd.DataFrame(
        {
            "arrival_s": load.arrival_s,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "ttft_s": np.nan,
            "e2e_s": np.nan,
            "cached_tokens": found_in_cache(sent, prompt, system, system_prompts),
            "session": sent % H100_PROMPTS,
        }
    )
    options: dict[str, Any] = {
        "model": row.model,
        "gpu": "h100-sxm",
        "tensor_parallel_size": int(row.tp),
        "max_num_seqs": 128,
        "max_num_batched_tokens": int(row.max_num_batched_tokens),
        "max_model_len": 4096,
        "gpu_memory_utilization": float(row.gpu_mem_util) if np.isfinite(row.gpu_mem_util) else 0.9,
        "vllm_version": "0.15.1",
        "top_p_sampling": row.model in SAMPLED_WITH_TOP_P,
    }
    aggregates = {
        "ttft_s.mean": row.ttft_mean_ms / 1e3,
        "tpot_s.mean": (row.e2e_mean_ms - row.ttft_mean_ms) / 1e3 / (output - 1),
        "e2e_s.mean": row.e2e_mean_ms / 1e3,
    }
    name = Path(f"{row.exp} at {rate}/s")
    return MeasuredRun(
        source=name, tool="inference-perf", load={"rate": rate}, options=options, requests=requests,
        aggregates=aggregates,
    )  # fmt: skip
