"""Which packages make a release of an engine run on a CPU."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from files.documents import read_toml
from files.errors import HeadcountError
from files.reading import InputError, shown
from files.registry import Registry
from files.schema import Count, Strict, typed

RELEASE = re.compile(r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(\.post[0-9]{1,4})?$", re.ASCII)

_LINE = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}", re.ASCII)
_Release = Annotated[str, Meta(pattern=rf"^{_LINE.pattern}$", description="a release such as 3.11")]


@dataclass(frozen=True, kw_only=True)
class Package:
    """An engine that gets interpreters of its own: what it is called, and how to see that it is whole."""

    name: str  # of its command, its folder and its import
    title: str
    example: str  # a release
    import_version: str  # prints the release
    import_all: str  # the same, after importing what comparisons need
    environment: tuple[tuple[str, str], ...]  # while it is imported
    cache_variable: str  # names its cache folder; an old one would hide what is missing
    is_found_by_another_name: bool = False  # its CPU build has another name than it looks itself up by

    @property
    def recipes(self) -> Registry:
        """One file for each release line."""
        folder = Path(__file__).parent / "recipes" / self.name
        return Registry(what="recipe", section=f"recipes/{self.name}", folder=folder, suffix=".toml")


_IMPORT_VLLM = "import vllm; print(vllm.__version__)"
_IMPORT_SGLANG = "import sglang; print(sglang.__version__)"
# An engine may miss a package only in its scheduler, server or command.
VLLM = Package(
    name="vllm",
    title="vLLM",
    example="0.32.0",
    import_version=_IMPORT_VLLM,
    import_all="import importlib.metadata as m; m.version('vllm'); from vllm import LLM; "
    f"from vllm.v1.core.sched.scheduler import Scheduler; import vllm.entrypoints.cli.serve; {_IMPORT_VLLM}",
    environment=(("VLLM_NO_USAGE_STATS", "1"), ("HF_HUB_OFFLINE", "1")),
    cache_variable="VLLM_CACHE_ROOT",
    is_found_by_another_name=True,
)
SGLANG = Package(
    name="sglang",
    title="SGLang",
    example="0.5.23",
    import_version=_IMPORT_SGLANG,
    import_all=f"import sglang.srt.managers.scheduler; {_IMPORT_SGLANG}",
    environment=(("HF_HUB_OFFLINE", "1"),),
    cache_variable="SGLANG_CACHE_DIR",
)
PACKAGES = {package.name: package for package in (VLLM, SGLANG)}


class Recipe(Strict, frozen=True):
    """One release line's packages: `torch` comes from its own index, `no_deps` without what they ask for."""

    line: _Release
    source: str
    tried: str
    python: tuple[_Release, _Release]
    disk_bytes: Count
    torch: str
    requirements: tuple[str, ...]
    no_deps: tuple[str, ...]
    stand_ins: tuple[str, ...] = ()  # packages of `stand_ins/` that are copied into it
    limit: str = ""  # what it installs but cannot do

    def packages_without_dependencies(self, version: str) -> list[str]:
        """The engine itself among them."""
        return [name.replace("{version}", version) for name in self.no_deps]

    def is_for(self, version: str) -> bool:
        """Whether this is the release's own line, not just the nearest."""
        return line_of(version) == self.line

    def allows_python(self, version: str) -> bool:
        """Whether a Python such as `3.11` lies in the range."""
        first, last = self.python
        return _numbers(first) <= _numbers(version) <= _numbers(last)


def recipe_lines(package: Package = VLLM) -> tuple[str, ...]:
    """The release lines with a recipe of their own, oldest first."""
    for name, path in package.recipes.files().items():
        if not _LINE.fullmatch(name):
            raise InputError(f"{shown(path)}: a recipe is named by its release line, such as 0.32.toml; rename it")
    return tuple(sorted(package.recipes.names(), key=_numbers))


def find_recipe(version: str, package: Package = VLLM) -> Recipe:
    """The recipe of a release's line, or of the nearest one: `is_for` tells which.

    Raises `ValueError` where `version` is not a release number.
    """
    require_release(version, package)
    wanted = line_of(version)
    lines = recipe_lines(package)
    line = min(lines, key=lambda line: (_distance(line, wanted), tuple(-n for n in _numbers(line))))
    path = package.recipes.path(line)
    return typed({"line": line, **read_toml(path)}, Recipe, path)


def default_release(package: Package = VLLM) -> str:
    """The newest release that was tried and runs whole on a CPU, or the newest where none does."""
    lines = [find_recipe(f"{line}.0", package) for line in recipe_lines(package)]
    return next((recipe for recipe in reversed(lines) if not recipe.limit), lines[-1]).tried


def require_release(version: str, package: Package = VLLM) -> None:
    """Raises `ValueError` where `version` is not a release number."""
    if not RELEASE.match(version):
        raise HeadcountError(
            f"{version[:60]!r} is not a release of {package.title}; give its full number, such as {package.example}"
        )


def release_key(version: str) -> tuple[int, ...]:
    """What releases sort by."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", version))


def line_of(version: str) -> str:
    """`0.32` of `0.32.0`."""
    return ".".join(version.split(".")[:2])


def _distance(line: str, wanted: str) -> int:
    (major, minor), (wanted_major, wanted_minor) = _numbers(line), _numbers(wanted)
    return abs((major - wanted_major) * 10_000 + minor - wanted_minor)


def _numbers(line: str) -> tuple[int, int]:
    major, minor = line.split(".")
    return int(major), int(minor)
