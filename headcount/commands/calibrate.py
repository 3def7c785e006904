"""`headcount calibrate`: beside the real vLLM."""

import secrets
from pathlib import Path
from typing import Any

import click

from headcount.command_group import NearestGroup
from headcount.commands.calibrate_fit import check_command, fit_command
from headcount.commands.calibrate_record import record_command
from headcount.option_types import FilePath


@click.group("calibrate", cls=NearestGroup)
def command() -> None:
    """Compare with the real vLLM, fit to it."""


command.add_command(fit_command)
command.add_command(check_command)


command.add_command(record_command)


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


@command.command("memory-page")
@click.option(
    "--examples",
    type=FilePath(),
    help="CSV of what the guides claim: id, line, claimed, recomputed, verdict.  [default: as on the page at --out]",
)
@click.option("--out", required=True, type=FilePath(), help="The Markdown file to write; what it claims is kept.")
def memory_page_command(examples: Path | None, out: Path) -> int:
    """Write the page on the memory model: formulas, and the worked examples of widely read guides recomputed."""
    from calibrate.memory_page import known_claims, memory_page  # noqa: PLC0415  imported once the command runs
    from headcount.out_files import check_out_file, write_whole  # noqa: PLC0415

    check_out_file("--out", out, example="memory.md")
    if examples is not None and not examples.is_file():
        raise ValueError(f"--examples: no file {examples}")
    write_whole(out, memory_page(known_claims(examples, out)))
    click.echo(f"wrote {out}")
    return 0


@command.command("check-engine")
@click.option("--seed", type=click.IntRange(0), help="Of the load.  [default: a new one, printed]")
@click.option("--attention", default="full", show_default=True, help="full, or hybrid: with sliding windows.")
@click.option("--vllm-version", help="An installed release.  [default: the newest]")
@click.option("--python", type=click.Path(path_type=Path), help="Any interpreter that has vLLM, instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check_engine_command(
    seed: int | None, attention: str, vllm_version: str | None, python: Path | None, as_json: bool
) -> int:
    """Reproduce the schedule of a real vLLM engine at inference on the CPU.

    A tiny model with dummy weights serves a random load in a small pool; nothing is downloaded. The same arrivals
    through the compiled core must give the same schedule. Exit code 1 on any difference.
    """
    from calibrate.check_engine import ATTENTIONS, NUM_REQUESTS, check_engine  # noqa: PLC0415  once the command runs
    from calibrate.interpreters import interpreter_for  # noqa: PLC0415
    from headcount.json_output import print_json  # noqa: PLC0415
    from headcount.progress import progress_bar  # noqa: PLC0415

    if attention not in ATTENTIONS:
        raise ValueError(f"--attention: '{attention}' is neither of {', '.join(ATTENTIONS)}")
    interpreter = interpreter_for(vllm_version, python)
    chosen = secrets.randbelow(2**31) if seed is None else seed
    with progress_bar(f"requests through a real engine, seed {chosen}", total=NUM_REQUESTS) as bar:

        def watch(found: Any) -> None:
            bar.advance()
            bar.note(f"{found.steps:,} steps, {found.preemptions:,} preemptions")

        found = check_engine(interpreter, seed=chosen, attention=attention, watch=watch)
    if as_json:
        print_json({"schema_version": 1, **found.to_json()})
    else:
        click.echo(
            f"vLLM {found.vllm_version}, seed {found.seed}: {found.finished:,} requests, {found.steps:,} steps, "
            f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits; "
            + ("the schedule differs" if found.difference else "the schedule is the same")
        )
        _print_difference(found.difference)
    return 1 if found.difference else 0


