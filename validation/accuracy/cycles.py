"""How far step times are from measured engine cycles of three H100 runs.

Context is not recorded: 575 or 593 prompt tokens and half the output per sequence, as the runs' requests have them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.fit.steps import Steps, errors_percent, fit_steps, held_out, steps_of
from calibrate.recording import Recording
from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model

CYCLE_MODELS = {
    "llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "llama-2-70b-hf": "meta-llama/Llama-2-70b-hf",
    "codellama-34b": "codellama/CodeLlama-34b-Instruct-hf",
}


def cycle_steps(data: Path) -> dict[str, Steps]:
    """Engine cycles of three H100 runs, by run."""
    table = pd.read_parquet(data / "measured" / "h100_step_cycles.parquet").sort_values(["experiment_id", "step_id"])
    found = {}
    for name, rows in table.groupby("experiment_id"):
        decodes, prefills = (rows[f"batch_num_{kind}_reqs"].astype(float) for kind in ("decode", "prefill"))
        prefill_tokens = rows["batch_prefill_tokens"].astype(float)
        prompt, output = (593, 247) if "codegen" in str(name) else (575, 248)
        context = decodes * (prompt + output / 2)
        steps = pd.DataFrame(
            {
                "cycle_s": rows["cycle_us"].astype(float) / 1e6,
                "tokens": rows["batch_scheduled_tokens"].astype(float),
                "sequences": decodes + prefills,
                "sampled": decodes + prefills,
                "decode_context": context,
                "window_context": context,
                "prefill_tokens": prefill_tokens,
                "prefill_work": prefill_tokens * prompt / 2,
                "window_prefill_work": 0.0,
            }
        )
        served = served_model(
            architecture=load_model(CYCLE_MODELS[rows["model"].iloc[0]]),
            gpu=find_gpu("h100-sxm"),
            tensor_parallel_size=int(rows["tp"].iloc[0]),
            max_num_batched_tokens=2048,
            max_num_seqs=128,
            vllm_version="0.15.1",
        )
        found[str(name)] = steps_of(Recording(options={}, environment={}, steps=steps), served)
    return found


def judge_cycles(data: Path) -> Iterator[dict[str, Any]]:
    """Errors on stretches of steps held out, of a fit to the rest of the same run, and to the other runs."""
    runs = cycle_steps(data)
    base = constants_for(find_gpu("h100-sxm"))
    for name, steps in runs.items():
        figures = held_out([steps], fit_steps([steps])).figures()
        others = fit_steps([other for key, other in runs.items() if key != name]).posterior.constants(base)
        yield {
            "run": name,
            "steps": len(steps),
            "decode_steps": int((steps.sums["prefill_tokens"] == 0).sum()),
            "shipped_decode_mean": float(np.abs(errors_percent([steps], base, kind="decode")).mean()),
            "others_decode_mean": float(np.abs(errors_percent([steps], others, kind="decode")).mean()),
            "decode_mean": figures["decode_mean_percent"],
            "decode_median": figures["decode_median_percent"],
            "prefill_median": figures["prefill_median_percent"],
            "binned_mean": _binned_error(steps),
        }


def _binned_error(steps: Steps) -> float:
    """What no model of the batch can beat by much: each decode step against the median of like ones, it included."""
    decode = steps.sums["prefill_tokens"] == 0
    measured = pd.Series(steps.measured_s[decode])
    middle = measured.groupby(steps.sums["sequences"][decode] // 4).transform("median")
    return 100 * float((middle / measured - 1).abs().mean())


def cycles(data: Path) -> dict[str, Any]:
    """Every run: shipped, fitted to the others, fitted to other stretches of the same; decode steps together."""
    rows = list(judge_cycles(data))
    counts = np.array([row["decode_steps"] for row in rows])
    names = ("shipped_decode_mean", "others_decode_mean", "decode_mean", "binned_mean")
    return {"rows": rows, "all": {name: float(counts @ [row[name] for row in rows] / counts.sum()) for name in names}}
