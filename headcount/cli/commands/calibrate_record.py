"""`headcount calibrate record`: the steps of a real engine, or the metrics of a live server."""

import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from calibrate.interpreters.interpreters import interpreter_for
from files.errors import HeadcountError
from headcount.cli.command import Command, section
from headcount.cli.option_types import flag, json_option, option
from headcount.cli.options import argument_options, interpreter_options
from headcount.cli.output import print_json
from headcount.cli.progress import progress_bar
from headcount.version import SCHEMA_VERSION
from simulator.engines.argument import MEMORY, arguments_of
from simulator.engines.values import FilePath, Number, Text
from simulator.engines.vllm.arguments import EngineArgs

if TYPE_CHECKING:
    from calibrate.record.design import Plan
    from calibrate.record.recorded_engine import Asked
    from calibrate.record.recorder import Progress

Values: TypeAlias = dict[str, Any]
"""The command's options by their names, as click has read them."""


@click.command("record", cls=Command)
@section(
    "Deployment",
    option("--model", Text(), "Hugging Face model name, a config.json or its folder; tiny to try it out."),
    argument_options(MEMORY, always_none=True, without=("vllm_version", "data_parallel_size", "environment")),
    option(
        "--load-format",
        Text(),
        "auto: load the weights in the model's folder. dummy: use random weights.  [default: dummy]",
    ),
    interpreter_options,
)
@section(
    "Loads",
    option(
        "--precision",
        Number("a share such as 0.03"),
        "Target relative standard error of a step's time, for the worst batch composition.",
        default=0.03,
    ),
    option("--max-seconds", Number("seconds, such as 600"), "Time limit for the loads after the engine has started."),
    flag("--plan-only", "Print a plan without starting an engine."),
    option("--temperature", Number("a number from 0"), "Sampling temperature.", default=0.0),
)
@section(
    "Or a live server",
    option("--url", Text(), "Address of a server, such as http://host:8000. Its /metrics are recorded over time."),
    option("--seconds", Number("seconds"), "Total time.", default=300.0),
    option("--interval", Number("seconds"), "Time between readings.", default=5.0),
    option("--log", FilePath(), "The server's log, for its iteration details."),
)
@section(
    "Output",
    option("--out", FilePath(), "Folder of the recording. Repeat the command to continue it."),
    json_option,
)
def record_command(**values: object) -> int:
    """Record the steps of a real vLLM engine, or the metrics of a live server.

    With --model, vLLM runs here with random weights. The loads separate prefill, decode, context, batch size and mixed
    steps; the composition and time of each step are recorded. If it is stopped, repeat the command to continue. Exit
    code 3 if the precision is not reached.

    With --url, only the /metrics of a server with its own traffic are read.
    """
    if (values["url"] is None) == (values["model"] is None):
        raise HeadcountError("give either --model, to run an engine here, or --url, to watch a live server")
    if values["url"] is not None:
        if values["plan_only"]:
            raise HeadcountError("--plan-only needs --model; a live server at --url is only watched, without a plan")
        return _record_server(values)
    return _plan_only(values) if values["plan_only"] else _record_engine(values)


def _asked(values: Values) -> "Asked":
    from calibrate.record.recorded_engine import Asked  # noqa: PLC0415  imported once the command runs

    if not 0 < values["precision"] < 1:
        raise HeadcountError(f"--precision is {values['precision']:g}; give a share above 0 and below 1, such as 0.03")
    if not 0 <= values["temperature"] < math.inf:
        raise HeadcountError(f"--temperature is {values['temperature']:g}; give 0 or more, such as 0.7")
    if values["max_seconds"] is not None and not values["max_seconds"] > 0:
        raise HeadcountError(f"--max-seconds is {values['max_seconds']:g}; give a time above 0")
    known = {"load_format", *(name for name, each in arguments_of(EngineArgs).items() if each.is_engine_s)}
    names = [option.name for option in record_command.params if option.name in known]
    engine = {str(name): values[str(name)] for name in names if values[str(name)] is not None}
    return Asked(model=values["model"], engine=engine, temperature=values["temperature"], precision=values["precision"])


def _out(values: Values) -> Path:
    if values["out"] is None:
        raise HeadcountError("--out is missing; name the folder of the recording")
    out: Path = values["out"]
    return out


def _plan_only(values: Values) -> int:
    from calibrate.record.design import pilot, plan_loads  # noqa: PLC0415
    from calibrate.record.record_model import TINY, assumed_limits, check_plannable, guessed_seconds, record_config  # noqa: PLC0415

    asked = _asked(values)
    config = record_config(asked.model)
    check_plannable(config, asked.engine)
    limits = assumed_limits(config, asked.engine)
    device = "cpu" if asked.model == TINY else "gpu"
    guess = guessed_seconds(config, device, asked.engine.get("tensor_parallel_size", 1))
    first = pilot(limits)
    plan = plan_loads(limits, guess, precision=asked.precision, done=[first], max_seconds=values["max_seconds"])
    _print_plan(plan, values["as_json"], limits.__dict__)
    return 0


