"""Which models, GPUs or weight formats are known by name."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from boundary.documents import read_json
from boundary.files import InputError, shown
from boundary.names import one_line, shortened
from boundary.registry import Registry
from boundary.schema import table, typed
from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.gpus.gpu import find_gpu, gpu_names
from kvcache.models.config.fields import Word
from kvcache.models.config.reader import from_config
from kvcache.shape.architecture import Architecture

__all__ = [
    "find_gpu",
    "find_quantization",
    "gpu_names",
    "load_model",
    "model_names",
    "model_source",
    "named_config",
    "quantization_names",
]

MODELS = Registry(
    what="model", section="models", folder=Path(__file__).parent, suffix=".json", ignored=("aliases.json",)
)
ALIASES = MODELS.folder / "aliases.json"  # alias or quantized name → slug; a test keeps it equal to what the files say


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A catalog file: a config with its name and source; `quantized`: checkpoints in another weight format."""

    name: Word
    source: str
    config: dict[str, Any]
    aliases: tuple[str, ...] = ()
    quantized: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("it has no source; add it")


def model_names() -> tuple[str, ...]:
    """Every catalog model, by its name on Hugging Face."""
    return tuple(sorted(_entry(path).name for path in model_files()))


def model_files() -> tuple[Path, ...]:
    """Every catalog model's file."""
    return tuple(MODELS.files().values())


def model_source(name: str) -> str:
    """Where a catalog model's facts come from."""
    return _entry(_catalog_path(name)).source


@cache
def load_model(name_or_path: str | Path) -> Architecture:
    """A model's shape, from a `config.json`, a folder holding one, a catalog name or an alias, in any case.

    Raises `UnknownNameError` with the nearest names, or `ValueError` where the config is wrong.
    """
    name, config, path = _found(str(name_or_path))
    try:
        return from_config(config, name=name)
    except ValueError as error:
        if path.parent == MODELS.folder:
            raise
        raise InputError(f"{shown(path)}: {error}") from None


def named_config(name_or_path: str) -> tuple[str, dict[str, Any]]:
    """A model's name with its config as `load_model` reads it; raises as that does."""
    return _found(name_or_path)[:2]


def _found(name_or_path: str) -> tuple[str, dict[str, Any], Path]:
    """Name, config, file."""
    given = Path(name_or_path).expanduser()
    if name_or_path.startswith(("/", "./", "../", "~")) and not os.path.lexists(given):
        raise ValueError(
            f"no file {shortened(name_or_path, 300)!r}; give a model's config.json, the folder that holds it, or a name"
        )
    if name_or_path and os.path.isdir(given):
        given = given / "config.json"
        if not given.is_file():
            raise ValueError(f"folder {name_or_path!r} holds no config.json; give a model's folder or its config.json")
    if name_or_path and os.path.lexists(given):  # also a link that leads nowhere, which the reader tells
        config = _read(given)
        config |= _modelopt_file(given, config)
        name = str(config.get("_name_or_path") or given.resolve().parent.name)
        return shortened(one_line(name), 100), config, given
    path = _catalog_path(name_or_path)
    entry = _entry(path)
    name, quantization = _quantized(entry, slug_of(name_or_path))
    return name, {**entry.config, **quantization}, path


def _modelopt_file(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The quantization that ModelOpt wrote beside a config.json, which vLLM reads where that holds none."""
    beside = path.parent / "hf_quant_config.json"
    if path.name != "config.json" or not beside.is_file() or config.get("quantization_config") is not None:
        return {}
    return {"quantization_config": _read(beside)}


def _quantized(entry: Entry, slug: str) -> tuple[str, dict[str, Any]]:
    """The name that was asked for, with its `quantization_config` where that is the model in another format."""
    for name, quantization in entry.quantized.items():
        if slug in (slug_of(name), slug_of(name.split("/")[-1])):
            return name, {"quantization_config": quantization}
    return entry.name, {}


def _catalog_path(name: str) -> Path:
    slug, files = slug_of(name), MODELS.files()
    aliases: dict[str, str] = json.loads(ALIASES.read_text(encoding="utf-8"))
    for stem, file in files.items():
        if file.parent != MODELS.folder:  # of the user's
            entry = _entry(file)
            aliases |= {slug_of(each): stem for each in (entry.name, *entry.aliases, *entry.quantized)}
    path = files.get(aliases.get(slug, slug))
    if path is None:
        raise MODELS.unknown(name, (*model_names(), *aliases))
    return path


def slug_of(name: str) -> str:
    """A model's file name: lower case, the publisher set off by two dashes."""
    return name.strip().strip("/").lower().replace("/", "--")


def _entry(path: Path) -> Entry:
    return table(_read(path), Entry, path)


def _read(path: Path) -> dict[str, Any]:
    return typed(read_json(path), dict[str, Any], path)
