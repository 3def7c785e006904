"""Which models, GPUs or weight formats are known by name."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from files.documents import Json, read_json
from files.errors import HeadcountError
from files.names import UnknownNameError, one_line, shortened
from files.reading import InputError, check_confined, shown
from files.registry import LONGEST_NAME, Registry
from files.schema import table, typed
from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.gpus.gpu import find_gpu, gpu_names
from kvcache.models.builds import Build, possible_builds, why_not_modelled
from kvcache.models.checkpoint_files import with_file_sizes
from kvcache.models.config.fields import Word
from kvcache.models.config.reader import from_config
from kvcache.shape.architecture import Architecture

__all__ = [
    "find_gpu",
    "find_quantization",
    "gpu_names",
    "is_other_model",
    "load_model",
    "model_names",
    "model_source",
    "named_config",
    "quantization_names",
    "short_names",
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
    config: Json
    aliases: tuple[str, ...] = ()
    quantized: Mapping[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise HeadcountError("it has no source; add it")


def model_names() -> tuple[str, ...]:
    """Every catalog model, by its name on Hugging Face."""
    return tuple(sorted(_entry(path).name for path in model_files()))


def short_names() -> tuple[str, ...]:
    """What else names a catalog model or a checkpoint of it, without its owner."""
    aliases: dict[str, str] = json.loads(ALIASES.read_text(encoding="utf-8"))
    return tuple(name for name in sorted(aliases) if "--" not in name)


def is_other_model(named: str, asked: Architecture) -> bool:
    """Whether a source's name is that of a known model of another shape; a folder or another name says nothing."""
    try:
        _catalog_file(named)
    except UnknownNameError:
        return False
    known, shape = (replace(arch, name="", file_share=1.0, assumptions=()) for arch in (load_model(named), asked))
    return known != shape


def model_files() -> tuple[Path, ...]:
    """Every catalog model's file."""
    return tuple(MODELS.files().values())


def model_source(name: str) -> str:
    """Where a catalog model's facts come from."""
    return _entry(_catalog_file(name)[0]).source


def load_model(name_or_path: str | Path) -> Architecture:
    """A model's shape, from a `config.json`, a folder holding one, a catalog name or an alias, in any case.

    A build that is known by its publisher's way of naming alone carries an assumption. Raises `UnknownNameError` with
    the nearest names, or `ValueError` where the config is wrong.
    """
    found = _found(str(name_or_path))
    try:
        architecture = _shape(json.dumps(found.config), found.name)
    except ValueError as error:
        if found.path.parent == MODELS.folder:
            raise
        raise InputError(f"{shown(found.path)}: {error}") from None
    if found.path.name == "config.json":
        return with_file_sizes(architecture, found.path.parent)
    if found.build is None or not found.build.config:
        return architecture
    why = f"by its name, like {found.build.like}; give its config.json to be certain"
    packed = ("weight format", str(architecture.native_quantization), why)
    return replace(architecture, assumptions=(*architecture.assumptions, packed))


@cache
def _shape(config: str, name: str) -> Architecture:
    """One object for one model, as long as its file stays the same."""
    return from_config(json.loads(config), name=name)


def named_config(name_or_path: str) -> tuple[str, dict[str, object]]:
    """A model's name with its config as `load_model` reads it; raises as that does."""
    found = _found(name_or_path)
    return found.name, found.config


@dataclass(frozen=True, kw_only=True)
class _Found:
    name: str
    config: Json
    path: Path
    build: Build | None = None  # where only the name tells the weight format


