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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
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

from calibrate.logged_memory import read_logged_servers
from calibrate.measured_run import MeasuredRun
from calibrate.replay import measured_figures, replay, simulated_figures
from kvcache.catalog import find_gpu, load_model
from simulator.latency._constants import FOLDER, Constants, constants_for
from simulator.latency.physical import spread_kind
from simulator.latency_model import Deployment, LogError
from simulator.step_time import FloatArray
from workloads.synthetic import open_load

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy.json"
FIGURES = ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean")
# question, output, system prompt tokens; seconds, requests/s of each stage; prompts: data README, h100_experiments
LOADS = {
    "general": (447, 248, 100, ((600, 8), (600, 20)), 45),
    "codegen": (466, 247, 100, ((600, 5), (600, 10)), 44),
    "roleplay": (600, 251, 150, ((1200, 6),), 44),
}
TEMPLATE_TOKENS = 27  # recorded prompts are longer than question and system prompt by so many
SHARE = 0.3  # of the runs that the fits for held-out figures see
WIDER = 2.0  # than the priors of benchmarks/fit_constants.py: they lie about values that have seen the runs
LEVEL = 0.9
MEASURED = "measured-"  # kinds of deployments of models whose runs were fitted
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
    "the floor of a layer with prefill as before 0.20": lambda setting: silicon.simulate_as_outsider(
        setting, constants=_with_old_floor(setting)
    ),
    "all of the launch script": silicon.simulate,
}


def _with_old_floor(setting: silicon.Setting) -> Constants:
    constants = constants_for(find_gpu(setting.gpu))
    return replace(constants, eager_layer_s=constants.old_eager_layer_s)


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
    return _open_runs(calibrated.h100_runs(data))


def h100_aggregates(data: Path, _: int) -> Part:
    """Stages of H100 runs of which only means are known, served as a load of the same kind."""
    table = pd.read_csv(data / "measured" / "h100_aggregates_by_stage.csv")
    whole = table[(table["subset"] == "all") & (table["stage_index"] >= 0)]
    own = set(pd.read_csv(data / "measured" / "h100_experiments.csv")["experiment"])
    known = whole[
        whole["workload"].isin(LOADS) & ~whole["exp"].str.contains("-lite") & ~whole["exp"].isin(own)
    ].drop_duplicates(["exp", "stage_index"])
    found = _open_runs(_stage_run(row) for row in known.itertuples())
    return found | {"left_out": len(whole) - len(known)}


