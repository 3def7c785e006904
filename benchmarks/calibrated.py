"""How far simulated runs are off after calibration, on loads, steps or requests that the fit did not see.

    python benchmarks/calibrated.py --data ../shared/data

reads `measured/` there: engine cycles and requests on H100 (inference-sim), ShareGPT requests on RTX GPUs
(LLMServingSim), closed-loop runs (InferenceMAX). What they do not record is assumed, see `ASSUMPTIONS`.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
import silicon  # the benchmark beside this one

from calibrate.check.replay import Replay, measured_figures, replay, simulated_figures
from calibrate.check.runs import check_run
from calibrate.fit.runs import errors_at, fit_runs, run_data
from calibrate.fit.steps import Steps, errors_percent, fit_steps, held_out, steps_of
from calibrate.measured_run import MeasuredRun
from calibrate.recording import Recording
from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import average_step, served_model

ASSUMPTIONS = (
    (
        "H100 output tokens",
        "as asked for: the recorded ones are counted in the answer's text, and fall short of what was generated",
    ),
    ("H100 prompts", "of one length are one prompt, found in the prefix cache from the second time on"),
    ("H100 stages", "of one run are runs of their own, since their rates differ"),
    (
        "H100 step context",
        "575 or 593 prompt tokens and half the output per sequence: the pool counts shared blocks once",
    ),
    ("RTX requests", "start when vLLM queued them; one run per GPU, so that there is no other load to fit on"),
    ("closed loops", "as in benchmarks/silicon.py"),
)
FITTED_RUNS = 5  # of a group of closed-loop runs, spread over concurrency
MIN_GROUP = 8
CYCLE_MODELS = {
    "llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "llama-2-70b-hf": "meta-llama/Llama-2-70b-hf",
    "codellama-34b": "codellama/CodeLlama-34b-Instruct-hf",
}
H100 = {"max_num_seqs": 128, "max_num_batched_tokens": 2048, "max_model_len": 4096, "vllm_version": "0.15.1"}
FIGURES = ("ttft_s.mean", "ttft_s.p50", "ttft_s.p99", "tpot_s.mean", "e2e_s.mean", "e2e_s.p99")
BARS = {"e2e_s.mean": 3.0, "e2e_s.p99": 8.0, "tpot_s.mean": 3.0, "ttft_s.mean": 10.0}
SILICON_BARS = {"tpot": 4.0, "ttft": 10.0}
CYCLE_BAR = 2.0
Row = dict[str, Any]


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


def judge_cycles(data: Path) -> Iterator[Row]:
    """Errors on stretches of steps held out, of a fit to the rest of the same run, and to the other runs."""
    runs = cycle_steps(data)
    base = constants_for(find_gpu("h100-sxm"))
    for name, steps in runs.items():
        figures = held_out([steps], fit_steps([steps])).figures()
        others = fit_steps([other for key, other in runs.items() if key != name]).constants(base)
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
            "bar": CYCLE_BAR,
            "holds": figures["decode_mean_percent"] <= CYCLE_BAR,
        }


def _binned_error(steps: Steps) -> float:
    """What no model of the batch can beat by much: each decode step against the median of like ones, it included."""
    decode = steps.sums["prefill_tokens"] == 0
    measured = pd.Series(steps.measured_s[decode])
    middle = measured.groupby(steps.sums["sequences"][decode] // 4).transform("median")
    return 100 * float((middle / measured - 1).abs().mean())


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
        for number, stage in enumerate(json.loads(experiment.stages)):
            inside = (arrival_s >= begin_s) & (arrival_s < begin_s + stage["duration"])
            begin_s += stage["duration"]
            own = rows[inside]
            first = ~own["input_tokens"].duplicated().to_numpy() & (number == 0)
            table = pd.DataFrame(
                {
                    "arrival_s": arrival_s[inside] - arrival_s[inside][0],
                    "prompt_tokens": own["input_tokens"].to_numpy(),
                    "output_tokens": json.loads(experiment.data)["output_len"],
                    "ttft_s": own["ttft_s"].to_numpy(),
                    "e2e_s": own["e2e_s"].to_numpy(),
                    "cached_tokens": np.where(first, 0, (own["input_tokens"].to_numpy() - 1) // 16 * 16),
                    "session": own["input_tokens"].to_numpy(),
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
                },
            )


def judge_h100(data: Path) -> Iterator[Row]:
    """Each load, simulated with constants fitted on the same deployment's other loads."""
    groups: dict[str, list[Replay]] = defaultdict(list)
    for run in h100_runs(data):
        groups[run.options["model"]].append(replay(run))
    for group in groups.values():
        for place, judged in enumerate(group):
            others = run_data([item for number, item in enumerate(group) if number != place])
            fitted = fit_runs(others).constants(others.base)
            most = max(_mean_sequences(item, fitted) for item in others.replays)
            yield _judged(judged, fitted) | {"beyond": _mean_sequences(judged, fitted) > most}


def _mean_sequences(item: Replay, constants: Any) -> float:
    return average_step(item.totals_with(constants)).sequences


def _judged(item: Replay, constants: Any) -> Row:
    measured, shipped = measured_figures(item.run), simulated_figures(item.simulate())
    fitted = simulated_figures(item.simulate_with(constants))
    row: Row = {"run": str(item.run.source), "overloaded": check_run(item).is_overloaded}
    for name in FIGURES:
        row[name] = measured[name]
        row[f"{name}_shipped"] = 100 * (shipped[name] / measured[name] - 1)
        row[f"{name}_fitted"] = 100 * (fitted[name] / measured[name] - 1)
    return row


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


