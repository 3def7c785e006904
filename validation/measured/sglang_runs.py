"""Settings of public closed-loop runs of real SGLang on real GPUs, with how each is simulated.

`silicon_sample.csv` of a clone of github.com/ai-dynamo/aiconfigurator (2026-08, Apache-2.0): InferenceMAX's runs of
DeepSeek-R1 and NVIDIA's own of Qwen3-32B, Qwen3-235B and Llama-3.1-8B. Repeats are reduced to their median.
DeepSeek-V3 in it is the same runs of R1 under another name.

Of InferenceMAX's the launch scripts are public (SemiAnalysisAI/InferenceX, validation/single_node, 2026-03).
Of NVIDIA's nothing but the table is: SGLang's defaults are taken. Its clients of SGLang 0.5.1 sent prompts of one
length and got answers of one length: they stay in step, and the measured TTFT does not depend on the answers' length.
Where it does, lengths differ by an unknown amount: 5 % is taken, as of NVIDIA's runs of vLLM, and TTFT is not judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from calibrate.check.replay import client_lag_s
from kvcache.models.catalog import find_gpu
from simulator.deployment import resolve
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.results import request_times
from simulator.simulation import Simulation
from validation.measured.closed_loops import PROMPTS_PER_CLIENT
from validation.measured.launches import LENGTH_SPREAD
from validation.measured.settings import GPUS, KEYS, Setting
from workloads.requests import RequestTable
from workloads.synthetic import closed_load

FILE: Final = Path("aic-core/src/aiconfigurator_core/systems/silicon_sample.csv")
R1: Final = "deepseek-ai/DeepSeek-R1"
IN_STEP, DRIFTING = 1.0, 0.95  # lengths of NVIDIA's clients
WARM_SINCE = "2026-01-21"  # InferenceX pull request 480: its client warms the server up, whose first batches compile
MOST_GPUS = 8
_NOT_LOOKED_AT = ("Qwen/Qwen3.5-397B-A17B", "zhipuai/GLM-5")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What of a setting is judged."""

    ttft: bool
    spread: float  # shortest over longest request


def read_sglang_settings(clone: Path) -> tuple[list[Setting], dict[str, int]]:
    """The settings that a simulation can express, with how many rows were left out for which reason."""
    rows = pd.read_csv(clone / FILE)
    rows = rows[rows["backend"] == "sglang"]
    rows = rows.assign(model_path=rows["model_path"].replace("deepseek-ai/DeepSeek-V3", R1))
    source = rows["silicon_data_source"]
    measured = source.str.extract(r"measured=(\d{4}-\d\d-\d\d)")[0]
    concurrency = source.str.extract(r"silicon_concurrency=(\d+)")[0].astype(float)
    skipped = {
        "disaggregated prefill/decode": rows["mode"] != "agg",
        "Qwen3.5-397B and GLM-5, which could not be simulated then": rows["model_path"].isin(_NOT_LOOKED_AT),
        "expert parallelism, or more than 8 GPUs": (rows["moe_ep_size"].fillna(1) > 1) | (rows["tp_size"] > MOST_GPUS),
        "the client did not warm the server up": measured < WARM_SINCE,
        "more clients than the launch script lets run": concurrency > _most_clients(rows),
    }
    kept, counts = pd.Series(True, index=rows.index), {}
    for reason, mask in skipped.items():
        counts[reason] = int((kept & mask).sum())
        kept &= ~mask
    rows = rows[kept]
    table = pd.DataFrame(
        {
            "model": rows["model_path"],
            "gpu": rows["system"].map(GPUS),
            "precision": rows["precision"].astype(object).fillna("native"),
            "tp": rows["tp_size"].astype(int),
            "dp": 1,
            "ep": 1,
            "version": rows["backend_version"],
            "isl": rows["isl"],
            "osl": rows["osl"],
            "concurrency": concurrency[kept].astype(int),
            "ttft_s": rows["silicon_ttft_ms"] / 1e3,
            "tpot_s": rows["silicon_tpot_ms"] / 1e3,
            "script": "",
        }
    )
    medians = table.groupby(list(KEYS), as_index=False).median()
    return [Setting(**{str(key): value for key, value in row.items()}) for row in medians.to_dict("records")], counts


