"""How far the simulator is off, on every public measurement at hand.

    python benchmarks/accuracy.py --data ../shared/data [--part NAME …] [--json] [--page docs/accuracy.md]

reads `measured/` there, prints the figures. `--page` puts them into docs/results/accuracy.json, with the parts that
were not asked for as they stand there, then into the page's tables. The whole takes about an hour on two cores, nearly
all of it `held-out` and `calibrated`, which fit; the others take a minute or two.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

import accuracy_page  # the scripts beside this one
import calibrated
import fit_constants
import memory
import silicon
from accuracy_held_out import hold_out
from accuracy_intervals import coverage, shipped_spreads, shipped_widths, write_spreads
from accuracy_open_runs import errors_of_runs, stages_of_means

from calibrate.logged_memory import read_logged_servers
from simulator.latency.step_time import FloatArray

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy.json"
Part = dict[str, Any]


def errors_of(rows: pd.DataFrame) -> Part:
    """Median, mean and bias of both errors in percent, with how many."""
    table = silicon.error_table(rows.assign(all=0), ["all"]).drop(columns="all")
    return {key: float(value) if key != "n" else int(value) for key, value in table.iloc[0].items()}


def with_kind(rows: pd.DataFrame) -> pd.DataFrame:
    dense = rows["model"].isin(silicon.DENSE_MODELS)
    return rows.assign(kind=np.where(dense, "dense", "mixture of experts"))


def closed_loops(data: Path, _: int) -> Part:
    """All settings by shipped constants and by kernel tables alone, with how long they took."""
    settings, skipped = silicon.read_settings(data)
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    shipped, failed = silicon.compare(settings)
    lasted_s, cpu_s = time.monotonic() - begin_s, time.process_time() - begin_cpu_s
    prior, _unused = silicon.compare(settings, use="prior")
    rows = len(pd.read_csv(data / silicon.RUNS_FILE))
    return {
        "rows": rows,
        "answered_rows": rows - sum(skipped.values()),
        "settings": len(settings),
        "failed": failed,
        "left_out": {reason: count for reason, count in skipped.items() if count},
        "lasted_s": lasted_s,
        "cpu_s": cpu_s,
        "shipped": errors_of(shipped),
        "prior": errors_of(prior),
        "kinds": _records(with_kind(shipped), ["kind", "gpu"]),
        "groups": _records(shipped, ["model", "gpu", "precision", "version"]),
    }


def _records(rows: pd.DataFrame, by: list[str]) -> list[Part]:
    return [
        {str(key): item if isinstance(item, str) else round(float(item), 2) for key, item in row.items()}
        for row in silicon.error_table(rows, by).to_dict("records")
    ]


def outsider(data: Path, _: int) -> Part:
    """All settings as `headcount simulate` takes what the table says; what single settings change."""
    settings, _skipped = silicon.read_settings(data)
    rows, failed = silicon.compare(settings, outsider=True)
    blackwell = [setting for setting in settings if setting.gpu in fit_constants.GPUS["blackwell"]][::2]
    return {
        "all": errors_of(rows),
        "failed": failed,
        "kinds": _records(with_kind(rows), ["kind", "gpu"]),
        "intervals": coverage(settings, _log_errors(rows), shipped_widths(settings)),
        "changes": {name: errors_of(_changed(blackwell, change)) for name, change in CHANGES.items()},
    }


CHANGES: dict[str, Callable[[silicon.Setting], tuple[float, float]]] = {
    "as typed": silicon.simulate_as_outsider,
    "--kv-cache-dtype of the launch script": lambda setting: silicon.simulate_as_outsider(
        setting, "--kv-cache-dtype", silicon.launch_of(setting).kv_cache_dtype
    ),
    "--max-num-seqs of the launch script": lambda setting: silicon.simulate_as_outsider(
        setting, "--max-num-seqs", f"{silicon.launch_of(setting).max_num_seqs}"
    ),
    "--vllm-version of the run": lambda setting: silicon.simulate_as_outsider(
        setting, "--vllm-version", setting.version
    ),
    "all of the launch script": silicon.simulate,
}


def _changed(
    settings: Iterable[silicon.Setting], simulated_by: Callable[[silicon.Setting], tuple[float, float]]
) -> pd.DataFrame:
    rows = []
    for setting in settings:
        ttft_s, tpot_s = simulated_by(setting)
        rows.append(
            {
                "ttft_error_percent": 100 * (ttft_s / setting.ttft_s - 1),
                "tpot_error_percent": 100 * (tpot_s / setting.tpot_s - 1),
            }
        )
    return pd.DataFrame(rows)


def h100_requests(data: Path, _: int) -> Part:
    """Every rate stage of the H100 runs that were not overloaded, by shipped constants."""
    return errors_of_runs(calibrated.h100_runs(data))


def h100_aggregates(data: Path, _: int) -> Part:
    """Stages of H100 runs of which only means are known, served as a load of the same kind."""
    runs, left_out = stages_of_means(data)
    return errors_of_runs(runs) | {"left_out": left_out}


def rtx(data: Path, _: int) -> Part:
    """ShareGPT requests on RTX GPUs, by shipped constants."""
    return {
        "rows": [
            {key.removesuffix("_shipped"): value for key, value in row.items() if key != "overloaded"}
            for row in calibrated.judge_rtx(data)
        ]
    }


def cycles(data: Path, _: int) -> Part:
    """Engine cycles of three H100 runs: shipped, fitted to the others, fitted to other stretches of the same."""
    rows = list(calibrated.judge_cycles(data))
    counts = np.array([row["decode_steps"] for row in rows])
    names = ("shipped_decode_mean", "others_decode_mean", "decode_mean", "binned_mean")
    return {"rows": rows, "all": {name: float(counts @ [row[name] for row in rows] / counts.sum()) for name in names}}


def kv_memory(data: Path, _: int) -> Part:
    servers, left_out = read_logged_servers(data)
    found = memory.report(servers, left_out)
    return {name: found[name] for name in ("servers", "left_out", "terms_percent", "kv_tokens_percent")}


def five_runs(data: Path, _: int) -> Part:
    """Constants fitted to 5 runs of a deployment, judged on its others."""
    groups = list(calibrated.judge_silicon(data))
    errors = {name: np.concatenate([group[f"{name}_errors"] for group in groups]) for name in ("ttft", "tpot")}
    return {
        "n": len(errors["tpot"]),
        "groups": len(groups),
        **{f"{name}_median": float(np.median(values)) for name, values in errors.items()},
        **{f"{name}_mean": float(np.mean(values)) for name, values in errors.items()},
        "rows": [
            {key: value for key, value in group.items() if not key.endswith("_errors") and key != "holds"}
            for group in groups
        ],
    }


def held_out(data: Path, workers: int) -> Part:
    """Errors and intervals of constants that were fitted without the run, or without the model."""
    found = hold_out(data, workers)
    return {
        "other_runs": errors_of(found.table(found.other_runs)),
        "other_models": errors_of(found.table(found.other_models)),
        "models": _records(found.table(found.other_models), ["model"]),
        "spreads": {
            spread.kind: {"tpot": vars(spread.tpot), "ttft": vars(spread.ttft)} for spread in shipped_spreads(found)
        },
        "requests": found.requests,
        "intervals": coverage(found.settings, found.other_models),
        "intervals_of_other_runs": coverage(found.settings, found.other_runs),
    }


def _log_errors(rows: pd.DataFrame) -> FloatArray:
    """Logarithms of measured over simulated TTFT, TPOT."""
    return -np.log1p(rows[["ttft_error_percent", "tpot_error_percent"]].to_numpy(dtype=np.float64) / 100)


def shipped_intervals(data: Path, _: int) -> Part:
    """How often the interval that an answer states holds what was measured."""
    settings, _skipped = silicon.read_settings(data)
    simulated = np.array([silicon.simulate(setting) for setting in settings])
    measured = np.array([(setting.ttft_s, setting.tpot_s) for setting in settings])
    return coverage(settings, np.log(measured / simulated), shipped_widths(settings))


PARTS: dict[str, Callable[[Path, int], Part]] = {
    "closed-loops": closed_loops,
    "outsider": outsider,
    "held-out": held_out,
    "intervals": shipped_intervals,
    "calibrated": five_runs,
    "h100": h100_requests,
    "h100-aggregates": h100_aggregates,
    "rtx": rtx,
    "cycles": cycles,
    "memory": kv_memory,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these; may be repeated")
    parser.add_argument("--workers", type=int, default=2, help="processes that simulate for held-out figures")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--write-spreads", action="store_true", help="put the part held-out's into the constants")
    parser.add_argument("--page", type=Path, help=f"write {RESULTS.name} and the tables of this page")
    arguments = parser.parse_args()
    results: Part = {"schema_version": 1}
    for name in arguments.part or PARTS:
        begin_s = time.monotonic()
        results[name] = PARTS[name](arguments.data, arguments.workers)
        print(f"{name}: {time.monotonic() - begin_s:.0f} s", file=sys.stderr, flush=True)
    if arguments.write_spreads and "held-out" in results:
        write_spreads(results["held-out"]["spreads"])
    if arguments.page is not None:
        before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
        results = rounded(before | results)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        arguments.page.write_text(
            accuracy_page.filled(arguments.page.read_text(encoding="utf-8"), results), encoding="utf-8"
        )
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        print(accuracy_page.text(results))
    return 0


def rounded(value: Any) -> Any:
    """Figures to four digits: the rest is noise, and would change with every run."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
