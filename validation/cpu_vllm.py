"""How well one load predicts another on a real vLLM: `python -m validation.cpu_vllm [--python P] [--json]`.

On the CPU, by the thread's own processor time, which still varies with what else runs on the machine: within seconds by
some percent, within minutes by some tens of percent. So pieces of the traffic that is predicted run between the
designed loads, in one engine. A step's linear terms are fitted to the designed loads alone, by non-negative least
squares; the traffic's total is predicted from the rules of its loads, not from its recorded batches.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.interpreters.interpreters import interpreter_for
from calibrate.record.design import expected_table, plan_loads
from calibrate.record.loads import Limits, Load, Phase
from calibrate.record.record_model import TINY, TINY_CONFIG, guessed_seconds
from calibrate.record.recorded_engine import Asked
from calibrate.record.recorder import record
from calibrate.record.recording_files import read_recording
from calibrate.record.step_terms import fit_terms, term_matrix

# The larger model is made up: 4 layers of width 512.
MODELS: dict[str, dict[str, Any]] = {
    TINY: TINY_CONFIG,
    "small": TINY_CONFIG
    | {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 4}
    | {"head_dim": 64, "vocab_size": 32000},
}
ENGINE = {"max_model_len": 2048, "max_num_seqs": 32, "max_num_batched_tokens": 512, "block_size": 32}
LIMITS = Limits(max_num_seqs=32, max_num_batched_tokens=512, max_model_len=2048, kv_tokens=10**6)
NUM_PIECES, NUM_PHASES = 8, 8
TRAFFIC = "traffic"
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
    return Load(name=f"{TRAFFIC}-{seed}", phases=tuple(phases), seed=seed)


def between(designed: Sequence[Load], others: Sequence[Load]) -> list[Load]:
    """The designed loads in their order, with the others spread evenly among them."""
    places = [((number + 0.5) / len(group), load) for group in (designed, others) for number, load in enumerate(group)]
    return [load for _, load in sorted(places, key=lambda place: place[0])]


def one_run(config: Mapping[str, Any], model: Path, python: Path, seed: int) -> dict[str, Any]:
    """Errors of one engine's life."""
    designed = plan_loads(LIMITS, guessed_seconds(config, "cpu"), precision=0.03).loads
    pieces = [traffic(1000 * seed + number) for number in range(NUM_PIECES)]
    folder = model.parent / "recording"
    record(Asked(model=str(model), engine=ENGINE), python, folder, loads=between(designed, pieces))
    return {"seed": seed, **judged(read_recording(folder).steps, pieces)}


def judged(steps: pd.DataFrame, pieces: Sequence[Load]) -> dict[str, Any]:
    """How far terms fitted to a recording's designed loads are from its traffic, whose batches are foreseen."""
    is_traffic = steps["load"].str.startswith(TRAFFIC)
    known, other = steps[~is_traffic], steps[is_traffic]
    times = fit_terms(known, list(zip(known["load"], known["phase"], known["prefill_tokens"] > 0, strict=True)))
    measured_s, each_s = other["cycle_s"].to_numpy(), term_matrix(other) @ times.seconds
    foreseen = [expected_table(load, LIMITS) for load in pieces]
    total_s = sum(float((term_matrix(table) @ times.seconds).sum()) for table in foreseen)
    return {
        "designed_steps": len(known),
        "designed_s": float(known["wall_s"].sum()),
        "relative_standard_error": times.relative_error,
        "designed_median_step_error": times.median_error,
        "steps": len(other),
        "foreseen_steps": sum(map(len, foreseen)),
        "measured_s": float(measured_s.sum()),
        "predicted_s": total_s,
        "total_error": total_s / float(measured_s.sum()) - 1,
        "median_step_error": float(np.median(np.abs(each_s / measured_s - 1))),
        "r2": float(1 - ((measured_s - each_s) ** 2).sum() / ((measured_s - measured_s.mean()) ** 2).sum()),
    }


def benchmark(name: str, config: Mapping[str, Any], python: Path, runs: int) -> dict[str, Any]:
    """The errors of each run, with the median of their sizes."""
    found = []
    for seed in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "config.json"
            model.write_text(json.dumps(config), encoding="utf-8")
            found.append(one_run(config, model, python, seed))
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
    python = interpreter_for(None, arguments.python, infers=True)
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
