"""`headcount calibrate`: beside the real vLLM."""

import secrets
from pathlib import Path
from typing import Any

import click


@click.group("calibrate")
def command() -> None:
    """Compare with the real vLLM."""


@command.command("check-scheduler")
@click.option("--cases", type=click.IntRange(1), default=200, show_default=True, help="Random cases to compare.")
@click.option("--seed", type=click.IntRange(0), help="Of the cases.  [default: a new one, printed]")
@click.option("--vllm-version", help="An installed release.  [default: the newest]")
@click.option("--python", type=click.Path(path_type=Path), help="Any interpreter that has vLLM, instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check_scheduler_command(
    cases: int, seed: int | None, vllm_version: str | None, python: Path | None, as_json: bool
) -> int:
    """Lay our scheduler beside vLLM's own, step by step, on random cases.

    Compares scheduled tokens, preemptions, finished requests, free blocks, running, waiting at every schedule()
    call, and prefix hits at every admission. Exit code 1 on any difference.
    """
    from calibrate.check_scheduler import check_scheduler  # noqa: PLC0415  imported once the command runs
    from calibrate.interpreters import interpreter_for  # noqa: PLC0415
    from headcount.json_output import print_json  # noqa: PLC0415
    from headcount.progress import progress_bar  # noqa: PLC0415

    interpreter = interpreter_for(vllm_version, python)
    chosen = secrets.randbelow(2**31) if seed is None else seed
    with progress_bar(f"cases beside vLLM, seed {chosen}", total=cases) as bar:

        def watch(found: Any) -> None:
            bar.advance()
            bar.note(f"{found.steps:,} steps, {found.preemptions:,} preemptions")

        found = check_scheduler(interpreter, num_cases=cases, seed=chosen, watch=watch)
    if as_json:
        print_json({"schema_version": 1, **found.to_json()})
    else:
        _print_comparison(found)
    return 1 if found.differences else 0


def _print_comparison(found: Any) -> None:
    click.echo(
        f"vLLM {found.vllm_version}, seed {found.seed}: {found.cases:,} cases, {found.steps:,} steps, "
        f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits compared; "
        f"{len(found.differences)} cases differ"
    )
    if found.differences:
        first = found.differences[0]
        click.echo(f"first difference, case {first.case}: {first.engine}\n  ours: {first.ours}\n  vLLM: {first.vllm}")
