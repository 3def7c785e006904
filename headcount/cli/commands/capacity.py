"""`headcount capacity`: users per GPU count."""

import sys
from collections.abc import Iterator
from typing import Any

import click

from headcount.cli.option_types import FilePath, IntegerList, WholeNumber
from headcount.cli.options import (
    deployment_options,
    engine_options,
    output_options,
    scheduler_options,
    slo_from,
    slo_options,
    workload_options,
)


@click.command("capacity")
@deployment_options
@click.option("--gpus", type=IntegerList(), default="1,2,4,8", show_default=True, help="GPU counts to answer for.")
@click.option(
    "--workload", default="chat", show_default=True, help="A preset, or a trace file (Azure CSV, Mooncake JSONL)."
)
@workload_options
@slo_options
@scheduler_options
@click.option(
    "--replications", type=WholeNumber(2, 10_000), default=10, show_default=True, help="Independent runs per load."
)
@click.option("--report", type=FilePath(), help="Also write an HTML report to this file.")
@output_options
def command(**values: Any) -> int:
    """How many concurrent users each GPU count serves within the SLO.

    Users are active sessions, thinking or waiting. For each GPU count every tensor-parallel size that holds the
    model is tried; the number of users is bracketed and bisected, each load simulated in 10 or more replications.
    """
    from headcount.release_warning import warn_newer_release  # noqa: PLC0415
    from headcount.report import prepare_report, write_report  # noqa: PLC0415  imported once the command runs
    from headcount.strict import OUTSIDE_CALIBRATION, check_architecture  # noqa: PLC0415
    from headcount.text.capacity_text import capacity_text  # noqa: PLC0415
    from simulator.study.capacity_table import capacity_rows  # noqa: PLC0415

    question = _question(values)
    check_architecture(question.architecture, values["strict"])
    warn_newer_release(values["vllm_version"])
    if values["strict"] and _outside_calibration(question):
        return OUTSIDE_CALIBRATION
    if values["report"] is not None:
        prepare_report(values["report"], "--report")
    rows = list(_watched(question, capacity_rows))
    _warn_cut_answers(question, rows)
    if _leaves_profile(rows) and values["strict"]:
        return OUTSIDE_CALIBRATION
    answer = {"schema_version": 1, **_inputs(question, rows, values), "capacity": [row.to_json() for row in rows]}
    if values["report"] is not None:
        write_report(values["report"], question, rows, values["workload"])
    if values["as_json"]:
        from headcount.cli.json_output import print_json  # noqa: PLC0415

        print_json(answer)
    else:
        capacity_text(question, rows, workload=values["workload"], report=values["report"])
    return _exit_code(rows)


def _warn_cut_answers(question: Any, rows: list[Any]) -> None:
    """Tell on stderr of a trace's answers that end at max_model_len; a population's conversations end before it."""
    from headcount.load_warnings import warn_cut_answers  # noqa: PLC0415  with the next, imported once the command runs
    from workloads.trace import Trace  # noqa: PLC0415

    plan = next((row.plan for row in rows if row.plan is not None), None)
    if plan is not None and isinstance(question.workload, Trace):
        warn_cut_answers(question.workload.table, plan.engine.max_model_len)


def _question(values: dict[str, Any]) -> Any:
    from kvcache.models.catalog import find_gpu, load_model  # noqa: PLC0415
    from simulator.fleet.fleet import check_router  # noqa: PLC0415
    from simulator.study.capacity_table import CapacityQuestion  # noqa: PLC0415
    from workloads.load import load_workload  # noqa: PLC0415

    check_router(values["router"])
    workload = load_workload(values["workload"], trace_block_size=values["trace_block_size"])
    workload, think_time_s = _with_think_time(workload, values["think_time"])
    return CapacityQuestion(
        architecture=load_model(values["model"]),
        gpu=find_gpu(values["gpu"]),
        gpus=values["gpus"],
        workload=workload,
        think_time_s=think_time_s,
        slo=slo_from(values),
        options=engine_options(values),
        tensor_parallel_size=values["tensor_parallel_size"],
        router=values["router"],
        replications=values["replications"],
        seed=values["seed"],
    )


def _outside_calibration(question: Any) -> bool:
    """Whether any layout that would be searched has step times neither measured nor given; says so on stderr."""
    from headcount.strict import outside_calibration  # noqa: PLC0415  imported once the command runs
    from simulator.study.capacity_table import replica_plans  # noqa: PLC0415

    plans = (plan for gpus in question.gpus for plan in replica_plans(question, gpus))
    return any(outside_calibration(plan.latency, question.gpu.name, strict=True) for plan in plans)


def _with_think_time(workload: Any, think_time_s: float | None) -> tuple[Any, float]:
    """The workload with the asked think time, and its mean; a trace takes the chat preset's."""
    from workloads.load import load_preset  # noqa: PLC0415
    from workloads.population import Population  # noqa: PLC0415

    if isinstance(workload, Population):
        workload = workload if think_time_s is None else workload.with_think_time(think_time_s)
        return workload, workload.think_time_s.mean()
    return workload, think_time_s if think_time_s is not None else load_preset("chat").think_time_s.mean()


def _watched(question: Any, capacity_rows: Any) -> Iterator[Any]:
    """Rows as they are found, under a progress bar on stderr."""
    from headcount.cli.progress import note_compiling, progress_bar  # noqa: PLC0415

    note_compiling()
    with progress_bar("users per GPU count", total=len(question.gpus)) as bar:
        for row in capacity_rows(
            question,
            lambda seen: bar.note(f"{seen.size:,.4g} {seen.unit} → {seen.attainment:.1%} × {seen.num_replications}"),
        ):
            bar.advance()
            yield row


def _leaves_profile(rows: list[Any]) -> bool:
    """Whether an answer lies outside its latency profile; says so on stderr."""
    import numpy as np  # noqa: PLC0415  with the next, imported once the command runs

    from headcount.profile_warnings import warn_outside_profile  # noqa: PLC0415
    from simulator.latency.model import average_step  # noqa: PLC0415

    found = False
    for row in rows:
        if row.plan is not None and row.plan.latency.calibrated:
            parts = [item.totals for item in row.point.replications] if row.point is not None else []
            totals = np.concatenate(parts) if parts else None
            steps = [average_step(totals)] if totals is not None and totals["steps"].sum() else []
            found |= warn_outside_profile(row.plan.latency, steps)
    return found


def _inputs(question: Any, rows: list[Any], values: dict[str, Any]) -> dict[str, Any]:
    from headcount.strict import assumptions_json  # noqa: PLC0415  imported once the command runs

    slo = question.slo
    left_out = dict.fromkeys(item for row in rows if row.plan is not None for item in row.plan.not_simulated)
    return {
        "model": question.architecture.name,
        "gpu": question.gpu.name,
        "workload": values["workload"],
        "think_time_s": question.think_time_s,
        "slo": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s, "attainment": slo.attainment},
        "vllm_version": question.options.vllm_version,
        "replications": question.replications,
        "architecture_assumptions": assumptions_json(question.architecture.assumptions),
        "not_simulated": assumptions_json(left_out),
        "seed": question.seed,
    }


def _exit_code(rows: list[Any]) -> int:
    """2 if no GPU count can hold the model, 1 if none meets the SLO."""
    if any(row.users for row in rows):
        return 0
    running = [row for row in rows if row.runs]
    if running:
        print(f"headcount: no GPU count meets the SLO; {running[-1].reason}", file=sys.stderr)
        return 1
    raise ValueError(rows[-1].reason)
