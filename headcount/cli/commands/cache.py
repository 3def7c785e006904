"""`headcount cache`: what is kept so that nothing is computed twice."""

import shutil
from typing import Any

import click

from files import outputs
from files.cache.private_folder import folder_bytes
from files.cache.row_store import RowStore
from files.errors import HeadcountError
from headcount.cli.command import Command
from headcount.cli.command_group import NearestGroup
from headcount.cli.option_types import flag, json_option
from headcount.cli.output import print_json
from headcount.cli.saved_answers import kept_answers
from headcount.version import SCHEMA_VERSION
from simulator.study.store.store import kept_simulations


@click.group("cache", cls=NearestGroup)
def command() -> None:
    """Saved simulations, answers and compiled kernels in the cache folder.

    The folder is that of the environment variable HEADCOUNT_CACHE_DIR, or the user's own.
    """


@command.command("info", cls=Command, short_help="Show where the cache is and how large it is.")
@json_option
def info_command(as_json: bool) -> int:
    """Show the cache folder, and the number and size of saved simulations, answers and compiled kernels."""
    folder, found = outputs.cache_folder(), dict[str, object]()
    for store in _stores():
        count, size = store.count() if store.path.exists() else 0, folder_bytes(store.path.parent)
        found |= {store.kind: count, f"{store.kind}_bytes": size}
        store.close()
    found["kernels_bytes"] = folder_bytes(folder / "kernels")
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "path": str(folder), **found})
    else:
        click.echo(f"{folder}")
        click.echo(f"simulations  {found['simulations']:,}, {_megabytes(found['simulations_bytes'])}")
        click.echo(f"answers      {found['answers']:,}, {_megabytes(found['answers_bytes'])}")
        click.echo(f"kernels      {_megabytes(found['kernels_bytes'])}")
    return 0


@command.command("clear", cls=Command, short_help="Delete finished simulations and answers.")
@flag("--kernels", "Also delete the compiled kernels. The next run compiles them again.")
def clear_command(kernels: bool) -> int:
    """Delete saved simulations and answers. They are computed again when a question needs them."""
    folder = outputs.cache_folder()
    stores = _stores()
    places = [*(store.path.parent for store in stores), *([folder / "kernels"] if kernels else [])]
    before = sum(map(folder_bytes, places))
    for store in stores:
        store.damaged.unlink(missing_ok=True)
        if store.path.exists():
            is_clear = store.clear()
            store.close()
            if not is_clear:
                raise HeadcountError(
                    f"finished {store.kind} were not deleted; end the program that uses them, then try again"
                )
    if kernels and (folder / "kernels").is_dir():
        shutil.rmtree(folder / "kernels")
    click.echo(f"{_megabytes(before - sum(map(folder_bytes, places)))} freed in {folder}")
    return 0


def _stores() -> tuple[RowStore[Any], ...]:
    return kept_simulations(), kept_answers()


def _megabytes(size: object) -> str:
    assert isinstance(size, int), "a size is a whole number of bytes"
    return f"{size / 1e6:,.1f} MB"
