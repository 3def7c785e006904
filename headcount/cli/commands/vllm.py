"""`headcount vllm`: interpreters with a real vLLM."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headcount.cli.command import Command
from headcount.cli.command_group import NearestGroup
from headcount.cli.option_types import flag, json_option, option
from kvcache.releases import DEFAULT_RELEASE
from simulator.engines.values import FilePath, Text


@click.group("vllm", cls=NearestGroup)
def command() -> None:
    """Install and list real vLLM releases to compare with.

    Each release has an environment of its own in the user's cache folder and runs on the CPU.
    """


@command.command("install", cls=Command, short_help="Install a release for the CPU.")
@option("--version", Text(), "Release of vLLM.", default=DEFAULT_RELEASE)
@option("--python-base", FilePath(), "Python interpreter to build from.  [default: headcount's own]")
@option("--index-url", Text("URL"), "Package index with torch's CPU build.  [default: pip's own settings]")
@flag("--yes", "Do not ask before downloading.")
def install_command(version: str, python_base: Path | None, index_url: str | None, yes: bool) -> int:
    """Install a release of vLLM for the CPU, or find the one that is there."""
    from calibrate.interpreters import interpreters  # noqa: PLC0415  imported once the command runs
    from calibrate.interpreters.recipe import find_recipe  # noqa: PLC0415

    recipe = find_recipe(version)
    if version not in {each.version for each in interpreters.installed()}:
        if not recipe.is_for(version):
            _tell(f"No recipe is known for vLLM {version}; the nearest, that of {recipe.line}, is used.")
        if recipe.limit:
            _tell(f"Note: {recipe.limit}.")
        folder = interpreters.interpreters_folder()
        _tell(f"This downloads vLLM {version} with torch for the CPU: {recipe.disk_bytes / 1e9:.1f} GB in {folder}")
        _confirm(yes)
    with _progress(interpreters.BUILD_STEPS) as say:
        made = interpreters.install(version, python_base=python_base, index_url=index_url, say=say)
    click.echo(f"{made.version} {made.python}")
    return 0


@command.command("list", cls=Command, short_help="List installed releases, and whether each can be imported.")
@json_option
def list_command(as_json: bool) -> int:
    """List installed releases with size, path, and whether each can be imported."""
    from calibrate.interpreters.interpreters import imported_version, installed  # noqa: PLC0415  imported once the command runs
    from headcount.cli.output import listing  # noqa: PLC0415

    found: list[dict[str, Any]] = []
    for each in installed():
        try:
            imported_version(each.python)
            problem = None
        except ValueError as error:
            problem = str(error)
        found.append(
            {
                "version": each.version,
                "python": str(each.python),
                "size_bytes": each.size_bytes(),
                "imports": problem is None,
                "problem": problem,
            }
        )
    if not found and not as_json:
        _tell("No vLLM is installed; 'headcount vllm install' installs one.")
        return 0
    rows = [
        (one["version"], f"{one['size_bytes'] / 1e9:.1f} GB", one["problem"] or "yes", one["python"]) for one in found
    ]
    return listing("interpreters", found, ("vLLM", "size", "imports", "Python"), rows, as_json=as_json)


@command.command("remove", cls=Command, short_help="Delete an installed release.")
@click.argument("version")
def remove_command(version: str) -> int:
    """Delete an installed release."""
    from calibrate.interpreters.interpreters import remove  # noqa: PLC0415  imported once the command runs

    click.echo(f"vLLM {version} removed, {remove(version, say=_tell) / 1e9:.1f} GB freed")
    return 0


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _confirm(yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("this is not a terminal; give --yes to install without asking")
    click.confirm("Go on?", default=True, abort=True, err=True)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A bar in a terminal, a line per step elsewhere."""
    from headcount.cli.progress import progress_bar  # noqa: PLC0415

    shows_bar = sys.stderr is not None and sys.stderr.isatty()
    with progress_bar("vLLM", total=steps) as bar:

        def say(text: str) -> None:
            bar.advance()
            bar.note(text)
            if not shows_bar:
                _tell(text)

        yield say
