"""Closed-loop runs as `headcount simulate` takes what their table says, without the launch scripts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from calibrate.check.replay import client_lag_s
from headcount.cli.commands.simulate import command as simulate_command
from headcount.cli.given import Given
from headcount.inputs.load import AskedLoad, LoadInput
from headcount.inputs.routing import DeployedInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.serving import serve
from kvcache.errors import DoesNotFitError
from simulator.deployment import resolve
from validation.accuracy.closed_loops import compare, error_rows, errors_of, kinds_of_errors
from validation.accuracy.intervals import coverage, shipped_ends
from validation.measured.closed_loops import simulate, tool_of
from validation.measured.launches import BLACKWELL, LENGTH_SPREAD, launch_of
from validation.measured.settings import Setting, read_settings

MAX_NUM_BATCHED_TOKENS = 8192  # which the runs are known to have had


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
    return [*words, "--max-num-batched-tokens", f"{MAX_NUM_BATCHED_TOKENS}"]


def simulate_as_outsider(setting: Setting, *more: str) -> tuple[float, float]:
    """Mean TTFT with mean TPOT, in seconds, of that command line, as the run's client would have seen them."""
    ttft_s, tpot_s = typed(setting, *more)
    return ttft_s + client_lag_s(tool_of(setting), setting.concurrency), tpot_s


def typed(setting: Setting, *more: str) -> tuple[float, float]:
    """What that command line prints of both; `more` options win over its own.

    Where it refuses because the model's longest context does not fit, that is cut to the requests', as it advises.
    Raises ValueError where the command refuses still.
    """
    try:
        return _simulate_command(setting, more)
    except DoesNotFitError:
        return _simulate_command(setting, ("--max-model-len", f"{setting.isl + setting.osl}", *more))


def _simulate_command(setting: Setting, more: Sequence[str]) -> tuple[float, float]:
    """What the command does, up to printing."""
    try:
        given = Given(simulate_command.make_context("simulate", [*command_line(setting)[1:], *more]).params)
    except click.ClickException as problem:
        raise ValueError(problem.format_message()) from None
    asked, deployed = given.engine.on(str(given.values["model"]), str(given.values["gpu"])), given.input(DeployedInput)
    deployment = resolve(asked.architecture, asked.gpu, asked.args)
    load = AskedLoad(load=given.input(LoadInput), traffic=given.input(TrafficInput))
    found = serve(deployment, deployed.replicas, deployed.router, load).result.to_json()
    return found["ttft_s"]["mean"], found["tpot_s"]["mean"]


CHANGES: dict[str, Callable[[Setting], tuple[float, float]]] = {
    "as typed": simulate_as_outsider,
    "--kv-cache-dtype of the launch script": lambda setting: simulate_as_outsider(
        setting, "--kv-cache-dtype", launch_of(setting).kv_cache_dtype
    ),
    "--max-num-seqs of the launch script": lambda setting: simulate_as_outsider(
        setting, "--max-num-seqs", f"{launch_of(setting).max_num_seqs}"
    ),
    "--vllm-version of the run": lambda setting: simulate_as_outsider(setting, "--vllm-version", setting.version),
    "all of the launch script": simulate,
}


def outsider(data: Path) -> dict[str, Any]:
    """All settings as typed from the table; what single settings of the launch scripts change."""
    settings, _ = read_settings(data)
    rows, failed = compare(settings, simulate_as_outsider)
    blackwell = [setting for setting in settings if setting.gpu in BLACKWELL][::2]
    changes = {name: compare(blackwell, simulated_by)[0] for name, simulated_by in CHANGES.items()}
    return {
        "all": errors_of(rows),
        "failed": failed,
        "kinds": kinds_of_errors(rows),
        "intervals": coverage(settings, error_rows(rows), shipped_ends(settings)),
        "changes": {name: errors_of(found) for name, found in changes.items()},
    }
