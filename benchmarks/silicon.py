"""How far simulated closed-loop runs are from runs of real vLLM on real GPUs.

    python benchmarks/silicon.py --data ../shared/data

reads `measured/silicon_vllm_runs.csv` there (public InferenceMAX runs, as shipped with aiconfigurator-core).
What the table does not record is assumed, see `ASSUMPTIONS`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from headcount.answers.deployments import ENGINE_ARGUMENTS, subject
from headcount.answers.loads import AskedLoad
from headcount.answers.simulate import serve
from headcount.cli.commands.simulate import command as simulate_command
from kvcache.errors import DoesNotFitError
from kvcache.models.catalog import find_gpu
from simulator.deployment import Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs, default_async_scheduling
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import Use, constants_for
from simulator.results import request_times
from simulator.simulation import Simulation
from workloads.requests import RequestTable
from workloads.synthetic import closed_load

RUNS_FILE = Path("measured") / "silicon_vllm_runs.csv"
PROMPTS_PER_CLIENT = 10
LENGTH_SPREAD = 0.8
ASSUMPTIONS = (
    ("clients", "all start at time 0, 10 prompts each, lengths uniform in 0.8 – 1.0 × nominal, but see `launch_of`"),
    ("scheduling", "asynchronous, but see `launch_of`; max_model_len = input + output + 256"),
    (
        "launch settings",
        "of the public launch scripts, see `launch_of`; with --plain: 8192 tokens, 16-bit KV cache, 0.90; with "
        "--as-outsider: 8192 tokens, all else as `headcount simulate` takes it where nothing is said",
    ),
    ("blank version", "0.11.0: Llama-3.1-70B was measured in 2025-10, others are few"),
    ("nightly version", "0.19.0"),
    ("blank precision", "the checkpoint's own (Qwen3-32B: bf16)"),
    ("blank attention_dp_size", "1"),
    ("attention data parallelism", "one GPU per attention rank, experts over all of them"),
)
OUTSIDER_TOKENS = 8192  # the token budget, which the runs are known to have had
BLANK_VERSION, NIGHTLY_VERSION = "0.11.0", "0.19.0"
KEYS = ("model", "gpu", "precision", "tp", "dp", "ep", "version", "isl", "osl", "concurrency")
DENSE_MODELS = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B")
GPUS = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
}
BLACKWELL = ("b200-sxm", "b300-sxm", "gb200")
FORMATS = {"fp8": "fp8", "fp4": "nvfp4", "int4": "int4-experts"}


@dataclass(frozen=True)
class Setting:
    """One measured setting, its repeats reduced to their median."""

    model: str
    gpu: str
    precision: str
    tp: int
    dp: int
    ep: int
    version: str
    isl: int
    osl: int
    concurrency: int
    ttft_s: float
    tpot_s: float

    @property
    def gpus(self) -> int:
        return self.tp * self.dp

    @property
    def group(self) -> tuple[str, str, str, str, int, int, int]:
        return self.model, self.gpu, self.version, self.precision, self.tp, self.dp, self.ep

    @property
    def quantization(self) -> str | None:
        """The format's name; None for the checkpoint's own."""
        if self.model == "openai/gpt-oss-120b":
            return "mxfp4"
        return FORMATS.get(self.precision)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The server settings of a run that the table does not record."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.9
    max_cudagraph_capture_size: int | None = None
    enable_expert_parallel: bool | None = None  # None: what the row says
    async_scheduling: bool = True
    length_spread: float = LENGTH_SPREAD


def launch_of(setting: Setting) -> Launch:
    """How the public launch scripts start vLLM for this run.

    InferenceMAX, later InferenceX, benchmarks/*.sh, 2025-10 – 2026-05; which commit made a row is unknown.
    """
    model = setting.model.partition("/")[2]
    if model == "Llama-3.1-70B":  # 70b_fp8_h100_docker.sh, 70b_fp8_b200_docker.sh
        return Launch(kv_cache_dtype="fp8", max_num_seqs=512)
    if model == "gpt-oss-120b":  # gptoss_fp4_b200.sh, gptoss_fp4_h200.sh
        kv_cache_dtype = "fp8" if setting.gpu in BLACKWELL else "auto"
        return Launch(kv_cache_dtype=kv_cache_dtype, max_num_seqs=512, max_cudagraph_capture_size=2048)
    if model == "MiniMax-M2.5":
        return _launch_of_minimax(setting)
    if model == "Kimi-K2.5":
        return _launch_of_kimi(setting)
    if is_of_dynamo(setting):
        # Scheduled as the release does unless told. All lengths are alike (aiperf, deviation 0); simulated
        # clients would stay in step for ever, on servers they drift apart: a spread of 5 %, chosen on these rows.
        return Launch(async_scheduling=default_async_scheduling(setting.version), length_spread=0.95)
    return Launch()


def is_of_dynamo(setting: Setting) -> bool:
    """Runs of NVIDIA's own evaluation (image ai-dynamo/vllm-runtime 0.8.0), not InferenceMAX's: other clients."""
    return setting.model in ("Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B-FP8")


def _launch_of_minimax(setting: Setting) -> Launch:
    if setting.gpu == "h100-sxm":  # minimaxm2.5_fp8_h100.sh
        return Launch(max_num_seqs=256)
    if setting.gpu in BLACKWELL and setting.version == "0.19.0":  # minimaxm2.5_fp8_b300.sh, minimaxm2.5_fp4_b300.sh
        return Launch(kv_cache_dtype="fp8", max_num_batched_tokens=2 * setting.isl, max_cudagraph_capture_size=2048)
    if setting.gpu in BLACKWELL:  # minimaxm2.5_fp8_b200.sh of 2026-02, which asks for `EP_SIZE -ge 1`
        return Launch(gpu_memory_utilization=0.95, enable_expert_parallel=True)
    return Launch()


def _launch_of_kimi(setting: Setting) -> Launch:
    if setting.precision == "int4":  # kimik2.5_int4_h200.sh
        return Launch(gpu_memory_utilization=0.95)
    if setting.precision == "fp4":  # kimik2.5_fp4_b200.sh; its checkpoint declares an fp8 cache
        return Launch(kv_cache_dtype="fp8", max_num_seqs=setting.concurrency)
    return Launch()


def read_settings(data: Path) -> tuple[list[Setting], dict[str, int]]:
    """The settings that a simulation can express, with how many rows were left out for which reason."""
    rows = pd.read_csv(data / RUNS_FILE)
    skipped = {
        "disaggregated": rows["mode"] != "agg",
        "no concurrency": rows["concurrency"].isna(),
        "pipeline parallelism": rows["pp_size"].fillna(1) > 1,
    }
    kept, counts = pd.Series(True, index=rows.index), {}
    for reason, mask in skipped.items():
        counts[reason] = int((kept & mask).sum())
        kept &= ~mask
    rows = rows[kept]
    version = rows["backend_version"].fillna(BLANK_VERSION)
    # The list gives attention-parallel runs tp_size = attention_dp_size = GPUs: each attends on one GPU.
    dp = rows["attention_dp_size"].fillna(1).astype(int)
    table = pd.DataFrame(
        {
            "model": rows["model_path"],
            "gpu": rows["system"].map(GPUS),
            "precision": rows["precision"].fillna("native"),
            # Qwen3-235B lists attention replicas as tp_size 1 under experts over 2 or 4 GPUs.
            "tp": (np.maximum(rows["tp_size"], rows["moe_tp_size"].fillna(1)) // dp).astype(int),
            "dp": dp,
            "ep": rows["moe_ep_size"].fillna(1).clip(lower=1).astype(int),
            "version": version.where(~version.str.startswith("nightly"), NIGHTLY_VERSION),
            "isl": rows["isl"],
            "osl": rows["osl"],
            "concurrency": rows["concurrency"].astype(int),
            "ttft_s": rows["silicon_ttft_ms"] / 1e3,
            "tpot_s": rows["silicon_tpot_ms"] / 1e3,
        }
    )
    medians = table.groupby(list(KEYS), as_index=False).median()
    return [Setting(**{str(key): value for key, value in row.items()}) for row in medians.to_dict("records")], counts


def deployment_of(setting: Setting, launch: Launch, **latency: Any) -> Deployment:
    """The replica of a run; `latency`: options of the latency form. Raises ValueError where the model does not fit."""
    asked = EngineArgs(
        tensor_parallel_size=setting.tp,
        data_parallel_size=setting.dp,
        enable_expert_parallel=setting.ep > 1 if launch.enable_expert_parallel is None else True,
        quantization=setting.quantization,
        kv_cache_dtype=launch.kv_cache_dtype,
        max_model_len=setting.isl + setting.osl + 256,
        max_num_batched_tokens=launch.max_num_batched_tokens,
        max_num_seqs=launch.max_num_seqs,
        gpu_memory_utilization=launch.gpu_memory_utilization,
        max_cudagraph_capture_size=launch.max_cudagraph_capture_size,
        async_scheduling=launch.async_scheduling,
        vllm_version=setting.version,
    )
    found = resolve(setting.model, setting.gpu, asked)
    return replace(found, latency=latency_model(found.served, **latency))


def load_of(setting: Setting, launch: Launch) -> RequestTable:
    """What the clients send."""
    return closed_load(
        concurrency=setting.concurrency,
        num_requests=PROMPTS_PER_CLIENT * setting.concurrency,
        input_len=setting.isl,
        output_len=setting.osl,
        length_spread=launch.length_spread,
    )


def simulate(setting: Setting, *, plain: bool = False, use: Use = "shipped", **options: Any) -> tuple[float, float]:
    """Mean TTFT with mean TPOT, in seconds. Raises ValueError where the model does not fit."""
    constants = constants_for(find_gpu(setting.gpu), use, vllm_version=setting.version)
    launch = Launch() if plain else launch_of(setting)
    deployment = deployment_of(setting, launch, **({"constants": constants} | options))
    simulation = Simulation(deployment.fleet(1, "least-outstanding"), load_of(setting, launch))
    simulation.run()
    times = request_times(simulation.requests)
    return float(times.ttft_s.mean()), float(np.nanmean(times.tpot_s))


def command_line(setting: Setting) -> list[str]:
    """`headcount simulate` for someone who has the table alone."""
    words = ["simulate", "--model", setting.model, "--gpu", setting.gpu, "-tp", str(setting.tp)]
    if setting.dp > 1:
        words += ["-dp", str(setting.dp)]
    if setting.ep > 1:
        words.append("--enable-expert-parallel")
    if setting.quantization:
        words += ["--quantization", setting.quantization]
    words += ["--input-len", f"{setting.isl}", "--output-len", f"{setting.osl}"]
    words += ["--length-spread", f"{LENGTH_SPREAD:g}", "--concurrency", f"{setting.concurrency}"]
    return [*words, "--max-num-batched-tokens", f"{OUTSIDER_TOKENS}"]


def simulate_as_outsider(setting: Setting, *more: str, **latency: Any) -> tuple[float, float]:
    """Mean TTFT with mean TPOT, in seconds, of that command line; `more` options win over its own.

    Where it refuses because the model's longest context does not fit, that is cut to the requests', as it advises.
    `latency`: options of the latency form. Raises ValueError where the command refuses still.
    """
    try:
        return _simulate_command(setting, more, latency)
    except DoesNotFitError:
        return _simulate_command(setting, ("--max-model-len", f"{setting.isl + setting.osl}", *more), latency)


def _simulate_command(setting: Setting, more: Sequence[str], latency: Mapping[str, Any]) -> tuple[float, float]:
    """What the command does, up to printing."""
    try:
        values = simulate_command.make_context("simulate", [*command_line(setting)[1:], *more]).params
    except click.ClickException as problem:
        raise ValueError(problem.format_message()) from None
    engine = {name: values[name] for name in ENGINE_ARGUMENTS if name in values}
    asked = subject(values["model"], values["gpu"], engine)
    plan = resolve(asked.architecture, asked.gpu, asked.args)
    if latency:
        plan = replace(plan, latency=latency_model(plan.served, **latency))
    load = AskedLoad(**{field.name: values[field.name] for field in fields(AskedLoad)})
    found = serve(plan.fleet(values["replicas"], values["router"]), load).result.to_json()
    return found["ttft_s"]["mean"], found["tpot_s"]["mean"]


def compare(settings: list[Setting], *, outsider: bool = False, **options: Any) -> tuple[pd.DataFrame, int]:
    """One row per setting with simulated values and errors in percent; how many could not be simulated."""
    rows, failed = [], 0
    simulated_by: Callable[..., tuple[float, float]] = simulate_as_outsider if outsider else simulate
    for setting in settings:
        try:
            ttft_s, tpot_s = simulated_by(setting, **options)
        except ValueError as problem:
            print(f"skipped: {problem}", file=sys.stderr)
            failed += 1
            continue
        simulated = {"simulated_ttft_s": ttft_s, "simulated_tpot_s": tpot_s}
        errors = {
            "ttft_error_percent": 100 * (ttft_s / setting.ttft_s - 1),
            "tpot_error_percent": 100 * (tpot_s / setting.tpot_s - 1),
        }
        rows.append({**setting.__dict__, **simulated, **errors})
    return pd.DataFrame(rows), failed


def error_table(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Median and mean absolute errors, with the median signed error (`bias`), in percent."""
    records = []
    for key, group in rows.groupby(by):
        record: dict[str, Any] = dict(zip(by, key, strict=True)) | {"n": len(group)}
        for name in ("ttft", "tpot"):
            error = group[f"{name}_error_percent"]
            record |= {f"{name}_median": error.abs().median(), f"{name}_mean": error.abs().mean()}
            record[f"{name}_bias"] = error.median()
        records.append(record)
    return pd.DataFrame(records)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--plain", action="store_true", help="without the launch scripts' settings")
    shown.add_argument("--as-outsider", action="store_true", help="as `headcount simulate` takes what the table says")
    parser.add_argument(
        "--constants",
        choices=("shipped", "prior"),
        default="shipped",
        help="prior: of kernel tables alone, without any fit to these runs",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object with every row")
    arguments = parser.parse_args()
    if arguments.as_outsider and arguments.constants != "shipped":
        parser.error("--as-outsider takes what `headcount simulate` takes, the shipped constants")
    settings, skipped = read_settings(arguments.data)
    begin_s = time.monotonic()
    mode = {"outsider": True} if arguments.as_outsider else {"plain": arguments.plain, "use": arguments.constants}
    rows, failed = compare(settings, **mode)
    lasted_s = time.monotonic() - begin_s
    rows["kind"] = np.where(rows["model"].isin(DENSE_MODELS), "dense", "moe")
    groups = error_table(rows, ["model", "gpu", "precision", "tp"])
    kinds = error_table(rows, ["kind", "gpu"])
    if arguments.json:
        content = {
            "schema_version": 1,
            "rows": rows.to_dict("records"),
            "groups": groups.to_dict("records"),
            "kinds": kinds.to_dict("records"),
            "skipped_rows": skipped,
            "not_simulated": failed,
            "lasted_s": lasted_s,
            "assumptions": [list(row) for row in ASSUMPTIONS],
        }
        print(json.dumps(content, indent=1))
        return 0
    for name, text in ASSUMPTIONS:
        print(f"assumed  {name}: {text}")
    print(f"\nrows left out: {skipped}; settings not simulated: {failed}; errors in %")
    print(f"{len(rows)} settings simulated in {lasted_s:.0f} s, {time.process_time():.0f} s of them on the processor\n")
    for table in (groups, kinds):
        print(table.to_string(index=False, float_format=lambda value: f"{value:.1f}"), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
