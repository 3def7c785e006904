"""The settings' own readers as the command line's types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from files.errors import HeadcountError
from files.names import shortened
from headcount.inputs.out_path import OutPath
from simulator.engines import values
from simulator.engines.values import Kind, Switch

Option = Callable[[Any], Any]  # a decorator


class Reads(click.ParamType[Any]):
    """An option's type that reads as a setting does, and fails with its message."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of models, GPUs and workloads, also the last of a list; files."""
        if isinstance(self.kind, values.FilePath):
            return [CompletionItem(incomplete, type="file")]
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(before + comma + name) for name in _known(str(param.name)) if name.startswith(last)]


def _known(option_name: str) -> tuple[str, ...]:
    """What such an option may name; nothing where it names nothing that is known."""
    if option_name in ("gpu", "model"):
        from kvcache.models import catalog  # noqa: PLC0415  imported where a shell asks

        return catalog.gpu_names() if option_name == "gpu" else (*catalog.short_names(), *catalog.model_names())
    if option_name == "workload":
        from workloads.load import preset_names  # noqa: PLC0415  as above

        return preset_names()
    return ()


def option(names: str, kind: Kind, says: str, *, default: object = None, **more: Any) -> Option:
    """An option whose value `kind` reads; `names` as click has them. Its default is shown, unless `says` does."""
    if isinstance(kind, Switch):
        more["default"] = default  # else click would take None as off
        more |= {} if kind.has_opposite else {"is_flag": True}
    else:
        more |= {"type": Reads(kind)} | ({} if default is None else {"default": default})
    is_shown = default not in (None, ()) and "[default: " not in says
    return click.option(*names.split(), show_default=is_shown, help=says, **more)


def flag(names: str, says: str, **more: Any) -> Option:
    """An option without a value, off unless given."""
    return click.option(*names.split(), is_flag=True, help=says, **more)


def _check_report(name: str, path: Path) -> None:
    from headcount.views.report.document import check_report  # noqa: PLC0415  imported where one is asked for

    check_report(name, path)


def _check_folder(name: str, folder: Path) -> None:
    from headcount.views.manifests.folder import check_folder  # noqa: PLC0415  as above

    check_folder(name, folder)


REPORT_PATH: Final = OutPath(own_check=_check_report)  # written in the format of its name's end
MANIFESTS_FOLDER: Final = OutPath(name="DIR", own_check=_check_folder)


def read_limit(given: str) -> tuple[str, float]:
    """NAME=VALUE of --limit. Raises HeadcountError."""
    name, _, value = given.partition("=")
    if not value:
        raise HeadcountError(f"--limit '{shortened(given)}' has no value; give NAME=VALUE, such as rows=1G")
    try:
        number = values.TokenCount(most=values.LARGEST_TEXT).read(value) if value[-1].isalpha() else float(value)
    except ValueError:
        wrong = shortened(value)
        raise HeadcountError(f"--limit {shortened(name)}: '{wrong}' is not a number; give one such as 64M") from None
    return name.strip().replace("-", "_"), number


json_option = flag("--json as_json", "Print one JSON object on stdout.")
