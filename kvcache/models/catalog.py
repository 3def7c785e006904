"""Which models, GPUs or weight formats are known by name."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from boundary.registry import Registry
from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.gpus.gpu import find_gpu, gpu_names
from kvcache.models.config.checks import printable_name
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


def model_names() -> tuple[str, ...]:
    """Every catalog model, by its name on Hugging Face."""
    return tuple(sorted(_read(path)["name"] for path in model_files()))


def model_files() -> tuple[Path, ...]:
    """Every catalog model's file."""
    return tuple(MODELS.files().values())


def model_source(name: str) -> str:
    """Where a catalog model's facts come from."""
    return str(_read(_catalog_path(name))["source"])


@cache
def load_model(name_or_path: str) -> Architecture:
    """A model's shape, from a `config.json`, a folder holding one, a catalog name or an alias, in any case.

    Raises `UnknownNameError` with the nearest names, or `ValueError` where the config is wrong.
    """
    name, config = named_config(name_or_path)
    return from_config(config, name=name)


def named_config(name_or_path: str) -> tuple[str, dict[str, Any]]:
    """A model's name with its config as `load_model` reads it; raises as that does."""
    given = Path(name_or_path).expanduser()
    if name_or_path.startswith(("/", "./", "../", "~")) and not given.exists():
        raise ValueError(f"no file {name_or_path!r}; give a model's config.json, the folder that holds it, or a name")
    if name_or_path and given.is_dir():
        given = given / "config.json"
        if not given.is_file():
            raise ValueError(f"folder {name_or_path!r} holds no config.json; give a model's folder or its config.json")
    if given.is_file():
        config = _read(given) | _modelopt_file(given)
        return printable_name(str(config.get("_name_or_path") or given.resolve().parent.name)), config
    entry = _read(_catalog_path(name_or_path))
    if not str(entry.get("source", "")).strip():
        raise ValueError(f"kvcache/models: {entry.get('name', name_or_path)!r} has no source; add it")
    name, quantization = _quantized(entry, slug_of(name_or_path))
    return name, {**entry["config"], **quantization}


def _modelopt_file(path: Path) -> dict[str, Any]:
    """The quantization that ModelOpt wrote beside a config.json, which vLLM reads where that holds none."""
    beside = path.parent / "hf_quant_config.json"
    if path.name != "config.json" or not beside.is_file() or _read(path).get("quantization_config") is not None:
        return {}
    return {"quantization_config": _read(beside)}


def _quantized(entry: Mapping[str, Any], slug: str) -> tuple[str, dict[str, Any]]:
    """The name that was asked for, with its `quantization_config` where that is the model in another format."""
    for name, quantization in entry.get("quantized", {}).items():
        if slug in (slug_of(name), slug_of(name.split("/")[-1])):
            return name, {"quantization_config": quantization}
    return entry["name"], {}


def _catalog_path(name: str) -> Path:
    slug = slug_of(name)
    aliases: Mapping[str, str] = json.loads(ALIASES.read_text(encoding="utf-8"))
    path = MODELS.files().get(aliases.get(slug, slug))
    if path is None:
        raise MODELS.unknown(name, (*model_names(), *aliases))
    return path


def slug_of(name: str) -> str:
    """A model's file name: lower case, the publisher set off by two dashes."""
    return name.strip().strip("/").lower().replace("/", "--")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))  # with or without a byte-order mark
    except UnicodeDecodeError:
        raise ValueError(f"{path.name}: not a text file; give a Hugging Face config.json") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name}: not valid JSON ({error}); give a Hugging Face config.json") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, a nesting of thousands of levels
        raise ValueError(f"{path.name}: holds a number too large or nesting too deep") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name}: must hold an object; give a Hugging Face config.json")
    return content