def _stage_run(row: Any) -> MeasuredRun:
    question, output, system, stages, prompts = LOADS[row.workload]
    duration_s, rate = stages[int(row.stage_index)]
    prompt = question + system + TEMPLATE_TOKENS
    count = duration_s * rate
    load = open_load(rate_per_s=rate, num_requests=count, input_len=prompt, output_len=output)
    session = np.arange(count) % prompts
    first = np.arange(count) < (prompts if row.stage_index == 0 else 0)
    requests = pd.DataFrame(
        {
            "arrival_s": load.arrival_s,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "ttft_s": np.nan,
            "e2e_s": np.nan,
            "cached_tokens": np.where(first, 0, (prompt - 1) // 16 * 16),
            "session": session,
        }
    )
    options: dict[str, Any] = {
        "model": row.model,
        "gpu": "h100-sxm",
        "tensor_parallel_size": int(row.tp),
        "max_num_seqs": 128,
        "max_num_batched_tokens": int(row.max_num_batched_tokens),
        "max_model_len": 4096,
        "gpu_memory_utilization": float(row.gpu_mem_util) if np.isfinite(row.gpu_mem_util) else 0.9,
        "vllm_version": "0.15.1",
    }
    aggregates = {
        "ttft_s.mean": row.ttft_mean_ms / 1e3,
        "tpot_s.mean": (row.e2e_mean_ms - row.ttft_mean_ms) / 1e3 / (output - 1),
        "e2e_s.mean": row.e2e_mean_ms / 1e3,
    }
    name = Path(f"{row.exp} at {rate}/s")
    return MeasuredRun(
        source=name, tool="inference-perf", load={"rate": rate}, options=options, requests=requests,
        aggregates=aggregates,
    )  # fmt: skip


def _open_runs(runs: Iterable[MeasuredRun]) -> Part:
    rows = []
    for run in runs:
        item = replay(run)
        measured = dict(run.aggregates) or measured_figures(run)
        simulated = simulated_figures(item.simulate())
        row: Part = {"run": str(run.source)}
        for name in FIGURES:
            row[name.partition("_s")[0]] = round(100 * (simulated[name] / measured[name] - 1), 2)
        rows.append(row)
    return {"rows": rows, "all": _open_errors(rows)}


def _open_errors(rows: Sequence[Mapping[str, Any]]) -> Part:
    found: Part = {"n": len(rows)}
    for name in ("ttft", "tpot", "e2e"):
        values = np.array([row[name] for row in rows])
        found |= {f"{name}_median": float(np.median(np.abs(values))), f"{name}_bias": float(np.median(values))}
        found[f"{name}_worst"] = float(np.max(np.abs(values)))
    return found


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
    return {"rows": list(calibrated.judge_cycles(data))}


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


# ---- held out -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Settings with logarithms of measured over simulated [settings, (TTFT, TPOT)], by constants that know less."""

    settings: Sequence[silicon.Setting]
    other_runs: FloatArray  # fitted without a fifth of the runs that holds this one
    other_models: FloatArray  # fitted without this one's model

    def table(self, errors: FloatArray) -> pd.DataFrame:
        relative = 100 * np.expm1(-errors)
        columns = {"ttft_error_percent": relative[:, 0], "tpot_error_percent": relative[:, 1]}
        return pd.DataFrame([setting.__dict__ for setting in self.settings]).assign(**columns)


def hold_out(data: Path, workers: int) -> HeldOut:
    """The fit of benchmarks/fit_constants.py about kernel tables alone, which no run has touched, without a part."""
    every, _ = silicon.read_settings(data)
    parts = []
    for family, gpus in fit_constants.GPUS.items():
        mine = [setting for setting in every if setting.gpu in gpus]
        rng = np.random.default_rng(1)
        seen = [
            setting
            for setting in mine
            if setting.concurrency <= fit_constants.MOST_CLIENTS
            and setting.model != fit_constants.LEFT_OUT
            and rng.random() < SHARE
        ]
        problem = about_kernel_tables(fit_constants.measure(seen, workers, _watch(family)), gpus[0])
        folds = dict(zip(mine, rng.integers(0, fit_constants.FOLDS, len(mine)).tolist(), strict=True))
        found = []
        for part_of in (folds.__getitem__, lambda setting: setting.model):
            logs = _logs_without(problem, part_of, mine)
            found.append(_log_errors(mine, logs, workers))
        parts.append((mine, *found))
    return HeldOut(
        [setting for mine, _, _ in parts for setting in mine],
        np.concatenate([runs for _, runs, _ in parts]),
        np.concatenate([models for _, _, models in parts]),
    )


@dataclass(frozen=True, eq=False)
class Centred:
    """A problem in units of wider priors about the kernel tables' values; `logs` turns a fit back."""

    problem: fit_constants.Problem
    centre: FloatArray

    def logs(self, rows: Any) -> FloatArray:
        return np.asarray(self.centre + WIDER * fit_constants.fit(self.problem, rows))


def about_kernel_tables(problem: fit_constants.Problem, gpu: str) -> Centred:
    shipped, prior = constants_for(find_gpu(gpu)), constants_for(find_gpu(gpu), "prior")
    centre = np.zeros(len(fit_constants.PRIOR_SD))
    for place, (name, key) in enumerate(fit_constants.PRIOR_SD):
        pair = [getattr(constants, name) for constants in (prior, shipped)]
        values = pair if key is None else [value.get(key, 0.0) for value in pair]
        if min(values) > 0:
            centre[place] = np.log(values[0] / values[1])
    moved = fit_constants.Problem(
        problem.settings, problem.left(centre), WIDER * problem.jacobian, (problem.most - centre) / WIDER
    )
    return Centred(moved, centre)


def _logs_without(
    problem: Centred, part_of: Callable[[silicon.Setting], Any], settings: Sequence[silicon.Setting]
) -> list[FloatArray]:
    """Fitted logarithms of the terms for each setting, from the runs of other parts."""
    parts = np.array([part_of(setting) for setting in problem.problem.settings])
    fitted = {part: problem.logs(np.flatnonzero(parts != part)) for part in {part_of(setting) for setting in settings}}
    return [fitted[part_of(setting)] for setting in settings]


def _log_errors(settings: Sequence[silicon.Setting], logs: Sequence[FloatArray], workers: int) -> FloatArray:
    jobs = [
        (setting, dict(zip(fit_constants.PRIOR_SD, values.tolist(), strict=True)))
        for setting, values in zip(settings, logs, strict=True)
    ]
    with ProcessPoolExecutor(workers) as pool:
        simulated = np.array(list(pool.map(fit_constants.log_figures, jobs, chunksize=4)))
    return np.asarray(np.log([(setting.ttft_s, setting.tpot_s) for setting in settings]) - simulated)


def _watch(family: str) -> Callable[[int, int], None]:
    def watch(done: int, total: int) -> None:
        if done % 200 == 0 or done == total:
            print(f"{family}: {done:,} of {total:,} simulations", file=sys.stderr, flush=True)

    return watch


# ---- intervals ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spread:
    """How far held-out settings of one kind are off: TPOT, TTFT."""

    kind: str
    tpot: LogError
    ttft: LogError


def fit_spread(errors: FloatArray, deployments: Sequence[Any]) -> LogError:
    """Both standard deviations, and how many of them hold nine in ten of these errors.

    The quantile is corrected for the number of errors (split conformal prediction), so that heavy tails count.
    """
    odd = 3 * float(np.median(np.abs(errors))) / 0.6745
    kept = np.clip(errors, -odd, odd)  # one odd run does not say how the others err
    names = np.array([repr(name) for name in deployments])
    groups = [kept[names == name] for name in sorted(set(names.tolist()))]
    residual = float(np.sqrt(sum(((group - group.mean()) ** 2).sum() for group in groups) / len(kept)))
    deployment = float(np.sqrt(max(np.mean(kept**2) - residual**2, 0.0)))
    deployment, residual = round(deployment, 3), round(residual, 3)
    ordered = np.sort(np.abs(errors)) / np.hypot(deployment, residual)
    rank = min(len(ordered), int(np.ceil(LEVEL * (len(ordered) + 1))))
    half_width_sds = float(np.ceil(1e3 * ordered[rank - 1])) / 1e3
    return LogError(deployment=deployment, residual=residual, half_width_sds=half_width_sds)


def kinds_of(settings: Iterable[silicon.Setting]) -> np.ndarray[Any, np.dtype[np.str_]]:
    return np.array([kind_of(setting).removeprefix(MEASURED) for setting in settings])


def kind_of(setting: silicon.Setting) -> str:
    """By which of the shipped errors a setting goes."""
    arch, gpu = load_model(setting.model), find_gpu(setting.gpu)
    deployment = Deployment(
        architecture=arch, gpu=gpu, max_num_batched_tokens=8192, max_num_seqs=1024, vllm_version=setting.version
    )
    return spread_kind(deployment, constants_for(gpu))


def spreads(settings: Sequence[silicon.Setting], errors: FloatArray) -> list[Spread]:
    """One per kind of deployment, from logarithms of measured over simulated TTFT, TPOT."""
    kinds, deployments = kinds_of(settings), [setting.group for setting in settings]
    found = []
    for kind in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == kind)
        own = [deployments[row] for row in rows]
        found.append(Spread(kind, fit_spread(errors[rows, 1], own), fit_spread(errors[rows, 0], own)))
    return found


