"""Power by what a step waits for, compared with the ML.ENERGY Leaderboard: `python -m validation.energy CLONE`.

CLONE is a clone of github.com/ml-energy/leaderboard (v3.0 of December 2025: vLLM 0.11.1 on H100 and B200). Of each of
its text runs, which keep a number of sequences running, the average step is taken apart by the latency model. Only
those whose step is simulated within STEP are fitted: what a step waits for is known of them.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from headcount.queries.energy import SHARES_OF_TDP, share_of_tdp
from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.forms.physical import latency_model
from simulator.latency.model import AverageStep, LatencyModel, breakdown, served_model

PROMPTS: Final = {"gpqa": 250, "lm-arena-chat": 150, "sourcegraph-fim": 1000}
"""Mean tokens of a prompt by task: judged, the leaderboard does not tell; answers are far longer in the first two."""
GPUS: Final = {"H100": "h100-sxm", "B200": "b200-sxm"}
STEP: Final = (0.75, 1.3)  # of the measured time
VLLM: Final = "0.11.1"
LONGEST, BATCHED_TOKENS, SEQUENCES = 32_768, 8_192, 4_096


@dataclass(frozen=True, kw_only=True)
class Run:
    """One configuration of the leaderboard; `drawn` is what a GPU draws, as a share of its TDP."""

    model: str
    gpu: str
    drawn: float
    seconds: dict[str, float]  # of the average step, by cause
    step_s: float  # measured

    @property
    def is_known(self) -> bool:
        return STEP[0] < sum(self.seconds.values()) / self.step_s < STEP[1]

    @property
    def parts(self) -> list[float]:
        """Shares of the step by what they draw: memory, compute, the rest."""
        kinds = sorted(set(SHARES_OF_TDP.values()))
        total = sum(self.seconds.values())
        return [
            sum(value for cause, value in self.seconds.items() if SHARES_OF_TDP[cause] == kind) / total
            for kind in kinds
        ]


def runs(clone: Path) -> Iterator[Run]:
    """All text runs without data parallelism whose model is known by name."""
    known: dict[tuple[object, ...], LatencyModel | None] = {}
    for task, prompt in PROMPTS.items():
        content = json.loads((clone / "public" / "data" / "tasks" / f"{task}.json").read_text(encoding="utf-8"))
        for found in content["configurations"]:
            tp = max(found["tensor_parallel"], found["expert_parallel"])  # of attention, which the table has as 1 then
            key = found["model_id"], found["gpu_model"], tp, found["expert_parallel"] > 1
            if key not in known:
                known[key] = _latency(*key)
            latency = known[key]
            if latency is not None and found["data_parallel"] == 1:
                yield _run(found, prompt, latency)


def _latency(model: str, gpu: str, tp: int, is_expert_parallel: bool) -> LatencyModel | None:
    try:
        served = served_model(
            load_model(model), find_gpu(GPUS[gpu]), tensor_parallel_size=tp,
            enable_expert_parallel=is_expert_parallel, max_model_len=LONGEST, max_num_batched_tokens=BATCHED_TOKENS,
            max_num_seqs=SEQUENCES, vllm_version=VLLM,
        )  # fmt: skip
        return latency_model(served)
    except ValueError as error:
        print(f"left out: {model} on {gpu}: {error}")
        return None


def _run(found: dict[str, Any], prompt: float, latency: LatencyModel) -> Run:
    running, answer = found["avg_batch_size"], found["avg_output_len"]
    prefill, context = running / answer * prompt, prompt + answer / 2
    step = AverageStep(
        tokens=running + prefill,
        sequences=running,
        sampled=running,
        decode_context=running * context,
        window_context=running * min(context, 1024),
        prefill_tokens=prefill,
        prefill_work=prefill * prompt / 2,
        prefill_share=min(running / answer, 1.0),
    )
    gpu = find_gpu(GPUS[found["gpu_model"]])
    assert gpu.tdp_watts is not None, "both GPUs have one"
    return Run(
        model=found["model_id"],
        gpu=gpu.name,
        drawn=found["avg_power_watts"] / found["num_gpus"] / gpu.tdp_watts,
        seconds=breakdown(latency, step),
        step_s=running / found["output_throughput_tokens_per_sec"],
    )


def fitted(found: list[Run]) -> NDArray[np.float64]:
    """Shares of the TDP of each kind of `Run.parts`."""
    values, _ = nnls(np.array([run.parts for run in found]), np.array([run.drawn for run in found]))
    return np.asarray(values)


def main() -> None:
    """Print the fit, its errors, and those of models that were left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    found = list(runs(parser.parse_args().clone))
    known = [run for run in found if run.is_known]
    print(f"{len(found)} runs, {len(known)} of them with a step within {STEP}")
    print("fitted shares, shipped:", fitted(known).round(2), sorted(set(SHARES_OF_TDP.values())))
    for name, of in (("known steps", known), ("all", found)):
        for gpu in GPUS.values():
            errors = np.array([share_of_tdp(run.seconds) / run.drawn - 1 for run in of if run.gpu == gpu])
            groups = len({run.model for run in of if run.gpu == gpu})
            tails = np.quantile(errors, (0.05, 0.95)).round(2)
            print(f"{name}, {gpu}: {len(errors)} runs of {groups} models, median {np.median(abs(errors)):.1%}, {tails}")
    left = []
    for model, gpu in sorted({(run.model, run.gpu) for run in known}):
        values = fitted([run for run in known if run.model != model])
        own = [run for run in known if (run.model, run.gpu) == (model, gpu)]
        left.append(float(np.median([np.array(run.parts) @ values / run.drawn - 1 for run in own])))
    worst = np.quantile(np.abs(left), (0.5, 0.9, 1.0))
    print(f"left out by model: {len(left)} groups of model and GPU; median, 90 %, worst", worst.round(3))


if __name__ == "__main__":
    main()
