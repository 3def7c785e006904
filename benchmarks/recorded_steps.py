"""Shipped step times beside the steps of a recorded engine.

    python -m benchmarks.recorded_steps [FOLDER]

FOLDER holds a recording of `headcount calibrate record`; the one in `benchmarks/recordings` is vLLM 0.26.0 on one H200,
torch 2.11.0, random weights, 2026-11-26. No constant was fitted to it.
"""

import sys
from pathlib import Path

import pandas as pd

from calibrate.fit.steps import steps_of
from calibrate.record.recording_files import read_recording
from calibrate.recording import Recording
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model

FOLDER = Path(__file__).parent / "recordings" / "h200-llama-3.1-8b"
MIN_STEPS = 3  # of a median
SETTINGS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "vllm_version")


def compared(recording: Recording) -> pd.DataFrame:
    """Timed steps with `predicted_s`, by the shipped constants of the recording's GPU."""
    options = recording.options
    settings = {name: options[name] for name in SETTINGS}
    served = served_model(load_model(options["model"]), find_gpu(options["gpu"]), **settings)
    timed = recording.steps[recording.steps["cycle_s"] > 0].reset_index(drop=True)
    steps = steps_of(recording, served)
    return timed.assign(predicted_s=steps.predicted_s(constants_for(served.gpu)))


def decodes(table: pd.DataFrame) -> pd.DataFrame:
    """Medians over steps that hold decodes alone, one row for each load and batch, with the error in %."""
    return _medians(table[table["prefill_tokens"] == 0], "load", "sequences")


def chunks(table: pd.DataFrame) -> pd.DataFrame:
    """Medians over steps that are full of prompt tokens, one row for each load."""
    return _medians(table[table["prefill_tokens"] > 0.95 * table["tokens"].max()], "load", "tokens")


def _medians(steps: pd.DataFrame, *by: str) -> pd.DataFrame:
    groups = steps.groupby(list(by), sort=False)[["decode_context", "cycle_s", "predicted_s"]]
    found = groups.median()[groups.size() >= MIN_STEPS]
    return found.assign(error=(found["predicted_s"] / found["cycle_s"] - 1) * 100)


def main() -> None:
    """Print both tables."""
    table = compared(read_recording(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
    for found in (decodes(table), chunks(table)):
        shown = found.assign(cycle_ms=found["cycle_s"] * 1e3, predicted_ms=found["predicted_s"] * 1e3)
        print(shown[["decode_context", "cycle_ms", "predicted_ms", "error"]].round(2).to_string(), "\n")


if __name__ == "__main__":
    main()