def coverage(settings: Sequence[silicon.Setting], errors: FloatArray, known: FloatArray | None = None) -> Part:
    """Share of settings within their interval, with its half-width, where the spread knows no run of the model.

    `known`: half-widths of the logarithms instead, [settings, (TTFT, TPOT)].
    """
    widths = known if known is not None else _widths_without_own_model(settings, errors)
    inside, kinds = np.abs(errors) <= widths, kinds_of(settings)
    found: Part = {}
    for kind in ("all", *sorted(set(kinds.tolist()))):
        rows = np.full(len(kinds), True) if kind == "all" else kinds == kind
        found[kind] = {"n": int(rows.sum())}
        for place, name in enumerate(("ttft", "tpot")):
            found[kind] |= {
                f"{name}_covered": 100 * float(inside[rows, place].mean()),
                f"{name}_half_width": 100 * float(np.expm1(np.median(widths[rows, place]))),
            }
    return found


def _widths_without_own_model(settings: Sequence[silicon.Setting], errors: FloatArray) -> FloatArray:
    """Half-widths from other models of the kind; from all others where the kind has no other model."""
    models, kinds = np.array([setting.model for setting in settings]), kinds_of(settings)
    widths = np.zeros_like(errors)
    for model in np.unique(models):
        for kind in np.unique(kinds[models == model]):
            rows = (models == model) & (kinds == kind)
            others = (models != model) & (kinds == kind)
            chosen = np.flatnonzero(others if others.any() else models != model)
            own = [settings[row].group for row in chosen]
            for place in range(2):
                error = fit_spread(errors[chosen, place], own)
                widths[rows, place] = error.half_width_sds * error.total
    return widths