def _most_clients(rows: pd.DataFrame) -> "pd.Series[float]":
    is_b200 = (rows["model_path"] == R1) & (rows["system"] != "h200_sxm")
    return pd.Series(np.where(is_b200, np.where(rows["tp_size"] == 4, 32, 128), np.inf), index=rows.index)


def arguments_of(setting: Setting) -> SGLangArgs:
    """How the public launch scripts start SGLang for this run; defaults where there is none."""
    launch: Mapping[str, Any] = {}
    if setting.model == R1 and setting.gpu == "h200-sxm":  # dsr1_fp8_h200.sh
        most = 512 if (setting.isl, setting.osl) == (1024, 1024) else 256
        launch = _launch(most, 0.82, 32768)
    elif setting.model == R1 and setting.tp == 8:  # dsr1_fp8_b200.sh, dsr1_fp8_b300.sh
        launch = _launch(128, 0.82, 32768) | {"kv_cache_dtype": "fp8_e4m3"}
    elif setting.model == R1:
        launch = _launch(32, 0.95, 8192) | {"kv_cache_dtype": "fp8_e4m3"}
    quantization = "fp8-block" if setting.model == "meta-llama/Llama-3.1-8B-Instruct" else None
    return SGLangArgs(tensor_parallel_size=setting.tp, quantization=quantization, **launch)


def _launch(most: int, share: float, chunk: int) -> dict[str, Any]:
    return {
        "max_running_requests": most,
        "cuda_graph_max_bs_decode": most,
        "mem_fraction_static": share,
        "chunked_prefill_size": chunk,
        "max_prefill_tokens": chunk,
        "disable_radix_cache": True,
    }


def judged(setting: Setting) -> Judged:
    """TTFT is not where lengths are in doubt, where a queue hangs on a KV pool that nobody logged, or on B200, B300.

    There `--scheduler-recv-interval` of 10 or 30 lets requests wait for that many decode batches.
    """
    if setting.model == R1:
        return Judged(ttft=setting.gpu == "h200-sxm", spread=LENGTH_SPREAD)
    is_in_step = setting.model == "Qwen/Qwen3-32B"
    return Judged(ttft=is_in_step and setting.tp > 1, spread=IN_STEP if is_in_step else DRIFTING)


def _load(setting: Setting) -> RequestTable:
    count, spread = PROMPTS_PER_CLIENT * setting.concurrency, judged(setting).spread
    lengths = {"input_len": setting.isl, "output_len": setting.osl, "length_spread": spread}
    table = closed_load(concurrency=setting.concurrency, num_requests=count, **lengths)
    if setting.model != R1:
        return table
    drawn = np.random.RandomState(0)  # InferenceMAX's client: prompts first
    prompts, outputs = (
        drawn.randint(int(nominal * spread), nominal + 1, size=count).astype(np.int32)
        for nominal in (setting.isl, setting.osl)
    )
    return replace(table, prompt_tokens=prompts, output_tokens=outputs)


def simulate(setting: Setting) -> tuple[float, float]:
    """Mean TTFT with mean TPOT, in seconds, as clients see them, with vLLM's constants of the GPU."""
    found = resolve(setting.model, setting.gpu, arguments_of(setting))
    known = latency_model(found.served, constants=constants_for(find_gpu(setting.gpu)))
    simulation = Simulation(replace(found, latency=known).fleet(1, "least-outstanding"), _load(setting))
    simulation.run()
    times = request_times(simulation.requests)
    lag_s = client_lag_s("vllm bench serve" if setting.model == R1 else "aiperf", setting.concurrency)
    return float(times.ttft_s.mean()) + lag_s, float(np.nanmean(times.tpot_s))
