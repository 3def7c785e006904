"""Commands that install, list and remove interpreters with a real engine."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from calibrate.interpreters import interpreters
from calibrate.interpreters.recipe import PACKAGES, Package, default_release, find_recipe
from files.documents import Json
from headcount.cli.command import Command
from headcount.cli.command_group import NearestGroup
from headcount.cli.option_types import flag, json_option, option
from headcount.cli.output import listing
from headcount.cli.progress import progress_bar
from simulator.engines.values import FilePath, Text


def interpreter_group(name: str, title: str) -> click.Group:
    """The commands for one engine's interpreters."""
    package = PACKAGES[name]

    says = (
        f"Install and list real {title} releases to compare with.\n\n"
        "Each release has an environment of its own in the user's cache folder and runs on the CPU."
    )

    @click.group(name, cls=NearestGroup, help=says)
    def group() -> None: ...

    @group.command(
        "install", cls=Command, short_help="Install a release for the CPU.",
        help=f"Install a release of {title} for the CPU, or find the one that is there.",
    )  # fmt: skip
    @option("--version", Text(), f"Release of {title}.", default=default_release(package))
    @option("--python-base", FilePath(), "Python interpreter to build from.  [default: headcount's own]")
    @option("--index-url", Text("URL"), "Package index with torch's CPU build.  [default: pip's own settings]")
    @flag("--yes", "Do not ask before downloading.")
    def install_command(version: str, python_base: Path | None, index_url: str | None, yes: bool) -> int:
        return _install(package, version, python_base, index_url, yes)

    @group.command("list", cls=Command, short_help="List installed releases, and whether each can be imported.")
    @json_option
    def list_command(as_json: bool) -> int:
        """List installed releases with size, path, and whether each can be imported."""
        return _list(package, as_json)

    @group.command("remove", cls=Command, short_help="Delete an installed release.")
    @click.argument("version")
    def remove_command(version: str) -> int:
        """Delete an installed release."""
        freed = interpreters.remove(version, package=package, say=_tell)
        click.echo(f"{title} {version} removed, {freed / 1e9:.1f} GB freed")
        return 0

    return group


def _install(package: Package, version: str, python_base: Path | None, index_url: str | None, yes: bool) -> int:
    title, recipe = package.title, find_recipe(version, package)
    if version not in {each.version for each in interpreters.installed(package)}:
        if not recipe.is_for(version):
            _tell(f"No recipe is known for {title} {version}; the nearest, that of {recipe.line}, is used.")
        if recipe.limit:
            _tell(f"Note: {recipe.limit}.")
        folder = interpreters.interpreters_folder(package)
        size = f"{recipe.disk_bytes / 1e9:.1f} GB"
        _tell(f"This downloads {title} {version} with torch for the CPU: {size} in {folder}")
        _confirm(yes)
    with _progress(title, interpreters.BUILD_STEPS) as say:
        made = interpreters.install(version, package=package, python_base=python_base, index_url=index_url, say=say)
    click.echo(f"{made.version} {made.python}")
    return 0


def _list(package: Package, as_json: bool) -> int:
    found: list[Json] = []
    for each in interpreters.installed(package):
        try:
            interpreters.imported_version(each.python, package=package)
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
        _tell(f"No {package.title} is installed; 'headcount {package.name} install' installs one.")
        return 0
    rows = [
        (one["version"], f"{one['size_bytes'] / 1e9:.1f} GB", one["problem"] or "yes", one["python"]) for one in found
    ]
    return listing("interpreters", found, (package.title, "size", "imports", "Python"), rows, as_json=as_json)


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _confirm(yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("this is not a terminal; give --yes to install without asking")
    click.confirm("Go on?", default=True, abort=True, err=True)


@contextmanager
def _progress(title: str, steps: int) -> Iterator[Callable[[str], None]]:
    """A bar in a terminal, a line per step elsewhere."""
    shows_bar = sys.stderr is not None and sys.stderr.isatty()
    with progress_bar(title, total=steps) as bar:

        def say(text: str) -> None:
            bar.advance()
            bar.note(text)
            if not shows_bar:
                _tell(text)

        yield say
