"""What a Hugging Face `config.json` may hold at all, before it is read."""

from collections.abc import Mapping, Sequence
from typing import Any

LARGEST = 10**9  # of any width, count or length: the largest published is 10^7 tokens of context
MOST_LAYERS = 10_000
MOST_HEADS = 10_000
NAME_LENGTH = 100

_OBJECTS = ("text_config", "llm_config", "vision_config", "quantization_config")
_TEXTS = ("model_type", "torch_dtype", "dtype")
_DTYPES = ("auto", "float32", "float", "float16", "half", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
_FLAGS = (
    "tie_word_embeddings", "use_sliding_window", "attention_bias", "mlp_bias", "use_qk_norm", "parallel_attn",
    "new_decoder_architecture", "multi_query",
)  # fmt: skip
_SPARED = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")  # in quantization_config
_LAYER_LISTS = ("mlp_only_layers", "moe_layers", "no_rope_layers")
_SIZES = (
    "hidden_size", "n_embd", "d_model", "vocab_size", "head_dim", "intermediate_size", "moe_intermediate_size",
    "max_position_embeddings", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "num_experts", "n_routed_experts", "num_local_experts", "num_experts_per_tok", "num_hidden_layers", "n_layer",
    "num_layers", "n_layers", "num_attention_heads", "num_key_value_heads",
)  # fmt: skip
_VISION_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "patch_size", "image_size", "vt_hidden_size",
    "vt_intermediate_size", "vt_num_hidden_layers", "num_attention_heads", "num_channels",
)  # fmt: skip
_LIMITS = {"num_hidden_layers": MOST_LAYERS, "n_layer": MOST_LAYERS, "num_layers": MOST_LAYERS,
           "n_layers": MOST_LAYERS, "num_attention_heads": MOST_HEADS, "num_key_value_heads": MOST_HEADS}  # fmt: skip


def check_config(config: Mapping[str, Any], name: str) -> None:
    """Raise ValueError, naming the field, on one of the wrong kind or beyond any model."""
    for level in (config, config.get("text_config"), config.get("llm_config")):
        if isinstance(level, Mapping):
            _check(name, level, _OBJECTS, lambda value: isinstance(value, Mapping), "an object")
            _check(name, level, _TEXTS, lambda value: isinstance(value, str), "text")
            _check(name, level, ("torch_dtype", "dtype"), _is_dtype, f"one of {', '.join(_DTYPES)}")
            _check(name, level, _FLAGS, lambda value: isinstance(value, bool) or value in (0, 1), "true or false")
            _check(name, level, ("layer_types",), _is_list_of(str), "a list of names")
            _check(name, level, _LAYER_LISTS, _is_list_of(int), "a list of whole numbers")
            _check_sizes(name, level, _SIZES)
    vision = config.get("vision_config")
    if isinstance(vision, Mapping):
        inner = f"{name}, vision_config"
        _check(inner, vision, _VISION_SIZES, lambda value: not isinstance(value, int) or value > 0, "positive")
        _check_sizes(inner, vision, _VISION_SIZES)
    for level in (config, config.get("text_config")):
        if isinstance(level, Mapping) and isinstance(level.get("quantization_config"), Mapping):
            _check_quantization(name, level["quantization_config"])


def printable_name(name: str) -> str:
    """A model's name as a terminal may show it: one line, of bounded length."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(name.split()))
    return line if len(line) <= NAME_LENGTH else f"{line[: NAME_LENGTH - 1]}…"


def _check(name: str, level: Mapping[str, Any], keys: Sequence[str], holds: Any, what: str) -> None:
    for key in keys:
        value = level.get(key)
        if value is not None and not holds(value):
            raise _error(name, key, value, f"must be {what}")


def _check_sizes(name: str, level: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        value, limit = level.get(key), _LIMITS.get(key, LARGEST)
        if isinstance(value, int) and value > limit:
            raise _error(name, key, value, f"must be at most {limit:,}")


def _is_dtype(value: str) -> bool:
    return value.removeprefix("torch.") in _DTYPES


def _check_quantization(name: str, quantization: Mapping[str, Any]) -> None:
    groups = quantization.get("config_groups")
    is_object = groups is None or isinstance(groups, Mapping)
    entries = [*groups.values()] if isinstance(groups, Mapping) else []
    if not is_object or not all(isinstance(entry, Mapping) for entry in entries):
        raise _error(name, "quantization_config: config_groups", groups, "must be an object of objects")
    for entry in entries:
        _check(name, entry, ("weights",), lambda value: isinstance(value, Mapping), "an object")
    _check(name, quantization, ("quantization", "producer"), lambda value: isinstance(value, Mapping), "an object")
    for level in (quantization, quantization.get("quantization") or {}):
        _check(name, level, _SPARED, _is_list_of(str), "a list of names")


def _is_list_of(kind: type) -> Any:
    def holds(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(
            isinstance(item, kind) and not isinstance(item, bool) for item in value
        )

    return holds


def _error(name: str, key: str, value: Any, what: str) -> ValueError:
    given = repr(value)
    given = given if len(given) <= 60 else f"{given[:59]}…"
    return ValueError(f"model {name!r}: {key} is {given}, {what}; correct its config.json")
