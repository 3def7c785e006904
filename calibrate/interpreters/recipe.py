"""Which packages make a release of vLLM run on a CPU."""

import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from boundary.documents import read_toml
from boundary.files import InputError, shown
from boundary.registry import Registry
from boundary.schema import Count, Strict, typed

RECIPES = Registry(what="recipe", section="recipes", folder=Path(__file__).parent / "recipes", suffix=".toml")
RELEASE = re.compile(r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(\.post[0-9]{1,4})?$", re.ASCII)

_LINE = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}", re.ASCII)
_Release = Annotated[str, Meta(pattern=rf"^{_LINE.pattern}$", description="a release such as 3.11")]


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
    limit: str = ""  # what it installs but cannot do

    def packages_without_dependencies(self, version: str) -> list[str]:
        """vLLM itself among them."""
        return [name.replace("{version}", version) for name in self.no_deps]

    def is_for(self, version: str) -> bool:
        """Whether this is the release's own line, not just the nearest."""
        return line_of(version) == self.line

    def allows_python(self, version: str) -> bool:
        """Whether a Python such as `3.11` lies in the range."""
        first, last = self.python
        return _numbers(first) <= _numbers(version) <= _numbers(last)


def recipe_lines() -> tuple[str, ...]:
    """The release lines with a recipe of their own, oldest first."""
    for name, path in RECIPES.files().items():
        if not _LINE.fullmatch(name):
            raise InputError(f"{shown(path)}: a recipe is named by its release line, such as 0.32.toml; rename it")
    return tuple(sorted(RECIPES.names(), key=_numbers))


def find_recipe(version: str) -> Recipe:
    """The recipe of a release's line, or of the nearest one: `is_for` tells which.

    Raises `ValueError` where `version` is not a release number.
    """
    require_release(version)
    wanted = line_of(version)
    return _read(min(recipe_lines(), key=lambda line: (_distance(line, wanted), tuple(-n for n in _numbers(line)))))


def require_release(version: str) -> None:
    """Raises `ValueError` where `version` is not a release number."""
    if not RELEASE.match(version):
        raise ValueError(f"{version[:60]!r} is not a release of vLLM; give its full number, such as 0.32.0")


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


def _read(line: str) -> Recipe:
    path = RECIPES.path(line)
    return typed({"line": line, **read_toml(path)}, Recipe, path)
