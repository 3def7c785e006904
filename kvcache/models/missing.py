"""Which models of a folder are not answered with certainty, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from files.errors import HeadcountError
from files.names import one_line, shortened
from files.reading import check_confined, shown
from kvcache.models.catalog import load_model

LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class MissingModel:
    """A model that is refused, or read with assumptions; `why` is one line."""

    name: str
    is_refused: bool
    why: str


def missing_models(folder: Path) -> tuple[MissingModel, ...]:
    """Those of the configs that a folder holds, in folders of their own: `OWNER--MODEL/config.json`, any depth.

    Raises `HeadcountError` where there is none.
    """
    check_confined(folder)
    paths = sorted(folder.rglob("config.json"))
    if not paths:
        raise HeadcountError(f"no config.json in {shown(folder)}; give the folder that holds a folder for each model")
    return tuple(_missing(paths, folder))


def _missing(paths: list[Path], folder: Path) -> Iterator[MissingModel]:
    for path in paths:
        name = path.parent.relative_to(folder).as_posix().replace("--", "/", 1)
        try:
            assumed = load_model(str(path.resolve())).assumptions
        except ValueError as error:
            said = one_line(str(error)).removeprefix(f"{shown(path.resolve())}: ")
            said = said.removeprefix(f"model {path.parent.name!r}: ")
            yield MissingModel(name=name, is_refused=True, why=shortened(said, LONGEST_REASON))
            continue
        if assumed:
            why = "; ".join(f"{what} {value}: {reason}" for what, value, reason in assumed)
            yield MissingModel(name=name, is_refused=False, why=shortened(one_line(why), LONGEST_REASON))