def judge_rtx(data: Path) -> Iterator[Row]:
    """Zero-shot errors: there is one run per GPU, so no other load to fit on."""
    for item in rtx_replays(data):
        checked = check_run(item)
        row: Row = {"run": str(item.run.source), "overloaded": checked.is_overloaded}
        row |= {f"{entry.name}_shipped": entry.error_percent for entry in checked.rows if entry.name in FIGURES}
        yield row


def silicon_replay(setting: "silicon.Setting") -> Replay:
    """A closed-loop run with the settings of its launch script. Raises ValueError where the model does not fit."""
    return Replay(
        run=MeasuredRun(
            source=Path(f"{setting.model}-{setting.concurrency}"),
            tool="InferenceMAX",
            load={"concurrency": setting.concurrency, "input_len": setting.isl, "output_len": setting.osl},
            aggregates={"ttft_s.mean": setting.ttft_s, "tpot_s.mean": setting.tpot_s},
        ),
        deployment=silicon.deployment_of(setting, silicon.launch_of(setting)),
        table=silicon.load_of(setting, silicon.launch_of(setting)),
    )


def judge_silicon(data: Path) -> Iterator[Row]:
    """Per group of closed-loop runs of one deployment: errors on those that were not among the 5 fitted."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for setting in silicon.read_settings(data)[0]:
        groups[setting.group].append(setting)
    for name, settings in groups.items():
        if len(settings) >= MIN_GROUP:
            settings.sort(key=lambda setting: (setting.concurrency, setting.isl + setting.osl))
            try:
                replays = [silicon_replay(setting) for setting in settings]
            except ValueError as problem:
                print(f"skipped: {problem}", file=sys.stderr)
                continue
            yield _judged_group(name, replays)


def _judged_group(name: Any, replays: list[Replay]) -> Row:
    chosen = set(np.round(np.linspace(0, len(replays) - 1, FITTED_RUNS)).astype(int).tolist())
    fitted = run_data([replays[place] for place in sorted(chosen)])
    rest = run_data([item for place, item in enumerate(replays) if place not in chosen])
    found = fit_runs(fitted)
    shipped = 100 * np.abs(np.expm1(errors_at(rest, (), np.empty(0))))
    after = 100 * np.abs(np.expm1(errors_at(rest, found.posterior.terms, found.posterior.mean)))
    return {
        "group": " ".join(map(str, name)),
        "judged": len(rest),
        **{f"{metric}_shipped": float(np.median(shipped[:, place])) for place, metric in enumerate(("ttft", "tpot"))},
        **{f"{metric}_fitted": float(np.median(after[:, place])) for place, metric in enumerate(("ttft", "tpot"))},
        "ttft_errors": after[:, 0].tolist(),
        "tpot_errors": after[:, 1].tolist(),
        "holds": bool(
            np.median(after[:, 1]) <= SILICON_BARS["tpot"] and np.median(after[:, 0]) <= SILICON_BARS["ttft"]
        ),
    }


PARTS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "cycles": judge_cycles,
    "h100": judge_h100,
    "rtx": judge_rtx,
    "silicon": judge_silicon,
}


def verdicts(found: dict[str, list[Row]]) -> list[tuple[str, float, float]]:
    """Each bar as (what, figure, bar), in percent."""
    rows = []
    for row in found.get("cycles", []):
        rows.append((f"decode cycles of {row['run']}, mean", row["decode_mean"], CYCLE_BAR))
    for name, bar in BARS.items():
        for kind, beyond in (("fuller", True), ("no fuller", False)):
            judged = [row for row in found.get("h100", []) if not row["overloaded"] and row["beyond"] is beyond]
            errors = [abs(row[f"{name}_fitted"]) for row in judged]
            if errors:
                what = f"H100, {len(errors)} loads {kind} than those fitted, {name}"
                rows.append((f"{what}, median", float(np.median(errors)), bar))
                rows.append((f"{what}, worst", float(np.max(errors)), bar))
    for metric, bar in SILICON_BARS.items():
        groups = found.get("silicon", [])
        errors = [error for row in groups for error in row[f"{metric}_errors"]]
        if errors:
            rows.append((f"closed loops, {FITTED_RUNS} runs → rest, {metric}, median", float(np.median(errors)), bar))
            share = 100 * float(np.mean([row[f"{metric}_fitted"] > bar for row in groups]))
            rows.append((f"closed loops, share of groups above the bar, {metric}", share, 0.0))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object with every row")
    arguments = parser.parse_args()
    found: dict[str, list[Row]] = {}
    for part in arguments.part or PARTS:
        begin_s = time.monotonic()
        found[part] = []
        for row in PARTS[part](arguments.data):
            found[part].append(row)
            shown = {key: value for key, value in row.items() if not key.endswith("_errors")}
            text = ", ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in shown.items()
            )
            print(text, file=sys.stderr, flush=True)
        print(f"{part}: {time.monotonic() - begin_s:.0f} s", file=sys.stderr)
    bars = verdicts(found)
    if arguments.json:
        verdict_rows = [
            {"what": what, "percent": value, "bar": bar, "holds": value <= bar} for what, value, bar in bars
        ]
        assumed = [list(row) for row in ASSUMPTIONS]
        print(json.dumps({"schema_version": 1, **found, "bars": verdict_rows, "assumptions": assumed}, indent=1))
        return 0
    for name, text in ASSUMPTIONS:
        print(f"assumed  {name}: {text}")
    for what, value, bar in bars:
        print(f"{'holds' if value <= bar else 'FAILS':6} {what}: {value:.1f} % (bar {bar:g} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
