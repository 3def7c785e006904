"""`headcount calibrate check-scheduler`: our decisions beside the real engine's own."""

import secrets
from pathlib import Path

import click

from calibrate.interpreters.interpreters import interpreter_for
from calibrate.interpreters.recipe import PACKAGES
from files.names import check_names
from headcount.cli.command import Command
from headcount.cli.option_types import json_option, option
from headcount.cli.output import print_json
from headcount.cli.progress import progress_bar
from simulator.engines.engines import ENGINES, TITLES, VLLM
from simulator.engines.values import COUNT, FilePath, Text, WholeNumber


@click.command("check-scheduler", cls=Command)
@option("--engine", Text(), f"Engine to compare with: {' or '.join(ENGINES)}.", default=VLLM)
@option(
    "--about", Text(),
    "Topic of the cases. vllm: all, states, cancelled, sparse, context, compressed, lora, images, interval, "
    "offloading, offloading-windows, lmcache, store, lockstep, disaggregated, push, balancer; sglang: all, cancelled, "
    "windows, states, speculative, speculative-states, speculative-windows, attention-dp, radix-tree.",
    default="all",
)  # fmt: skip
@option("--cases", COUNT, "Random cases.", default=200)
@option("--seed", WholeNumber(0), "Seed of the cases.  [default: a new one, printed]")
@option("--version", Text(), "Installed release to compare with.  [default: the newest]")
@option("--python", FilePath(), "Another Python interpreter that has the engine.")
@json_option
def check_scheduler_command(
    *, engine: str, about: str, cases: int, seed: int | None, version: str | None, python: Path | None, as_json: bool
) -> int:
    """Compare our scheduler's decisions with the real engine's own scheduler, on random cases.

    The engine's own classes run without a GPU, in an interpreter from 'headcount vllm install' or 'headcount sglang
    install'. Each step is compared: what is scheduled, preempted, cached and free. Exit code 1 on any difference.
    """
    from conformance.checks import CHECKS, Found  # noqa: PLC0415

    check_names([engine], ENGINES, "engine")
    if about == "apart":  # its name in 0.1
        click.echo("headcount: --about apart is now called --about disaggregated", err=True)
        about = "disaggregated"
    check_names([about], CHECKS[engine], f"--about of {TITLES[engine]}")
    real = interpreter_for(version, python, PACKAGES[engine])
    drawn = secrets.randbelow(2**31) if seed is None else seed
    with progress_bar(f"cases compared with {TITLES[engine]}, seed {drawn}", total=cases) as bar:

        def watch(now: Found) -> None:
            bar.advance()
            bar.note(now.says())

        found = CHECKS[engine][about](real, num_cases=cases, seed=drawn, watch=watch)
    if as_json:
        print_json(found.to_json())
    else:
        click.echo("\n".join([f"{found.says()}; {len(found.differences)} cases differ", *found.first()]))
    return int(bool(found.differences))
