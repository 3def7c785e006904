"""Which weight format a checkpoint's config gives to each module of each layer."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from math import prod

from files.documents import ReadJson
from files.errors import HeadcountError
from files.names import shortened
from kvcache.models.config.checkpoint_format import left_out, mixed_formats, native_quantization
from kvcache.models.config.families import entries
from kvcache.shape.layer import Layer

PLAIN = "none"
_ROOTS = ("model.layers", "layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers")
_ORDER = ("attention", "state_space", "mlp", "shared_experts", "experts")
_MLA = ("kv_a", "kv_b", "o")
Formats = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class ModuleFormats:
    """What differs from the checkpoint's main format: by layer, (component.part, format); `PLAIN` is 16 bits."""

    layers: tuple[Formats, ...]
    unquantized: tuple[str, ...] = ()  # components that are plain in every layer
    lm_head: str | None = None  # where it is packed


def module_formats(quantization: ReadJson | None, layers: Sequence[Layer], model_type: str) -> ModuleFormats:
    """The formats of every module, as the config's own lists say."""
    if quantization is None:
        return ModuleFormats(layers=((),) * len(layers))
    listed, recipes = left_out(quantization), mixed_formats(quantization)
    if not listed and not recipes:
        return ModuleFormats(layers=((),) * len(layers))
    native, format_of = native_quantization(quantization), _Listed(listed, recipes).format_of
    modules = entries("modules.toml")
    parts = modules.get(model_type, modules["usual"])
    # Where no name has a number, all layers with the same parts are alike.
    numbered = any(re.search(r"\d", name) for name in (*listed, *recipes))
    known: dict[object, Formats] = {}
    found = []
    for index, layer in enumerate(layers):
        key = index if numbered else tuple(_parts(layer))
        if key not in known:
            known[key] = tuple(_formats(parts, layer, index, format_of, native))
        found.append(known[key])
    return ModuleFormats(layers=tuple(found), unquantized=_unquantized(layers, found), lm_head=recipes.get("lm_head"))


def _parts(layer: Layer) -> Iterator[tuple[str, str]]:
    """(component, part) of each module that formats may pack."""
    if layer.attention and layer.attention.latent:
        queries = ("q_a", "q_b") if layer.attention.latent.q_lora_rank else ("q",)
        chooses = ("index_q",) if layer.attention.indexer else ()
        yield from (("attention", part) for part in (*queries, *_MLA, *chooses))
    if layer.attention and layer.attention.compressed:
        chooses = ("index_q",) if layer.attention.indexer else ()
        yield from (("attention", part) for part in ("in", "q_b", "o_a", "out", *chooses))
    shared = layer.experts and layer.experts.shared_expert_intermediate_size
    has = {
        "attention": layer.attention and not (layer.attention.latent or layer.attention.compressed),
        "state_space": layer.state,
        "mlp": layer.intermediate_size,
        "shared_experts": shared,
        "experts": layer.experts,
    }
    yield from ((component, part) for component, held in has.items() if held for part in ("in", "out"))
    if layer.experts:
        yield "mlp", "extra"


def _formats(
    modules: Mapping[str, Mapping[str, Sequence[str]]],
    layer: Layer,
    index: int,
    format_of: Callable[[Sequence[str]], str | None],
    native: str | None,
) -> Iterator[tuple[str, str]]:
    for component, part in _parts(layer):
        own = format_of([f"{root}.{index}.{name}" for name in modules[component][part] for root in _ROOTS])
        if own is not None and own != native:
            yield f"{component}.{part}", own


def _unquantized(layers: Sequence[Layer], formats: Sequence[Formats]) -> tuple[str, ...]:
    """Components of which every module is plain in every layer."""
    whole: dict[str, bool] = {}
    for layer, own in zip(layers, formats, strict=True):
        for component, part in _parts(layer):
            if part != "extra":
                is_plain = (f"{component}.{part}", PLAIN) in own
                whole[component] = whole.get(component, True) and is_plain
    return tuple(component for component in _ORDER if whole.get(component))


class _Listed:
    """The lists of a config, as vLLM reads them: regular expressions after `re:`, wildcards, else parts of names.

    `recipes`: a name, wildcard or expression → its format; of a module that none names, the format is plain. Without
    any, a module that is not left out has the main format.
    """

    def __init__(self, excluded: Sequence[str], recipes: Mapping[str, str]) -> None:
        self._excluded = _Names(excluded)
        self._recipes = recipes
        self._parents: dict[str, str] = {}
        for name, weights in recipes.items():
            head, inner, _ = name.partition(".experts.")
            if inner:
                self._parents.setdefault(f"{head}.experts", weights)
        patterns = [name for name in recipes if _is_pattern(name)]
        _Names(patterns)  # refuses what takes too long together
        self._patterns = [(_Names([name]), recipes[name]) for name in patterns]

    def format_of(self, spellings: Sequence[str]) -> str | None:
        """The format of the module with one of these names; None: the main one."""
        if any(self._excluded.has(name) for name in spellings):
            return PLAIN
        if not self._recipes:
            return None
        return next((own for name in spellings if (own := self._recipe(name)) is not None), PLAIN)

    def _recipe(self, name: str) -> str | None:
        own = self._recipes.get(name)
        if own is None and ".experts." in name:
            whole = name[: name.index(".experts.") + len(".experts")]
            own = self._recipes.get(whole, self._parents.get(whole))
        if own is None:
            own = next((weights for names, weights in self._patterns if names.has(name)), None)
        return own


def _is_pattern(name: str) -> bool:
    return "*" in name or name.startswith("re:")


class _Names:
    """Whether a module is among names, wildcards or expressions."""

    def __init__(self, listed: Sequence[str]) -> None:
        expressions = {name[3:] for name in listed if name.startswith("re:")}
        wildcards = {name for name in listed if "*" in name and not name.startswith("re:")}
        self._parts = {name.strip(".") for name in listed} | {*listed}
        hard = sum(map(_tries, expressions)) + len(wildcards) * 100
        if hard > _MOST_TRIES:
            worst = shortened(max((*expressions, *wildcards), key=_tries))
            raise HeadcountError(f"quantization_config: '{worst}' takes too long to match; simplify it, or list names")
        compiled = [found for found in map(_compiled, expressions) if found is not None]
        both = "|".join(translate(each) for name in sorted(wildcards) for each in (name, name + ".*"))
        self._expressions = [*compiled, re.compile(both)] if both else compiled

    def has(self, name: str) -> bool:
        words = name.split(".")
        ends = range(len(words) + 1)
        return any(".".join(words[start:end]) in self._parts for end in ends for start in range(end)) or any(
            expression.match(name) for expression in self._expressions
        )


_MOST_TRIES = 2e7  # of positions in a name, over all expressions: some seconds


def _tries(expression: str) -> float:
    """How often a name may be tried at most: a repetition at each of its letters, an alternative each."""
    if len(expression) > 1000 or re.search(r"\)\s*[*+{]", expression):  # a repeated group may try for ever
        return float("inf")
    return (
        45.0 ** min(len(re.findall(r"[*+{]", expression)), 100)
        * 2.0 ** expression.count("?")
        * prod(1.0 + part.count("|") for part in expression.split(")"))
    )


def _compiled(expression: str) -> re.Pattern[str] | None:
    try:
        return re.compile(expression)
    except (re.error, RecursionError, OverflowError):
        return None
