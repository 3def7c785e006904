"""Request logs of real servers: inference-sim on H100, LLMServingSim on RTX GPUs.

What they do not record is assumed. H100: the client names no temperature (kubernetes-sigs/inference-perf,
apis/completion.py), so requests sample as the model's generation_config.json says (SAMPLED_WITH_TOP_P); outputs are as
long as asked for, since the recorded ones are counted in the answer's text and fall short; the client sends 100 prompts
in turn, each found in the prefix cache from the second time on; stages of one run are runs of their own, since their
rates differ. RTX: requests start when vLLM queued them.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.check.replay import Replay, replay
from calibrate.measured_run import MeasuredRun

H100 = {"max_num_seqs": 128, "max_num_batched_tokens": 2048, "max_model_len": 4096, "vllm_version": "0.15.1"}

# Models whose generation_config.json names top_p or top_k, which holds where a request names none: public start-up logs
# of vLLM 0.19 print it for Llama-3.1-8B, Llama-4 Scout, Qwen2.5-7B and Qwen3-8B (llm-d-planner, Apache-2.0). Of
# Qwen3-14B and Llama-2 it is assumed; the runs of Llama-2-7B would fit better without.
SAMPLED_WITH_TOP_P = frozenset(
    {
        "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-70b-hf", "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-14B", "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic",
    }
)  # fmt: skip

BLOCK = 16  # tokens, vLLM's default
# That the client sends in turn: in all eight logs the same lengths come back in the same order after so many requests.
# Neighbours that came within a millisecond may have changed places.
H100_PROMPTS = 100


def h100_runs(data: Path) -> Iterator[MeasuredRun]:
    """Each stage of each H100 run; the overloaded `reasoning` runs are left out."""
    experiments = pd.read_csv(data / "measured" / "h100_experiments.csv")
    requests = pd.read_parquet(data / "measured" / "h100_requests.parquet")
    for experiment in experiments[experiments["profile"] != "reasoning"].itertuples():
        rows = requests[(requests["experiment"] == experiment.experiment) & ~requests["has_error"]]
        rows = rows.sort_values("arrival_time_us")
        arrival_s = rows["arrival_time_us"].to_numpy() / 1e6
        arrival_s = arrival_s - arrival_s[0]
        begin_s = 0.0
        load = json.loads(experiment.data)
        for stage in json.loads(experiment.stages):
            inside = (arrival_s >= begin_s) & (arrival_s < begin_s + stage["duration"])
            begin_s += stage["duration"]
            own = rows[inside]
            sent, prompt_tokens = (own[name].to_numpy() for name in ("index", "input_tokens"))
            table = pd.DataFrame(
                {
                    "arrival_s": arrival_s[inside] - arrival_s[inside][0],
                    "prompt_tokens": prompt_tokens,
                    "output_tokens": load["output_len"],
                    "ttft_s": own["ttft_s"].to_numpy(),
                    "e2e_s": own["e2e_s"].to_numpy(),
                    "cached_tokens": found_in_cache(
                        sent, prompt_tokens, load["system_prompt_len"], load["num_unique_system_prompts"]
                    ),
                    "session": sent % H100_PROMPTS,
                }
            )
            yield MeasuredRun(
                source=Path(f"{experiment.experiment[16:]} at {stage['rate']}/s"),
                tool="inference-perf",
                load={"rate": stage["rate"]},
                requests=table,
                options={
                    **H100,
                    "model": experiment.model,
                    "gpu": "h100-sxm",
                    "tensor_parallel_size": int(experiment.tp),
                    "num_gpu_blocks_override": int(experiment.kv_blocks_total_gpu),
                    "top_p_sampling": experiment.model in SAMPLED_WITH_TOP_P,
                },
            )


def found_in_cache(
    sent: NDArray[np.int64], prompt_tokens: NDArray[np.int64] | int, system_tokens: int, system_prompts: int
) -> NDArray[np.int64]:
    """Tokens of each prompt that the prefix cache holds, by its place in the order of sending.

    Until each of the client's H100_PROMPTS was sent once, it is the system prompt, or nothing with the first of each.
    Whole blocks are found, and never the last token.
    """
    first = np.where(sent < system_prompts, 0, system_tokens // BLOCK * BLOCK)
    return np.where(sent < H100_PROMPTS, first, (prompt_tokens - 1) // BLOCK * BLOCK)


def rtx_replays(data: Path) -> Iterator[Replay]:
    """The ShareGPT runs, each in the order in which vLLM queued its requests."""
    experiments = pd.read_csv(data / "measured" / "rtx_experiments.csv")
    requests = pd.read_parquet(data / "measured" / "rtx_requests.parquet")
    for experiment in experiments.itertuples():
        rows = requests[requests["config"] == experiment.config].sort_values("queued_ts")
        table = pd.DataFrame(
            {
                "arrival_s": (rows["queued_ts"] - rows["queued_ts"].iloc[0]).to_numpy(),
                "prompt_tokens": rows["input_toks"].to_numpy(),
                "output_tokens": rows["output_toks"].to_numpy(),
                "ttft_s": (rows["first_token_ts"] - rows["queued_ts"]).to_numpy(),
                "e2e_s": (rows["last_token_ts"] - rows["queued_ts"]).to_numpy(),
                "cached_tokens": np.nan,
                "session": np.nan,
            }
        )
        gpu = {"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000"}[experiment.gpu]
        options = {
            "model": experiment.model, "gpu": gpu, "max_num_seqs": int(experiment.max_num_seqs),
            "max_num_batched_tokens": int(experiment.max_num_batched_tokens), "vllm_version": "0.19.0",
            "max_model_len": int((rows["input_toks"] + rows["output_toks"]).max()) + 1,
        }  # fmt: skip
        run = MeasuredRun(source=Path(experiment.config), tool="vLLM", options=options, requests=table)
        yield replay(run)