def shipped_widths(settings: Iterable[silicon.Setting]) -> FloatArray:
    """Half-widths of the logarithms that the shipped constants state, [settings, (TTFT, TPOT)]."""
    found = []
    for setting in settings:
        tpot, ttft = constants_for(find_gpu(setting.gpu)).log_errors(kind_of(setting))
        found.append([error.half_width_sds * error.total for error in (ttft, tpot)])
    return np.array(found)


def shipped_spreads(found: HeldOut) -> list[Spread]:
    """Of models that no fit saw; then of those that it saw, on other runs."""
    others = spreads(found.settings, found.other_models)
    known = [spread for spread in spreads(found.settings, found.other_runs) if spread.kind != "old-experts"]
    return [*others, *(replace(spread, kind=MEASURED + spread.kind) for spread in known)]


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
        "intervals": coverage(found.settings, found.other_models),
        "intervals_of_other_runs": coverage(found.settings, found.other_runs),
    }


def write_spreads(fitted: Mapping[str, Any], path: Path = FOLDER / "hopper.toml") -> None:
    """Put them into the [log_error] of the constants that both families share."""
    lines = ["[log_error] # of models left out of the fit, by benchmarks/accuracy.py --write-spreads; dense ones first"]
    for kind in ("dense", *(name for name in fitted if name != "dense")):
        lines += [] if kind == "dense" else ["", f"[log_error.{kind}]"]
        for metric in ("tpot", "ttft"):
            values = ", ".join(f"{name} = {value:g}" for name, value in fitted[kind][metric].items())
            lines.append(f"{metric} = {{ {values} }}")
    text = path.read_text(encoding="utf-8")
    begin, end = text.index("[log_error]"), text.index("[measurements]")
    path.write_text(text[:begin] + "\n".join(lines) + "\n\n" + text[end:], encoding="utf-8")


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
