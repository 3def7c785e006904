"""A workload by its name or its path."""

from __future__ import annotations

import tomllib
from pathlib import Path

from boundary.documents import read_toml
from boundary.names import nearest_hint
from boundary.registry import Registry
from workloads.errors import WorkloadError
from workloads.population import Population, population_from_mapping
from workloads.trace import Trace
from workloads.trace_format import find_format

PRESETS = Registry(what="preset", section="presets", folder=Path(__file__).parent / "presets", suffix=".toml")


def preset_names() -> tuple[str, ...]:
    """Names of the presets, in order."""
    return PRESETS.names()


def load_preset(name: str) -> Population:
    """A preset, by its name in any case."""
    return population_from_mapping(read_toml(PRESETS.path(name.lower())), name=name.lower())


def load_workload(name_or_path: str | Path, *, trace_block_size: int = 512) -> Population | Trace:
    """A preset by name, a population from a .toml file, or a trace from any other file, its format found by content.

    A preset's name wins over a file of that name; write ./chat for the file. `trace_block_size` is the number of
    tokens that one of a Mooncake trace's `hash_ids` names; 512 is Mooncake's own.
    """
    name, path = str(name_or_path), Path(name_or_path)
    if name.lower() in preset_names():
        return load_preset(name)
    if name and path.is_dir():
        raise WorkloadError(f"{path}: is a folder; give a trace file, a .toml file or a preset")
    if not name or not path.exists():
        raise WorkloadError(f"no workload '{name}': neither a file nor a preset; {nearest_hint(name, preset_names())}")
    if path.suffix == ".toml":
        return _load_population(path)
    trace_format = find_format(path)
    table = trace_format.read(path, trace_block_size)
    table.validate()
    return Trace(name=path.name, format=trace_format.name, table=table, source=trace_format.source)


def _load_population(path: Path) -> Population:
    try:
        return population_from_mapping(tomllib.loads(path.read_text(encoding="utf-8")), name=path.stem)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: not readable as TOML: {error}") from None
