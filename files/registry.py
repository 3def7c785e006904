"""A kind of thing, found by name: one file each, here or in a folder of the user's."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from files.dependencies import record_dependency
from files.errors import HeadcountError
from files.names import UnknownNameError, error_shown, nearest_hint, shortened
from files.reading import InputError

T = TypeVar("T")
P = ParamSpec("P")

PLUGINS = "headcount.plugins"  # entry points of installed packages, each a folder as those of HEADCOUNT_PATH
SEARCH_PATH = "HEADCOUNT_PATH"  # folders, separated as in PATH; a GPU of yours is FOLDER/gpus/NAME.toml
LONGEST_NAME = 80  # characters; file systems refuse much longer ones
_ADDABLE = re.compile(r"^[a-z0-9][a-z0-9._-]{0,79}$", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Registry:
    """All things of one kind.

    Each is a file `NAME + suffix` in `folder`, or in the folder `section` of a folder named by the environment variable
    HEADCOUNT_PATH, which wins, or of a package that an installed distribution names under PLUGINS. Python files are
    modules of `package`; one outside is also found as `module:Name`.
    """

    what: str  # in messages, such as "GPU"
    section: str  # its folder under HEADCOUNT_PATH
    folder: Path
    suffix: str = ".py"
    package: str = ""
    ignored: tuple[str, ...] = ()  # files in `folder` that are no such thing
    needs: tuple[str, ...] = ()  # what a Python file must define

    def files(self) -> dict[str, Path]:
        """Every file of this kind by name, in the order of names; files that start with `_` are none."""
        given = (_files_in(folder / self.section, self.suffix) for folder in search_path())
        files = chain(_shipped_files(self.folder, self.suffix), *given)
        found = {path.name.removesuffix(self.suffix): path for path in files if path.name not in self.ignored}
        return dict(sorted(found.items()))

    def names(self) -> tuple[str, ...]:
        """Every known name, in order."""
        return tuple(self.files())

    def path(self, name: str) -> Path:
        """The file of that name. Raises UnknownNameError with the nearest names."""
        found = self.files().get(name)
        if found is None:
            raise self.unknown(name)
        return found

    def load(self, name: str) -> Any:
        """The module of that name, or the object `module:Name` outside this repository. Raises UnknownNameError."""
        module, separator, attribute = name.partition(":")
        if separator:
            record_dependency(name)
            try:
                return getattr(import_module(module), attribute)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                said = error if isinstance(error, ImportError | AttributeError | ValueError) else error_shown(error)
                raise UnknownNameError(
                    f"no {self.what} {shortened(name, 80)!r}: {said}; give module:Name of something importable"
                ) from None
        path = self.path(name)
        if path.parent == self.folder:
            return import_module(f"{self.package}.{name}")
        found = _outside(self.section, path)
        missing = [part for part in self.needs if not hasattr(found, part)]
        if missing:
            raise HeadcountError(f"{path}: it has no {' and no '.join(missing)}, which a {self.what} needs; add it")
        return found

    @contextmanager
    def running(self, name: str, reads: Path | None = None) -> Iterator[None]:
        """What code of the user's raises, or its wish to exit, as a ValueError that names the file.

        A ValueError that names the file which the code `reads` is about that file, and stays.
        """
        try:
            yield
        except (InputError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if reads is not None and isinstance(error, ValueError) and str(reads) in error_shown(error):
                raise
            path = None if ":" in name else self.path(name)
            if path is not None and path.parent == self.folder:
                raise
            place = f"{self.what} {shortened(name, 80)!r}" if path is None else str(path)
            raise HeadcountError(f"{place}: fails with {error_shown(error)}; correct it") from error

    def guarded(self, name: str, function: Callable[P, T]) -> Callable[P, T]:
        """The function, `running` in that file: of a path among its arguments a ValueError may be."""

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.running(name, next((given for given in args if isinstance(given, Path)), None)):
                return function(*args, **kwargs)

        return call

    def unknown(self, name: str, known: tuple[str, ...] | None = None) -> UnknownNameError:
        """The error that names what was given, the nearest known names, and how to add one."""
        hint = nearest_hint(name, self.names() if known is None else known)
        slug = name.strip("/").replace("/", "--").lower()
        end = "" if hint.endswith("?") else "."
        place = f"{self.section}/{slug}{self.suffix} in a folder that {SEARCH_PATH} names"
        adding = f"{end} To add one, write {place}" if _ADDABLE.match(slug) else ""
        return UnknownNameError(f"no {self.what} {shortened(name, LONGEST_NAME)!r}; {hint}{adding}")


def remembered(find: Callable[[str], T]) -> Callable[[str], T]:
    """What is found by a name, looked for once for each HEADCOUNT_PATH."""

    @cache
    def known(name: str, _search_path: str) -> T:
        return find(name)

    @wraps(find)
    def found(name: str) -> T:
        return known(name, os.environ.get(SEARCH_PATH, ""))

    return found


def _files_in(folder: Path, suffix: str) -> tuple[Path, ...]:
    return tuple(folder.glob(f"[!_]*{suffix}"))


_shipped_files = cache(_files_in)  # asked for in each simulation, and never another while one runs


def search_path() -> list[Path]:
    """Folders of installed plug-ins, then the user's own, of which the first wins and so comes last.

    Raises HeadcountError for one that is no folder.
    """
    return [*_installed(tuple(sys.path)), *_own_folders(os.environ.get(SEARCH_PATH, ""))]


@cache
def _installed(_: tuple[str, ...]) -> tuple[Path, ...]:
    """Folders of packages that an installed distribution names under PLUGINS, in the order of their names."""
    from importlib.metadata import entry_points  # noqa: PLC0415  `headcount --help` needs none of it

    found = []
    for each in sorted(entry_points(group=PLUGINS), key=lambda each: each.name):
        spec = find_spec(each.value)
        if spec is None or not spec.submodule_search_locations:
            raise HeadcountError(f"the plug-in {each.name!r} names {each.value!r}, which is no package; reinstall it")
        found.append(Path(spec.submodule_search_locations[0]))
    return tuple(found)


def _own_folders(given: str) -> list[Path]:
    folders = [Path(part).expanduser() for part in reversed(given.split(os.pathsep)) if part]
    wrong = next((folder for folder in folders if not folder.is_dir()), None)
    if wrong is not None:
        what = "is a file" if wrong.exists() else "does not exist"
        raise HeadcountError(
            f"{SEARCH_PATH}: {shortened(str(wrong), 200)} {what}; give folders, with '{os.pathsep}' between"
        )
    return folders


def _outside(section: str, path: Path) -> Any:
    """A module from a file of the user's, loaded once."""
    record_dependency(path)
    name = f"headcount_path.{section}.{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise HeadcountError(f"{path}: cannot be loaded, {error_shown(error)}; correct or remove it") from error
    return module
