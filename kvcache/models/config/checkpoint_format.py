"""What a quantized checkpoint's config says of its weight formats and its KV cache."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from files.documents import Json, ReadJson
from files.errors import HeadcountError
from files.names import one_line, shortened
from files.schema import Lenient, typed
from kvcache.formats.quantization import find_quantization
from kvcache.models.config.fields import Size, Word
from kvcache.models.config.quark import quark_formats
from kvcache.shape.architecture import DeclaredKVCache

Spared = Annotated[list[str], Meta(max_length=200_000, description="a list of names, at most 200,000")]
Group = Annotated[int, Meta(ge=-1, le=99_999, description="a whole number from 1 to 99,999, or -1")]


DEEPSEEK_V4 = "deepseek_v4_fp8"  # vLLM's name for its own reading of that model's config


class _Weights(Lenient, frozen=True, kw_only=True):
    num_bits: Size | None = None
    type: Word | None = None
    strategy: Word | None = None
    group_size: Group | None = None
    symmetric: bool | None = None


class _Group(Lenient, frozen=True, kw_only=True):
    weights: _Weights | None = None
    targets: Spared | None = None


class _Module(Lenient, frozen=True, kw_only=True):
    quant_algo: Word | None = None
    bits: Size | None = None
    group_size: Group | None = None


class _QuarkTensor(Lenient, frozen=True, kw_only=True):
    dtype: Word | None = None
    qscheme: Word | None = None
    group_size: Group | None = None
    block_size: list[Size] | None = None
    symmetric: bool | None = None
    scale_format: Word | None = None


class _QuarkModule(Lenient, frozen=True, kw_only=True):
    weight: _QuarkTensor | list[_QuarkTensor] | None = None
    input_tensors: _QuarkTensor | list[_QuarkTensor] | None = None


class _Level(Lenient, frozen=True, kw_only=True):
    quant_method: Word | None = None
    quant_algo: Word | None = None
    format: Word | None = None
    bits: Size | None = None
    group_size: Group | None = None
    weight_block_size: list[Size] | None = None
    config_groups: dict[str, _Group] | None = None
    ignore: Spared | None = None
    modules_to_not_convert: Spared | None = None
    exclude_modules: Spared | None = None
    ignored_layers: Spared | None = None
    llm_int8_skip_modules: Spared | None = None
    quantized_layers: dict[str, _Module] | None = None
    dynamic: dict[str, _Module] | None = None
    exclude: Spared | None = None
    global_quant_config: _QuarkModule | None = None
    layer_quant_config: dict[str, _QuarkModule] | None = None


class _Quantization(_Level, frozen=True, kw_only=True):
    quantization: _Level | None = None
    producer: Json | None = None


def quantization_config(config: ReadJson) -> ReadJson | None:
    """The config's `quantization_config`, of either level, as one object.

    ModelOpt's own file, hf_quant_config.json, has its fields in a "quantization" of its own; neither it nor ModelOpt's
    first configs have a `quant_method`.
    """
    found = config.get("quantization_config", config.get("compression_config"))  # compressed-tensors' first name
    if found is None and isinstance(config.get("text_config"), Mapping):
        found = config["text_config"].get("quantization_config")
    if found is None:
        return None
    typed(found, _Quantization, "quantization_config")
    if config.get("model_type") == "deepseek_v4" and found.get("quant_method") == "fp8":
        return _deepseek_v4(found, config.get("expert_dtype", "fp4"))
    inner, producer = found.get("quantization") or {}, found.get("producer") or {}
    names_algorithm = any("quant_algo" in level for level in (inner, found))
    if not found.get("quant_method") and (producer.get("name") == "modelopt" or names_algorithm):
        return {**inner, **found, "quant_method": "modelopt"}
    return {**inner, **found}


def _deepseek_v4(quantization: ReadJson, expert_dtype: object) -> ReadJson:
    """FP8 in blocks of all but the experts, whose format has a word of its own, whatever else the config lists.

    Source: vLLM 0.33, models/deepseek_v4/quant_config.py.
    """
    four_bits = "nvfp4" if str(quantization.get("moe_quant_algo")).upper() == "NVFP4" else "mxfp4"
    formats = {"fp4": four_bits, "fp8": "fp8-block"}
    if expert_dtype not in formats:
        raise HeadcountError(f"expert_dtype is {str(expert_dtype)[:40]!r}; it must be one of {', '.join(formats)}")
    spared = {key: quantization[key] for key in ("ignored_layers", "modules_to_not_convert") if key in quantization}
    return {**spared, "quant_method": DEEPSEEK_V4, "experts": formats[str(expert_dtype)], "others": _fp8(quantization)}


def native_quantization(quantization: Mapping[str, object] | None) -> str | None:
    """The checkpoint's own weight format as a scheme name, None for 16-bit weights.

    A name such as `gptq-g32` stands for a format of kvcache/formats/weights with another group size.
    Of a checkpoint that mixes formats, that with the fewest bits. Raises `ValueError` on a format that no file in
    kvcache/formats/weights describes.
    """
    if quantization is None:
        return None
    if mixed := mixed_formats(quantization):
        return min(dict.fromkeys(mixed.values()), key=lambda name: find_quantization(name).bits_per_weight)
    method = str(quantization.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _compressed_tensors(quantization)
    if method.startswith("modelopt"):
        return _modelopt(quantization)
    if method in ("bitsandbytes", "gptq", "awq"):
        return _integers(method, quantization)
    return _of_whole_matrices(method, quantization)


def _of_whole_matrices(method: str, quantization: ReadJson) -> str:
    if method == "fp8":
        return _fp8(quantization)
    names = {"fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8"}  # the last: as ModelOpt's, in vLLM 0.33
    if method == "quark" and (whole := quark_formats(quantization)):
        return whole["*"]
    if method not in names:
        known = ", ".join(
            sorted([*names, "awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "modelopt", "quark"])
        )
        raise HeadcountError(f"quantization_config: quant_method {method!r} is not modelled; known: {known}")
    return names[method]


def mixed_formats(quantization: ReadJson) -> dict[str, str]:
    """Module → its format, of a checkpoint with more than one; empty for others.

    Modules are names, wildcards, or expressions after `re:`; `*` stands for all that no other names.
    """
    method = str(quantization.get("quant_method", "")).lower()
    if method == DEEPSEEK_V4:
        return {"*.ffn.experts.*": str(quantization["experts"]), "*": str(quantization["others"])}
    if method.startswith("modelopt") and "MIXED" in str(quantization.get("quant_algo")).upper():
        return _mixed_modelopt(quantization)
    if method == "compressed-tensors" and len(packed := _packed_groups(quantization)) > 1:
        named = {
            target: _packed_group(quantization, group) for group in packed for target in group.get("targets") or ()
        }
        whole = named.pop("Linear", None)  # a class; names go before it (vLLM find_matched_target)
        return named if whole is None else {**named, "*": whole}
    if method == "quark" and [*(own := quark_formats(quantization))] != ["*"]:
        return own
    overrides = quantization.get("dynamic") or {} if method == "gptq" else {}
    kept = {name.removeprefix("+:"): own for name, own in overrides.items() if not name.startswith("-:")}
    found = {f"re:{name}": _integers(method, {**quantization, **own}) for name, own in kept.items()}
    return {**found, "*": _integers(method, quantization)} if found else {}


def left_out(quantization: ReadJson) -> list[str]:
    """The modules that stay in 16 bits, as the config names them."""
    dynamic = quantization.get("dynamic") or {}
    return [
        *(str(name) for key in _KEYS for name in quantization.get(key) or ()),
        *(f"re:{name[2:]}" for name in dynamic if name.startswith("-:")),
    ]


_KEYS = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "llm_int8_skip_modules", "exclude")
_MODELOPT = {  # vLLM 0.32 layers/quantization/modelopt.py (LINEAR_ALGOS)
    "FP8": "fp8-tensor", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4-w4a16", "MXFP8": "mxfp8", "FP8_PB_WO": "fp8-block",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
}  # fmt: skip


def _mixed_modelopt(quantization: ReadJson) -> dict[str, str]:
    listed = quantization.get("quantized_layers")
    if not listed:
        raise HeadcountError(
            "quantization_config: quant_algo MIXED_PRECISION lacks quantized_layers; take the checkpoint's own "
            "config.json or hf_quant_config.json"
        )
    return {name: _modelopt_format(str(own.get("quant_algo", ""))) for name, own in listed.items()}


def _modelopt_format(algorithm: str) -> str:
    found = _MODELOPT.get(algorithm.upper())
    if found is None:
        known = f"known: {', '.join(_MODELOPT)}, MIXED_PRECISION"
        raise HeadcountError(f"quantization_config: quant_algo '{shortened(algorithm)}' is not known; {known}")
    return found


def _fp8(quantization: ReadJson) -> str:
    block = quantization.get("weight_block_size")
    if block is None:
        return "fp8-tensor"
    if list(block) != [128, 128]:
        raise HeadcountError(f"quantization_config: weight_block_size {block} is not modelled; only [128, 128] is")
    return "fp8-block"


def _modelopt(quantization: Mapping[str, object]) -> str | None:
    algorithm = str(quantization.get("quant_algo") or "NONE")
    return None if algorithm.upper() == "NONE" else _modelopt_format(algorithm)


def _integers(method: str, quantization: Mapping[str, object]) -> str:
    """GPTQ, AWQ, bitsandbytes."""
    bits = quantization.get("bits", 4)
    if method == "bitsandbytes":
        if quantization.get("load_in_8bit") or bits != 4:
            raise HeadcountError(f"quantization_config: {method} with 8 bits is not modelled; only 4 bits are")
        return "nf4-double" if quantization.get("bnb_4bit_use_double_quant") else "nf4"
    if bits not in ((4, 8) if method == "gptq" else (4,)):
        raise HeadcountError(f"quantization_config: {method} with {bits} bits is not modelled; only 4 bits are")
    name = _grouped("gptq-8bit" if bits == 8 else method, quantization.get("group_size", 128))
    return f"{name}-actorder" if method == "gptq" and quantization.get("desc_act") else name


def _grouped(name: str, group_size: object, usual: int = 128) -> str:
    """`gptq` with groups of 32: `gptq-g32`; -1 stands for one group per output channel."""
    if group_size in (None, -1):
        return name if usual == 0 else f"{name}-channel"
    if group_size == 0:
        raise HeadcountError("quantization_config: group_size is 0; it must be at least 1, or -1 for whole channels")
    return name if group_size == usual else f"{name}-g{group_size}"


def _packed_groups(quantization: ReadJson) -> list[ReadJson]:
    groups = quantization.get("config_groups")
    return [group for group in groups.values() if group.get("weights")] if isinstance(groups, Mapping) else []


def _compressed_tensors(quantization: ReadJson) -> str | None:
    # A group without weights quantizes attention alone; no group at all, with a KV cache's scheme, that alone.
    packed = _packed_groups(quantization)
    if quantization.get("config_groups") is not None and not packed:
        return None
    return _packed_group(quantization, packed[0] if packed else {})


def _packed_group(quantization: ReadJson, first: ReadJson) -> str:
    weights = first.get("weights") or {}
    bits, kind = weights.get("num_bits", 8), weights.get("type", "float")
    if bits not in (4, 8):
        raise HeadcountError(
            f"quantization_config: compressed-tensors with {bits} bits is not modelled; only 4 or 8 are"
        )
    if kind == "float":
        return _floats(weights, bits)
    if bits == 8 and first.get("input_activations"):
        return "int8"
    size = weights.get("group_size")
    if bits == 8:
        # Without a word on activations or groups: the usual 8 bits, W8A8.
        return _grouped("w8a16", size, usual=0) if "pack" in str(quantization.get("format", "")) else "int8"
    # Kimi-K2.5 and K2-Thinking leave attention alone: only the routed experts are packed, in groups of 32.
    spared = " ".join(str(name) for name in quantization.get("ignore") or ())
    if "self_attn" in spared and size == 32:
        return "int4-experts"
    base = "awq" if weights.get("symmetric") is False else "w4a16"
    return _grouped(base, 128 if size is None and weights.get("strategy") in (None, "group") else size)


def _floats(weights: Mapping[str, object], bits: int) -> str:
    if bits == 4:
        return "mxfp4-all" if weights.get("group_size") == 32 else "nvfp4"
    return {"tensor": "fp8-tensor", "block": "fp8-block"}.get(str(weights.get("strategy")), "fp8")


_MODELOPT_KV_CACHES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}  # vLLM 0.32 utils/torch_utils.py
_KV_CACHE_STRATEGIES = ("tensor", "attn_head")


def declared_kv_cache(
    quantization: Mapping[str, object] | None, *, is_outer: bool, is_latent: bool
) -> DeclaredKVCache | None:
    """The config's KV-cache format, None where it declares none; `is_outer` unless a nested config has it.

    Source: vLLM 0.32, utils/torch_utils.py (`get_kv_cache_quant_algo_string`), CompressedTensorsKVCacheMethod. Other
    methods (fp8, quark, …) declare none that vLLM heeds. Raises `ValueError` on a scheme that vLLM refuses.
    """
    if quantization is None:
        return None
    method = str(quantization.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _declared_by_compressed_tensors(quantization.get("kv_cache_scheme"), is_latent=is_latent)
    if method.startswith("modelopt") and is_outer:  # vLLM looks for ModelOpt's word there alone
        return _declared_by_modelopt(quantization)
    return None


def _declared_by_modelopt(quantization: Mapping[str, object]) -> DeclaredKVCache | None:
    inner = quantization.get("quantization")
    levels = (inner, quantization) if isinstance(inner, Mapping) else (quantization,)
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for level in levels:
            value = level.get(key)
            if value:
                return DeclaredKVCache(method="modelopt", dtype=_kv_cache_of_modelopt(value), text=_text(key, value))
    return None


def _kv_cache_of_modelopt(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return _MODELOPT_KV_CACHES.get(str(value).lower())
    bits = value.get("num_bits") if value.get("type") == "float" else None
    if bits == 8:
        return "fp8_e4m3" if value.get("dynamic") is False else None
    return "nvfp4" if bits == 4 else None


def _declared_by_compressed_tensors(scheme: Any, *, is_latent: bool) -> DeclaredKVCache | None:
    if scheme is None:
        return None
    known = isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    is_loaded = known and scheme.get("strategy") in _KV_CACHE_STRATEGIES and scheme.get("symmetric")
    if not is_loaded and not is_latent:  # latent attention looks for no scheme
        raise HeadcountError(
            f"quantization_config: {_text('kv_cache_scheme', scheme)}: vLLM loads none but symmetric 8-bit floats with "
            f"strategy {' or '.join(_KV_CACHE_STRATEGIES)}; correct it, or take another checkpoint"
        )
    return DeclaredKVCache(method="compressed-tensors", dtype="fp8", text=_text("kv_cache_scheme", scheme))


def _text(key: str, value: object) -> str:
    if not isinstance(value, Mapping):
        return f"{key} {_word(value)}"
    named = ", ".join(f"{name} {_word(value[name])}" for name in ("type", "num_bits", "strategy") if name in value)
    return f"{key} with {named or 'no type'}"


def _word(value: object) -> str:
    return one_line(str(value)[:40])