@command.command("check-parameters")
@click.option("--configs", type=click.IntRange(0), default=10, show_default=True, help="Random ones per model type.")
@click.option("--seed", type=click.IntRange(0), help="Of the random ones.  [default: a new one, printed]")
@click.option("--python", type=click.Path(path_type=Path), help="Any interpreter with transformers and torch.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check_parameters_command(configs: int, seed: int | None, python: Path | None, as_json: bool) -> int:
    """Count parameters beside the models that transformers builds, without memory, from the same configs.

    Every catalog model, and random small configs of every model type; needs about a minute. Exit code 1 on any
    difference.
    """
    from calibrate.check_parameters import (  # noqa: PLC0415  imported once the command runs
        catalog_configs,
        check_parameters,
        random_configs,
    )
    from calibrate.interpreters import interpreter_for  # noqa: PLC0415
    from headcount.json_output import print_json  # noqa: PLC0415

    interpreter = interpreter_for(None, python)
    chosen = secrets.randbelow(2**31) if seed is None else seed
    found = check_parameters(interpreter, {**catalog_configs(), **random_configs(chosen, configs)})
    if as_json:
        print_json({"schema_version": 1, "seed": chosen, **found.to_json()})
    else:
        click.echo(
            f"transformers {found.transformers_version}, seed {chosen}: {len(found.equal):,} configs of "
            f"{len(found.model_types)} model types are equal in every component, {len(found.differences)} differ"
        )
        for name, reason in found.unknown.items():
            click.echo(f"{name}: not compared: {reason}")
        for difference in found.differences[:5]:
            click.echo(f"{difference.name}, ours and transformers': {difference.components}")
    return 1 if found.differences else 0


@command.command("check-weights")
@click.option("--python", type=click.Path(path_type=Path), help="An interpreter with vLLM.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check_weights_command(python: Path | None, as_json: bool) -> int:
    """Lay one rank's weights beside those that vLLM's own model code builds: elements, bytes, refused splits.

    Small models of every kind of layer under tensor, data and expert parallelism; needs about a minute. Exit code 1
    on any difference.
    """
    from dataclasses import asdict  # noqa: PLC0415  imported once the command runs

    from calibrate.check_weights import check_weights  # noqa: PLC0415
    from calibrate.interpreters import interpreter_for  # noqa: PLC0415
    from calibrate.weight_cases import weight_cases  # noqa: PLC0415
    from headcount.json_output import print_json  # noqa: PLC0415

    found = check_weights(interpreter_for(None, python), weight_cases())
    if as_json:
        print_json({"schema_version": 1, **asdict(found)})
    else:
        click.echo(
            f"vLLM {found.vllm_version}: {len(found.equal)} splits are equal to the last byte, "
            f"{len(found.refused_by_both)} refused by both, {found.num_different} differ"
        )
        for name, difference in found.differences.items():
            click.echo(f"{name}, our elements, vLLM's, our bytes, vLLM's: {difference}")
        for name, reason in (*found.refused_by_us.items(), *found.refused_by_vllm.items()):
            click.echo(f"{name}: refused by one alone: {reason}")
    return 1 if found.num_different else 0


@command.command("check-kv-cache")
@click.option("--cases", type=click.IntRange(0), default=2000, show_default=True, help="Random mixes of layers.")
@click.option("--models/--no-models", default=True, show_default=True, help="Every catalog model, built by vLLM.")
@click.option("--seed", type=click.IntRange(0), help="Of the random ones.  [default: a new one, printed]")
@click.option("--python", type=click.Path(path_type=Path), help="An interpreter with vLLM 0.32.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check_kv_cache_command(cases: int, models: bool, seed: int | None, python: Path | None, as_json: bool) -> int:
    """Lay out KV caches beside vLLM's own core, without a GPU: pages, groups, blocks, concurrency, tokens.

    Random mixes of layers need seconds; the catalog's models, which vLLM builds without memory, minutes. Exit code 1
    on any difference.
    """
    from calibrate.check_kv_cache import (  # noqa: PLC0415  imported once the command runs
        catalog_cases,
        check_kv_cache,
        random_cases,
    )
    from calibrate.interpreters import interpreter_for  # noqa: PLC0415
    from headcount.json_output import print_json  # noqa: PLC0415

    interpreter = interpreter_for(None, python)
    chosen = secrets.randbelow(2**31) if seed is None else seed
    found = check_kv_cache(interpreter, [*random_cases(chosen, cases), *(catalog_cases() if models else [])])
    if as_json:
        print_json({"schema_version": 1, "seed": chosen, **found.to_json()})
    else:
        click.echo(
            f"vLLM {found.vllm_version}, seed {chosen}: {found.equal:,} KV caches are equal, among them "
            f"{found.too_large:,} too large and {found.refused:,} refused by both; {len(found.differences)} differ"
        )
        for name, reason in found.not_built.items():
            click.echo(f"{name}: not compared: {reason}")
        for difference in found.differences[:5]:
            click.echo(f"{difference.name}, ours and vLLM's: {difference.fields}")
    return 1 if found.differences else 0


@command.command("fidelity-report")
@click.argument("results", nargs=-1, required=True, type=FilePath())
@click.option("--out", required=True, type=FilePath(), help="The Markdown file to write.")
def fidelity_report_command(results: tuple[Path, ...], out: Path) -> int:
    """Write the page on what was compared with vLLM from saved results of check-scheduler and check-engine --json."""
    from calibrate.fidelity_report import check_result, fidelity_page  # noqa: PLC0415  imported once the command runs
    from headcount.json_output import read_json_object  # noqa: PLC0415
    from headcount.out_files import check_out_file, write_whole  # noqa: PLC0415

    check_out_file("--out", out, example="fidelity.md")
    found = [read_json_object(path) for path in results]
    for path, result in zip(results, found, strict=True):
        check_result(path, result)
    page = fidelity_page(
        [result for result in found if "pairs" in result], [result for result in found if "attention" in result]
    )
    write_whole(out, page)
    click.echo(f"wrote {out}")
    return 0


@command.command("read")
@click.argument("files", nargs=-1, required=True, type=FilePath())
@click.option("--format", "format_name", help="Of all files: a name, or module:Name.  [default: by their content]")
@click.option("--before", type=FilePath(), help="The /metrics snapshot from before the run.")
@click.option("--out", type=FilePath(), help="All requests as a table: .csv or .parquet.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def read_command(
    files: tuple[Path, ...], format_name: str | None, before: Path | None, out: Path | None, as_json: bool
) -> int:
    """Say what benchmark results, traces, logs and metrics of real servers hold.

    Tool, load, latencies from the requests beside the tool's own figures, what was left out and why; figures that
    differ by more than 1 % are said.
    """
    from headcount import calibrate_text  # noqa: PLC0415  imported once the command runs
    from headcount.json_output import print_json  # noqa: PLC0415

    if out is not None:
        calibrate_text.check_out(out)
    found = calibrate_text.read_files(files, format_name, before)
    written = None if out is None else calibrate_text.write_requests(found, out)
    if as_json:
        print_json({"schema_version": 1, "files": [file.to_json() for file in found]})
    else:
        calibrate_text.print_files(found)
    if written is not None:
        click.echo(f"wrote {written:,} requests to {out}", err=True)
    return 0


def _print_comparison(found: Any) -> None:
    click.echo(
        f"vLLM {found.vllm_version}, seed {found.seed}: {found.cases:,} cases, {found.steps:,} steps, "
        f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits compared; "
        f"{len(found.differences)} cases differ"
    )
    _print_difference(found.differences[0] if found.differences else None)


def _print_difference(first: Any) -> None:
    if first is not None:
        click.echo(f"first difference, case {first.case}: {first.engine}\n  ours: {first.ours}\n  vLLM: {first.vllm}")
