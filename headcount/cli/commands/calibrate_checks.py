"""`headcount calibrate check-…`: compare with what the real software does."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headcount.cli.option_types import FilePath

MAX_SHOWN = 5  # differences; the JSON has all

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_release = click.option("--vllm-version", help="An installed release.  [default: the newest]")


def _python(text: str = "Another interpreter that has vLLM.") -> Callable[..., Any]:
    return click.option("--python", type=FilePath(), help=text)


def _seed(of: str) -> Callable[..., Any]:
    def drawn(_: click.Context, __: click.Parameter, seed: int | None) -> int:
        return secrets.randbelow(2**31) if seed is None else seed

    text = f"Seed of the {of}.  [default: a new one, printed]"
    return click.option("--seed", type=click.IntRange(0), callback=drawn, help=text)


def _tell(as_json: bool, found: dict[str, Any], lines: Iterable[str], *, differs: bool) -> int:
    """Print a comparison either way; its exit code."""
    from headcount.cli.json_output import print_json  # noqa: PLC0415  imported once the command runs

    if as_json:
        print_json({"schema_version": 1, **found})
    else:
        click.echo("\n".join(lines))
    return int(differs)


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[Any], None]]:
    """What a comparison of schedules calls after each case, with all that it found so far."""
    from headcount.cli.progress import progress_bar  # noqa: PLC0415  imported once the command runs

    with progress_bar(title, total=total) as bar:

        def watch(found: Any) -> None:
            bar.advance()
            bar.note(f"{found.steps:,} steps, {found.preemptions:,} preemptions")

        yield watch


def _first(difference: Any) -> list[str]:
    """Of two schedules, where they part."""
    if difference is None:
        return []
    head = f"first difference, case {difference.case}: {difference.engine}"
    return [head, f"  {difference.of}: {difference.ours}", f"  vLLM: {difference.vllm}"]


@click.command("check-scheduler")
@click.option("--cases", type=click.IntRange(1), default=200, show_default=True, help="Random cases to compare.")
@_seed("cases")
@_release
@_python()
@_json
def check_scheduler_command(cases: int, seed: int, vllm_version: str | None, python: Path | None, as_json: bool) -> int:
    """Compare our schedulers with vLLM's engine core, step by step, on random cases.

    At every schedule() call: the batch in its order, its tokens, prefix hits, preemptions in their order, finished
    requests, free blocks, running, waiting. Exit code 1 on any difference.
    """
    from calibrate.conformance.check_scheduler import check_scheduler  # noqa: PLC0415  imported once the command runs
    from calibrate.conformance.interpreters.interpreters import interpreter_for  # noqa: PLC0415
    from headcount.cli.progress import note_compiling  # noqa: PLC0415

    interpreter = interpreter_for(vllm_version, python)
    note_compiling()
    with _progress(f"cases compared with vLLM, seed {seed}", cases) as watch:
        found = check_scheduler(interpreter, num_cases=cases, seed=seed, watch=watch)
    summary = (
        f"vLLM {found.vllm_version}, seed {found.seed}: {found.cases:,} cases, {found.steps:,} steps, "
        f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits compared; "
        f"{len(found.differences)} cases differ"
    )
    lines = [summary, *_first(found.differences[0] if found.differences else None)]
    return _tell(as_json, found.to_json(), lines, differs=bool(found.differences))


@click.command("check-engine")
@_seed("load")
@click.option("--attention", default="full", show_default=True, help="full, or hybrid: with sliding windows.")
@_release
@_python()
@_json
def check_engine_command(
    seed: int, attention: str, vllm_version: str | None, python: Path | None, as_json: bool
) -> int:
    """Reproduce the schedule of a real vLLM engine at inference on the CPU.

    A tiny model with dummy weights serves a random load in a small pool; nothing is downloaded. The same arrivals
    through the compiled core must give the same schedule. Exit code 1 on any difference.
    """
    from calibrate.conformance.cases.engine_cases import ATTENTIONS, NUM_REQUESTS  # noqa: PLC0415  once the command runs
    from calibrate.conformance.check_engine import check_engine  # noqa: PLC0415
    from calibrate.conformance.interpreters.interpreters import interpreter_for  # noqa: PLC0415

    if attention not in ATTENTIONS:
        raise ValueError(f"--attention: '{attention}' is neither of {', '.join(ATTENTIONS)}")
    interpreter = interpreter_for(vllm_version, python)
    with _progress(f"requests through a real engine, seed {seed}", NUM_REQUESTS) as watch:
        found = check_engine(interpreter, seed=seed, attention=attention, watch=watch)
    summary = (
        f"vLLM {found.vllm_version}, seed {found.seed}: {found.finished:,} requests, {found.steps:,} steps, "
        f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits; "
        + ("the schedule differs" if found.difference else "the schedule is the same")
    )
    return _tell(as_json, found.to_json(), [summary, *_first(found.difference)], differs=bool(found.difference))


COMMANDS = (check_scheduler_command, check_engine_command)