def _found(name_or_path: str) -> _Found:
    check_confined(Path(name_or_path))
    given = Path(os.path.expanduser(name_or_path))  # leaves an unknown user's name as it is
    if name_or_path.startswith(("/", "./", "../", "~")) and not os.path.lexists(given):
        raise HeadcountError(
            f"no file {shortened(name_or_path, 300)!r}; give a model's config.json, the folder that holds it, or a name"
            + _named_so(given.name)
        )
    if name_or_path and os.path.isdir(given):
        given = given / "config.json"
        if not given.is_file():
            raise HeadcountError(
                f"folder {name_or_path!r} holds no config.json; give a model's folder or its config.json"
            )
    if name_or_path and os.path.lexists(given):  # also a link that leads nowhere, which the reader tells
        config = _read(given)
        config |= _modelopt_file(given, config)
        name = str(config.get("_name_or_path") or given.resolve().parent.name)
        return _Found(name=shortened(one_line(name), 100), config=config, path=given)
    path, build = _catalog_file(name_or_path)
    entry = _entry(path)
    if build is not None:
        name = one_line(name_or_path.strip().strip("/"))
        name = name if "/" in name else f"{build.owners[0]}/{name}"
        packed = {"quantization_config": dict(build.config)} if build.config else {}
        return _Found(name=name, config={**entry.config, **packed}, path=path, build=build)
    name, quantization = _quantized(entry, slug_of(name_or_path))
    return _Found(name=name, config={**entry.config, **quantization}, path=path)


def _named_so(folder: str) -> str:
    """The known model that a folder is called after, as what to give."""
    try:
        _catalog_file(folder)
    except UnknownNameError:
        return ""
    return f", such as {folder}"


def _modelopt_file(path: Path, config: Mapping[str, object]) -> dict[str, object]:
    """The quantization that ModelOpt wrote beside a config.json, which vLLM reads where that holds none."""
    beside = path.parent / "hf_quant_config.json"
    if path.name != "config.json" or not beside.is_file() or config.get("quantization_config") is not None:
        return {}
    return {"quantization_config": _read(beside)}


def _quantized(entry: Entry, slug: str) -> tuple[str, dict[str, object]]:
    """The name that was asked for, with its `quantization_config` where that is the model in another format."""
    for name, quantization in entry.quantized.items():
        if slug in (slug_of(name), slug_of(name.split("/")[-1])):
            return name, {"quantization_config": quantization}
    return entry.name, {}


def _catalog_file(name: str) -> tuple[Path, Build | None]:
    """The model's file, with the build where the name follows a publisher's convention. Raises UnknownNameError."""
    slug, files = slug_of(name), MODELS.files()
    aliases: dict[str, str] = json.loads(ALIASES.read_text(encoding="utf-8"))
    for stem, file in files.items():
        if file.parent != MODELS.folder:  # of the user's
            entry = _entry(file)
            aliases |= {slug_of(each): stem for each in (entry.name, *entry.aliases, *entry.quantized)}
    for spelling in (slug, re.sub(r"[ :_]", "-", slug)):
        if path := files.get(aliases.get(spelling, spelling)):
            return path, None
    named = [
        (files[aliases[base]], build)
        for base, build in possible_builds(slug)
        # What is a build already is nobody else's original.
        if base in aliases and not _quantized(_entry(files[aliases[base]]), base)[1]
    ]
    is_open = "--" not in slug and len(named) > 1 and not named[0][1].models
    if not named or is_open:
        raise _unknown(name, slug, named, (*model_names(), *(each.replace("--", "/") for each in aliases)))
    return named[0]


def _unknown(name: str, slug: str, named: Sequence[tuple[Path, Build]], known: tuple[str, ...]) -> UnknownNameError:
    """The error that says which publishers have such a build, why a model is refused, or how to fetch its config."""
    why = why_not_modelled(slug)
    if why is not None:
        return UnknownNameError(f"model {shortened(name, LONGEST_NAME)!r} is not modelled: {why}; take another model")
    owners = list(dict.fromkeys(f"{build.owners[0]}/{name}" for _, build in named))
    if owners:
        return UnknownNameError(f"no model {name!r}: its format depends on the publisher; give {' or '.join(owners)}")
    error = MODELS.unknown(name, known)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or len(name) > LONGEST_NAME:
        return error
    folder = name.rpartition("/")[2]
    fetch = f"hf download {name} --include '*config.json' --local-dir {folder}"
    return UnknownNameError(f"{error}. Or fetch its config ({fetch}) and give --model ./{folder}")


def slug_of(name: str) -> str:
    """A model's file name: lower case, the publisher set off by two dashes."""
    return name.strip().strip("/").lower().replace("/", "--")


def _entry(path: Path) -> Entry:
    return table(_read(path), Entry, path)


def _read(path: Path) -> Json:
    return typed(read_json(path), Json, path)
