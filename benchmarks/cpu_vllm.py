"""How well a recording predicts another load of a real vLLM: `python benchmarks/cpu_vllm.py [--python P] [--json]`.

On the CPU, by the thread's own processor time, which other programs disturb little. Each run records the designed
loads of `headcount calibrate record` in one engine, fits a step's linear terms by non-negative least squares, and
predicts the total time of traffic that comes and goes at random in an engine of its own. The traffic's batches are
not taken from its recording but from the loads' rules; their number of steps is compared.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.design import expected_table
from calibrate.interpreters import interpreter_for
from calibrate.loads import Limits, Load, Phase
from calibrate.record_model import TINY, TINY_CONFIG
from calibrate.recorded_engine import Asked
from calibrate.recorder import fit_recorded, record
from calibrate.recording_files import RecordingFolder, read_recording

# The larger model is made up: 4 layers of width 512.
MODELS: dict[str, dict[str, Any]] = {
    TINY: TINY_CONFIG,
    "small": TINY_CONFIG
    | {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 4}
    | {"head_dim": 64, "vocab_size": 32000},
}
ENGINE = {"max_model_len": 2048, "max_num_seqs": 32, "max_num_batched_tokens": 512, "block_size": 32}
LIMITS = Limits(max_num_seqs=32, max_num_batched_tokens=512, max_model_len=2048, kv_tokens=10**6)
NUM_PHASES = 40
MAX_SECONDS = 60  # of a recording, its engine's start not counted
MAX_HELD = 24  # requests at once


def traffic(seed: int) -> Load:
    """Prompts of log-normal length (median 150 tokens) that come in ones to fours, while older ones leave."""
    rng = np.random.default_rng(seed)
    phases, held = [], 0
    for _ in range(NUM_PHASES):
        keep = int(rng.integers(0, held + 1)) if held > MAX_HELD - 4 or rng.random() < 0.2 else held
        lengths = np.clip(rng.lognormal(np.log(150), 0.9, rng.integers(1, 5)), 4, 1500).astype(int)
        phases.append(Phase(keep=keep, add=tuple(lengths.tolist()), steps=int(rng.integers(1, 14))))
        held = keep + len(lengths)
    return Load(name="traffic", phases=tuple(phases), seed=seed)


def one_run(model: Path, python: Path, seed: int, folder: Path) -> dict[str, Any]:
    """Errors of one calibration."""
    asked = Asked(model=str(model), engine=ENGINE)
    record(asked, python, folder / "designed", max_seconds=MAX_SECONDS)
    held_out = traffic(seed)
    record(asked, python, folder / "traffic", loads=[held_out])
    designed = RecordingFolder(folder / "designed")
    content = designed.read()
    assert content is not None
    times = fit_recorded(designed, content["loads"])
    steps = read_recording(folder / "traffic").steps
    measured_s = steps["cycle_s"].to_numpy()
    foreseen = expected_table(held_out, LIMITS)
    each_s = times.step_s(steps)
    spread = ((measured_s - measured_s.mean()) ** 2).sum()
    return {
        "seed": seed,
        "designed_steps": len(read_recording(folder / "designed").steps),
        "designed_s": sum(entry["took_s"] for entry in content["loads"] if "took_s" in entry),
        "relative_standard_error": times.relative_error,
        "steps": len(steps),
        "foreseen_steps": len(foreseen),
        "measured_s": float(measured_s.sum()),
        "predicted_s": float(times.step_s(foreseen).sum()),
        "total_error": float(times.step_s(foreseen).sum() / measured_s.sum() - 1),
        "median_step_error": float(np.median(np.abs(each_s / measured_s - 1))),
        "r2": float(1 - ((measured_s - each_s) ** 2).sum() / spread),
    }


def benchmark(name: str, config: Mapping[str, Any], python: Path, runs: int) -> dict[str, Any]:
    """The errors of each run, with the median of their sizes."""
    found = []
    for seed in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "config.json"
            model.write_text(json.dumps(config), encoding="utf-8")
            found.append(one_run(model, python, seed, Path(scratch)))
        print(_line(name, found[-1]), file=sys.stderr, flush=True)
    return {
        "model": name,
        "median_absolute_total_error": statistics.median(abs(run["total_error"]) for run in found),
        "median_r2": statistics.median(run["r2"] for run in found),
        "runs": found,
    }


def _line(name: str, run: Mapping[str, Any]) -> str:
    return (
        f"{name}, seed {run['seed']}: {run['designed_steps']:,} steps in {run['designed_s']:.0f} s, then "
        f"{run['steps']:,} of other traffic ({run['foreseen_steps']:,} foreseen): total {run['total_error']:+.1%}, "
        f"R2 {run['r2']:.3f}, step {run['median_step_error']:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, help="an interpreter that has vLLM")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    python = interpreter_for(None, arguments.python)
    found = [benchmark(name, MODELS[name], python, arguments.runs) for name in arguments.models]
    if arguments.json:
        print(json.dumps({"schema_version": 1, "models": found}, indent=2))
        return
    for result in found:
        print(
            f"{result['model']}: total thread time off by {result['median_absolute_total_error']:.1%}, "
            f"R2 {result['median_r2']:.3f} (medians of {len(result['runs'])})"
        )


if __name__ == "__main__":
    main()