def _print_plan(plan: "Plan", as_json: bool, limits: dict[str, object]) -> None:
    if as_json:
        loads = [
            {"load": asdict(load), "expected_s": seconds}
            for load, seconds in zip(plan.loads, plan.seconds, strict=True)
        ]
        found = {"relative_standard_error": plan.relative_error, "expected_s": sum(plan.seconds), "loads": loads}
        print_json({"schema_version": SCHEMA_VERSION, "assumed": limits, **found})
        return
    click.echo(_plan_line(plan))
    counts = Counter(load.name for load in plan.loads)
    seconds: Any = Counter[str]()
    for load, expected_s in zip(plan.loads, plan.seconds, strict=True):
        seconds[load.name] += expected_s
    _say_too_long(plan)
    for name, count in counts.items():
        click.echo(f"  {count} × {name:<28}{seconds[name]:8.1f} s")
    given = ", ".join(f"{name} {value:,}" for name, value in limits.items() if value is not None)
    click.echo(f"the engine was neither asked nor timed, so its speed is a guess: {given}")


def _say_too_long(plan: "Plan") -> None:
    if plan.too_long:
        click.echo(
            f"not recorded: the compositions of {plan.too_long} loads of more than 10,000 steps, or too long for "
            "--max-seconds"
        )


def _plan_line(plan: "Plan") -> str:
    reached = "" if plan.is_reached else "; no further load fits the time or may be repeated"
    return (
        f"plan: {len(plan.loads)} loads, about {sum(plan.seconds):,.0f} s, for a standard error of "
        f"{plan.relative_error:.1%} of a step's time at the worst composition{reached}"
    )


def _record_engine(values: Values) -> int:
    from calibrate.record.recorder import asked_config, record  # noqa: PLC0415

    asked, out = _asked(values), _out(values)
    asked_config(asked)  # a typing error is named also where no vLLM is installed
    python = interpreter_for(values["vllm_version"], values["python"], infers=True)
    last: list[Plan | None] = [None]
    with progress_bar(f"loads through {asked.model}", total=1) as bar:

        def watch(progress: Any) -> None:
            note = f"{progress.steps:,} steps, about {progress.expected_left_s:,.0f} s left, {progress.note}"
            bar.show(done=progress.done, total=max(progress.planned, 1), note=note)
            if progress.plan is not last[0]:
                last[0] = progress.plan
                if progress.plan.loads:
                    bar.say(_plan_line(progress.plan))

        try:
            found = record(asked, python, out, max_seconds=values["max_seconds"], watch=watch)
        except KeyboardInterrupt:
            click.echo(f"what is complete is kept in {out}; repeat the command to continue", err=True)
            raise
    if values["as_json"]:
        print_json(_recorded_json(found, out))
    else:
        _print_recorded(found, out, asked.precision)
    return 0 if found.is_complete else 3


def _recorded_json(found: "Progress", out: Path) -> dict[str, object]:
    times = found.times
    return {
        "schema_version": SCHEMA_VERSION,
        "out": str(out),
        "is_complete": found.is_complete,
        "loads": found.done,
        "loads_failed": found.failed,
        "loads_left": found.planned - found.done - found.failed,
        "steps": found.recorded_steps,
        "loads_too_long": 0 if found.plan is None else found.plan.too_long,
        "relative_standard_error": None if times is None else times.relative_error,
        "median_absolute_relative_error": None if times is None else times.median_error,
    }


def _print_recorded(found: "Progress", out: Path, precision: float) -> None:
    left = found.planned - found.done - found.failed
    click.echo(
        f"{out}: {found.recorded_steps:,} steps of {found.done} loads"
        + (f", {found.failed} loads that the engine could not run" if found.failed else "")
        + (f", {left} loads left: repeat the command to continue" if left else "")
    )
    if found.times is not None:
        click.echo(
            f"linear terms differ from a recorded step by {found.times.median_error:.1%} in the median; their standard "
            f"error at the worst recorded composition is {found.times.relative_error:.1%}"
        )
    if found.plan is not None:
        _say_too_long(found.plan)
    if not found.is_complete:
        click.echo(f"the precision asked for, {precision:.1%}, is not reached")


def _record_server(values: Values) -> int:
    from calibrate.record.watch_server import watch_server  # noqa: PLC0415

    out = _out(values)
    if not 0 < values["interval"] <= values["seconds"]:
        raise HeadcountError(
            f"--interval is {values['interval']:g} s; give a time above 0, at most --seconds ({values['seconds']:g})"
        )
    if not values["seconds"] < math.inf:
        raise HeadcountError("--seconds is inf; give a time that ends, such as 86400")
    total = int(values["seconds"] / values["interval"]) + 1
    with progress_bar(f"asking {values['url']}", total=total) as bar:

        def watch(note: str) -> None:
            bar.advance()
            bar.note(note)

        try:
            run = watch_server(
                values["url"], out, seconds=values["seconds"], interval_s=values["interval"], log=values["log"],
                watch=watch,
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(f"what was asked so far is kept in {out}", err=True)
            raise
    if values["as_json"]:
        found = {"options": dict(run.options), "aggregates": dict(run.aggregates), "excluded": dict(run.excluded)}
        print_json({"schema_version": SCHEMA_VERSION, "out": str(out), **found})
        return 0
    click.echo(f"{out}: {run.load.get('num_requests', 0):,.0f} requests finished on {values['url']}")
    for name, value in run.aggregates.items():
        click.echo(f"  {name:<28}{value:,.4g}")
    for reason, count in run.excluded.items():
        click.echo(f"left out: {count} {reason}")
    return 0
