"""The tables of docs/explanation/structure.md, from the code's folders and imports."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from validation.markdown import table

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("files", "kvcache", "workloads", "simulator", "calibrate", "conformance", "headcount")
MANY_MODULES: Final = 14  # a package with more is listed as a large one
MANY_FOLDERS: Final = 3  # of a package; where more import a library, the table names the package alone
IMPORT_NAMES: Final = {"pyyaml": "yaml", "google-re2": "re2"}  # of distributions that are imported under another name
BROUGHT_BY: Final = {"llvmlite": "numba", "markupsafe": "jinja2", "pydantic": "fastapi", "starlette": "fastapi"}
ELSEWHERE: Final = {"dynamo", "lmcache", "msgpack", "sglang", "torch", "transformers", "vllm", "zmq"}
DISTRIBUTION: Final = re.compile(r"[A-Za-z0-9-]+(?!\[)\b")


def structure_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {"packages": _packages, "largest": _largest, "libraries": _libraries}


def first_line(path: Path) -> str:
    """The sentence that a file begins with."""
    return path.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0].partition("\n")[0].rstrip(".")


def _packages() -> str:
    rows = [(_name(folder), first_line(folder / "__init__.py")) for folder in _folders()]
    return table(("package", "what it owns"), rows)


def _largest() -> str:
    """Packages with many modules, the largest first."""
    sizes = {_name(folder): len([*folder.glob("*.py")]) - 1 for folder in _folders()}
    large = sorted((-size, name) for name, size in sizes.items() if size > MANY_MODULES)
    named = ", ".join(f"{name} ({-size})" for size, name in large)
    return f"{len(large)} of {len(sizes)} packages hold more than {MANY_MODULES} modules: {named}."


def _libraries() -> str:
    """What is imported where: first what every installation has, last what other interpreters have.

    Raises ValueError for a library that nobody declares.
    """
    needed, extras = _declared()
    rows = []
    for name, folders in _importers().items():
        source = BROUGHT_BY.get(name, name)
        if source in needed:
            rows.append((0, name, "always", folders))
        elif source in extras:
            rows.append((1, name, "with " + " or ".join(f"`[{extra}]`" for extra in extras[source]), folders))
        elif name in ELSEWHERE:
            rows.append((2, name, "no: the interpreters that run probes have it", folders))
        else:
            raise ValueError(f"pyproject.toml names no library {name}, which {_shown(folders)} imports")
    shown = [(f"`{name}`", how, _shown(folders)) for _, name, how, folders in sorted(rows)]
    return table(("library", "installed", "imported in"), shown)


def _name(folder: Path) -> str:
    return f"`{folder.relative_to(ROOT)}/`"


def _folders() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(path.parent for path in (ROOT / package).rglob("__init__.py"))


def _importers() -> dict[str, set[Path]]:
    """The folders that import a library, by its name."""
    found = defaultdict(set)
    scripts = {path.stem for package in PACKAGES for path in (ROOT / package).rglob("probes/*.py")}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            beside = scripts if path.parent.name == "probes" else set()  # probes import each other as plain modules
            for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
                if name not in sys.stdlib_module_names and name not in PACKAGES and name not in beside:
                    found[name].add(path.parent.relative_to(ROOT))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top names of all imports, also of those in functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _declared() -> tuple[set[str], dict[str, list[str]]]:
    """Import names of what every installation has, and the extras that bring the others."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = defaultdict(list)
    for extra, lines in project["optional-dependencies"].items():
        for name in _import_names(lines) if extra not in ("dev", "docs") else ():
            extras[name].append(extra)
    return _import_names(project["dependencies"]), extras


def _import_names(lines: Iterable[str]) -> set[str]:
    names = {match[0].lower() for line in lines if (match := DISTRIBUTION.match(line))}
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}


def _shown(folders: set[Path]) -> str:
    """Packages that import it in many folders stand for all of these; a folder stands for those in it."""
    by_package = defaultdict(set)
    for folder in folders:
        by_package[folder.parts[0]].add(folder)
    shown = []
    for package in filter(by_package.get, PACKAGES):
        inside = by_package[package]
        outer = [folder for folder in inside if not inside & {*folder.parents}]
        shown += sorted(map(str, outer)) if len(outer) <= MANY_FOLDERS else [package]
    return ", ".join(f"`{name}/`" for name in shown)
