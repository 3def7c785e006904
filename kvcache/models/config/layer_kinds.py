"""From a config to which layer has what: attention with or without a window, a state, an MLP, experts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from files.errors import HeadcountError
from kvcache.models.config.fields import Fields, Names, Numbers

Pattern = Annotated[str, Meta(max_length=10_000, description="text of at most 10,000 letters")]
FULL, WINDOW, STATE, PARALLEL, MLP, EXPERTS = "full", "window", "state", "attention beside a state", "mlp", "experts"
# The names of layers in `layer_types`, old or new (transformers configuration_utils, remap_legacy_layer_types).
_ATTENTION = ("attention", "full_attention")
_ALL_TOKENS = ("full_attention", "deepseek_sparse_attention")  # the second: of models with an indexer alone
_STATES = ("mamba", "mamba2", "linear_attention", "conv")
_NEMOTRON = {"M": STATE, "*": FULL, "-": MLP, "E": EXPERTS}
_NEMOTRON_NAMES = {
    "mamba": STATE, "linear_attention": STATE, "attention": FULL, "full_attention": FULL, "mlp": MLP, "moe": EXPERTS,
}  # fmt: skip


def layer_kinds(fields: Fields) -> tuple[str, ...]:
    """Each layer's kind: as listed, else by the family's rule.

    Raises `ValueError` where a list is too short or long, or has a kind that is not modelled.
    """
    rule = fields.family.kinds
    if rule == "pattern":
        listed: Sequence[str] | None = _nemotron_h(fields)
    elif rule == "windows":
        listed = _listed_windows(fields)
    else:
        listed = _listed_states(fields)
    num_layers = fields.optional("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    if num_layers is None:
        num_layers = len(listed) if rule == "pattern" and listed else fields.integer("num_hidden_layers")
    by_rule = _RULES[rule](fields, num_layers) if rule in _RULES else ()
    kinds = tuple(by_rule if listed is None else listed)
    if len(kinds) != num_layers:
        what = "attention layers" if rule == "windows" else "layers"
        raise fields.error(f"{len(kinds)} {what} listed for {num_layers} hidden layers")
    is_forced = kinds and fields.model_type == "gemma4_text"  # by transformers and vLLM, whatever is listed
    return (*kinds[:-1], FULL) if is_forced else kinds


def periodic(fields: Fields, what: str, num_layers: int) -> list[bool]:
    """Which layers stand at an offset in each period (Jamba)."""
    period, offset = fields.integer(f"{what}_layer_period"), fields.integer(f"{what}_layer_offset")
    if offset >= period:
        raise fields.error(f"{what}_layer_offset {offset} must be below {what}_layer_period {period}")
    return [layer % period == offset for layer in range(num_layers)]


def window_of(fields: Fields) -> int | None:
    """Tokens of the windows or chunks that layers may have."""
    window = chunk_of(fields) or fields.optional("sliding_window")
    return window if fields.flag("use_sliding_window", default=True) else None


def chunk_of(fields: Fields) -> int | None:
    """Tokens of Llama 4's chunks; MiMo-V2's key of that name repeats its sliding window."""
    return None if fields.raw("hybrid_layer_pattern") else fields.optional("attention_chunk_size")


def _listed_windows(fields: Fields) -> list[str] | None:
    listed = fields.value(Names, "layer_types")
    if (pattern := fields.value(Numbers, "hybrid_layer_pattern")) is not None:  # MiMo-V2
        listed = ["sliding_attention" if flag else "full_attention" for flag in pattern]
    if listed is None:
        return None
    drafts = fields.optional("num_nextn_predict_layers") or 0
    if drafts and len(listed) == drafts + (fields.optional("num_hidden_layers") or 0):
        listed = listed[:-drafts]  # Step 3.5 lists those of its draft layers behind
    if any(kind not in _ALL_TOKENS for kind in listed) and window_of(fields) is None:
        raise HeadcountError(f"model {fields.name!r}: layer_types lists windows but sliding_window is missing; add it")
    return [FULL if kind in _ALL_TOKENS else WINDOW for kind in listed]


def _listed_states(fields: Fields) -> list[str] | None:
    listed = fields.value(Names, "layer_types", "layers_block_type")
    if listed is None or fields.family.kinds == "parallel":
        return None
    return [_known(fields, kind, dict.fromkeys(_ATTENTION, FULL) | dict.fromkeys(_STATES, STATE)) for kind in listed]


def _nemotron_h(fields: Fields) -> list[str]:
    listed = fields.value(Names, "layers_block_type", "layer_types")
    if listed is not None:
        return [_known(fields, kind, _NEMOTRON_NAMES) for kind in listed]
    pattern = fields.value(Pattern, "hybrid_override_pattern") or ""
    if not pattern or not set(pattern) <= _NEMOTRON.keys():
        raise fields.error(f"hybrid_override_pattern is {pattern!r}, must be made of {' '.join(_NEMOTRON)}")
    return [_NEMOTRON[letter] for letter in pattern]


def _known(fields: Fields, kind: str, known: Mapping[str, str]) -> str:
    if kind not in known:
        raise fields.error(f"layers of kind {kind} are not modelled; known: {', '.join(known)}")
    return known[kind]


def _states(attends: Iterable[bool]) -> list[str]:
    return [FULL if flag else STATE for flag in attends]


def _windows(fields: Fields, num_layers: int) -> list[str]:
    """Of a model whose layers all have attention."""
    layers = range(num_layers)
    if window_of(fields) is None:
        full: Iterable[object] = (True,) * num_layers
    elif chunk_of(fields) is not None:
        # Llama 4: `no_rope_layers` holds 0 where a layer attends to everything; by default every fourth does.
        full = [not flag for flag in fields.value(Numbers, "no_rope_layers") or [(layer + 1) % 4 for layer in layers]]
    elif (first_full := fields.optional("max_window_layers")) is not None:
        full = [layer < first_full for layer in layers]  # Qwen2
    else:
        pattern = fields.optional("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        full = [bool(pattern) and (layer + 1) % (pattern or 1) == 0 for layer in layers]
    return [FULL if flag else WINDOW for flag in full]


def _interval(fields: Fields, num_layers: int) -> list[str]:
    interval = fields.integer("full_attention_interval", default=4) or 1
    return _states((layer + 1) % interval == 0 for layer in range(num_layers))


def _groups(fields: Fields, num_layers: int) -> list[str]:
    """Ling: the last layer of each group attends; in 3.0 so does every layer behind the last whole group."""
    size = fields.integer("layer_group_size")
    if not size:
        raise fields.error("layer_group_size is 0, must be positive")
    whole = num_layers // size * size if fields.model_type == "bailing_moe_v3" else num_layers
    return _states((layer + 1) % size == 0 or layer >= whole for layer in range(num_layers))


def _kimi(fields: Fields, num_layers: int) -> list[str]:
    full = fields.value(Numbers, "linear_attn_config.full_attn_layers")
    state = fields.value(Numbers, "linear_attn_config.kda_layers")
    if full is None or state is None:
        return _states(layer > 0 and layer % 4 == 0 for layer in range(num_layers))
    if sorted([*full, *state]) != list(range(1, num_layers + 1)):  # the checkpoint counts from 1
        raise fields.error(
            f"linear_attn_config lists {len(full)} attention and {len(state)} KDA layers, which together must name "
            f"each of the layers 1–{num_layers} once"
        )
    attention = set(full)
    return _states(layer in attention for layer in range(1, num_layers + 1))


def _indices(fields: Fields, num_layers: int) -> list[str]:
    """Which layers have attention, by number; where none are named, none of Bamba's, all of LFM2's."""
    key, default = ("attn_layer_indices", 0) if fields.model_type == "bamba" else ("full_attn_idxs", num_layers)
    indices = fields.value(Numbers, key)
    attention = set(range(default) if indices is None else indices)
    outside = [layer for layer in attention if layer >= num_layers]
    if outside:
        raise fields.error(f"{key} names layer {outside[0]!r} of {num_layers} hidden layers")
    return _states(layer in attention for layer in range(num_layers))


_RULES: Mapping[str, Callable[[Fields, int], list[str]]] = {
    "windows": _windows,
    "interval": _interval,
    "groups": _groups,
    "kimi": _kimi,
    "indices": _indices,
    "period": lambda fields, num_layers: _states(periodic(fields, "attn", num_layers)),
    "parallel": lambda _, num_layers: [PARALLEL] * num_layers,  # Falcon-H1
    "states": lambda _, num_layers: [STATE] * num_layers,
}
