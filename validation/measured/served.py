"""What our own servers showed: lone prompts, and a chat load, on one H100 with vLLM 0.26.0 (`measured/h100_served`).

Prompts were sent as token ids, so no text was tokenized: an id takes TOKEN_ID_S of the API server's time, whose
detokenizer decodes the whole prompt before the first token of the answer.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.measured_run import MeasuredRun
from simulator.latency.gpu_constants import Constants
from simulator.latency.step_time import TOKEN_ID_S

FOLDER = Path("measured") / "h100_served"
SERVER = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100-sxm", "vllm_version": "0.26.0"}
OPTIONS = {**SERVER, "tensor_parallel_size": 1}
FORMATS = {
    "lone_prompts_bf16.json": {},
    "lone_prompts_fp8_weights_and_kv.json": {"quantization": "fp8", "kv_cache_dtype": "fp8"},
}
TOKEN_IDS = "a client that sends token ids"
LATE = 1024  # prompt tokens: beyond, that moves TPOT over 16 tokens by more than 1 %
APART_S = 10.0  # of a lone prompt to the next


def lone_prompts(data: Path) -> Iterator[MeasuredRun]:
    """The prompts of each length and format that were sent alone: a run of its own, its repeats told by medians."""
    for name, settings in FORMATS.items():
        rows = pd.DataFrame(json.loads((data / FOLDER / name).read_text(encoding="utf-8")))
        for (prompt, output), same in rows.groupby(["input", "out"]):
            tpot_s = ((same["e2e"] - same["ttft"]) / (output - 1)).median()
            requests = pd.DataFrame(
                {
                    "arrival_s": APART_S * np.arange(len(same)),
                    "prompt_tokens": prompt,
                    "output_tokens": output,
                    "ttft_s": same["ttft"],
                    "e2e_s": same["e2e"],
                    "cached_tokens": 0,
                    "session": np.arange(len(same)),
                }
            ).reset_index(drop=True)
            yield MeasuredRun(
                source=Path(f"{Path(name).stem} {prompt} {output}"),
                tool=TOKEN_IDS,
                requests=requests,
                options={**OPTIONS, **settings},
                aggregates={"ttft_s.mean": same["ttft"].median(), "tpot_s.mean": tpot_s},
            )


def is_late(run: MeasuredRun) -> bool:
    """Whether the detokenizer holds the first token back so long that TPOT looks shorter than a step."""
    assert run.requests is not None
    return run.tool == TOKEN_IDS and bool((run.requests["prompt_tokens"] > LATE).any())


def without_text(constants: Constants) -> Constants:
    """The constants where prompts are sent as token ids."""
    return replace(constants, ingress_token_s=TOKEN_ID_S)
