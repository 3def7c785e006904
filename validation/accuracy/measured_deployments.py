"""Which deployments the shipped constants know from runs: simulator/latency/measured.toml."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from calibrate.check import replay
from simulator.latency.measured import FILE, Shape, deployment_text, shape_of
from simulator.latency.model import ServedModel
from validation.constants.cases import Case, closed_loops, runs_at_a_rate
from validation.constants.step_times import GPUS
from validation.measured.closed_loops import deployment_of
from validation.measured.launches import launch_of
from validation.measured.settings import Setting


def served_of(case: Case) -> ServedModel:
    if isinstance(case.run, Setting):
        return deployment_of(case.run, launch_of(case.run)).served
    return replay.deployment_of(str(case.run.source), case.run.options).served


def measured_text(data: Path) -> str:
    """Every model of the runs by its shape, with the deployments that were measured."""
    found: dict[tuple[str, Shape], set[str]] = defaultdict(set)
    for case, served in _deployments(data):
        found[case.model, shape_of(served.architecture)].add(deployment_text(served))
    lines = [
        "# Deployments of the public runs that the constants were fitted to, with each model's hidden size, layers and",
        "# vocabulary. Written by `python -m validation.accuracy --write-spreads`.",
    ]
    for (model, shape), deployments in sorted(found.items()):
        lines += ["", f'["{model}"]', f"shape = {list(shape)}", "deployments = ["]
        lines += [f'  "{name}",' for name in sorted(deployments)] + ["]"]
    return "\n".join(lines) + "\n"


def _deployments(data: Path) -> Iterator[tuple[Case, ServedModel]]:
    """One run of each; closed loops of a group are of one."""
    gpus = [gpu for family in GPUS.values() for gpu in family]
    for case in {case.group: case for case in closed_loops(data, gpus)}.values():
        yield case, served_of(case)
    for case in runs_at_a_rate(data):
        yield case, served_of(case)


def write_measured(data: Path) -> None:
    FILE.write_text(measured_text(data), encoding="utf-8")
