"""`headcount calibrate check-scheduler`: compare with what the real scheduler decides."""

import secrets
from pathlib import Path

import click

from headcount.cli.command import Command
from headcount.cli.option_types import json_option, option
from headcount.cli.options import interpreter_options
from simulator.engines.values import WholeNumber


@click.command("check-scheduler", cls=Command)
@option("--cases", WholeNumber(1), "Random cases to compare.", default=200)
@option("--seed", WholeNumber(0), "Seed of the cases.  [default: a new one, printed]")
@interpreter_options
@json_option
def check_scheduler_command(
    cases: int, seed: int | None, vllm_version: str | None, python: Path | None, as_json: bool
) -> int:
    """Compare our schedulers with vLLM's engine core, step by step, on random cases.

    At every schedule() call: the batch in its order, its tokens, prefix hits, preemptions in their order, finished
    requests, free blocks, running, waiting. Exit code 1 on any difference.
    """
    from calibrate.conformance.check_scheduler import Comparison, check_scheduler  # noqa: PLC0415  once the command runs
    from calibrate.conformance.interpreters.interpreters import interpreter_for  # noqa: PLC0415
    from headcount.cli.output import print_json  # noqa: PLC0415
    from headcount.cli.progress import progress_bar  # noqa: PLC0415

    interpreter = interpreter_for(vllm_version, python)
    seed = secrets.randbelow(2**31) if seed is None else seed
    with progress_bar(f"cases compared with vLLM, seed {seed}", total=cases) as bar:

        def watch(found: Comparison) -> None:
            bar.advance()
            bar.note(f"{found.steps:,} steps, {found.preemptions:,} preemptions")

        found = check_scheduler(interpreter, num_cases=cases, seed=seed, watch=watch)
    if as_json:
        print_json({"schema_version": 1, **found.to_json()})
    else:
        click.echo(
            f"vLLM {found.vllm_version}, seed {found.seed}: {found.cases:,} cases, {found.steps:,} steps, "
            f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits compared; "
            f"{len(found.differences)} cases differ"
        )
        click.echo("".join(f"{line}\n" for each in found.differences[:1] for line in each.lines()), nl=False)
    return int(bool(found.differences))
