"""From a config to what its layers with a state look like, or which layers they are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kvcache.models.config.fields import Fields
from kvcache.models.state_space import StateSpace
from kvcache.models.tensors import ExtraTensor

# The names of layers in `layer_types`, old or new (transformers configuration_utils, remap_legacy_layer_types).
_ATTENTION = ("attention", "full_attention")
_STATE = ("mamba", "mamba2", "linear_attention", "conv")
_WINDOWED = ("sliding_attention", "chunked_attention")
# Signs of a state in configs of families that are not read here.
_SIGNS = (
    "ssm_state_size", "mamba_d_state", "linear_num_key_heads", "linear_attn_config", "conv_L_cache", "attn_type_list",
    "linear_attn_alpha_factor", "layer_group_size", "block_types", "rwkv_hidden_size", "slstm_at",
)  # fmt: skip
# Families with a state that no sign above tells, or that deserve a reason.
_UNREAD = {
    "minimax": "lightning attention, which vLLM has not run since 0.23",
    "minimax_text_01": "lightning attention, which vLLM has not run since 0.23",
    "minimax_m1": "lightning attention, which vLLM has not run since 0.23",
    "zamba": "shared attention beside Mamba",
    "zamba2": "shared attention beside Mamba",
    "bailing_moe_linear": "lightning attention",
    "bailing_hybrid": "lightning attention",
    "recurrent_gemma": "recurrent",
    "olmo_hybrid": "gated delta net",
    "rwkv": "recurrent",
    "xlstm": "recurrent",
    "plamo2": "Mamba",
    "zaya": "compressed convolutional attention",
}
_PATTERN = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}  # Nemotron-H


def num_hidden_layers(fields: Fields) -> int:
    """How many layers a config describes: Nemotron-H may say so only by its list of them."""
    given = fields.optional("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    if given is None and fields.raw("model_type") == "nemotron_h":
        return len(_nemotron_kinds(fields))
    return fields.integer("num_hidden_layers") if given is None else given


def state_space_fields(fields: Fields, num_layers: int) -> dict[str, Any]:
    """The `Architecture` fields of layers with a state; empty where a model has none.

    Raises `ValueError` where such layers are of a kind that is not modelled, or lists contradict each other.
    """
    reader = _READERS.get(str(fields.raw("model_type")))
    if reader is None:
        _refuse_unknown(fields)
        return {}
    found = reader(fields, num_layers)
    for key in ("attention_layers", "state_layers", "mlp_layers", "moe_layers"):
        if found.get(key) and len(found[key]) != num_layers:
            raise fields.error(f"{len(found[key])} layers listed for {num_layers} hidden layers")
    if not any(found["state_layers"]):
        found |= {"state_layers": (), "state_space": None}
    return {"layer_windows": (None,) * num_layers, **found}


def _refuse_unknown(fields: Fields) -> None:
    kinds = {str(kind) for kind in fields.listed("layer_types", "layers_block_type") or ()}
    strange = sorted(kinds - {*_ATTENTION, *_WINDOWED})
    signs = [key for key in _SIGNS if fields.config.get(key) is not None]
    known = _UNREAD.get(str(fields.raw("model_type")))
    if strange or signs or known:
        what = known or ", ".join(strange) or f"state-space ({', '.join(signs)})"
        raise ValueError(
            f"model {fields.name!r}: {what} layers are not modelled for model_type {fields.raw('model_type')!r}; "
            f"only attention layers are, or those of {', '.join(sorted(_READERS))}"
        )


def _state_flags(fields: Fields, kinds: Iterable[Any]) -> tuple[bool, ...]:
    """Which layers have a state, from their names; `ValueError` on a name that is not known."""
    names = [str(kind) for kind in kinds]
    strange = sorted(set(names) - {*_ATTENTION, *_STATE})
    if strange:
        raise fields.error(
            f"layers of kind {', '.join(strange)} are not modelled; known: {', '.join(_ATTENTION + _STATE)}"
        )
    return tuple(name in _STATE for name in names)


def _listed_or(fields: Fields, default: Sequence[bool]) -> tuple[bool, ...]:
    """Which layers have a state: as listed, else as the family's rule says."""
    kinds = fields.listed("layer_types", "layers_block_type")
    return _state_flags(fields, kinds) if kinds is not None else tuple(default)


def _either(state_layers: tuple[bool, ...], state_space: StateSpace) -> dict[str, Any]:
    """Layers that have attention where they have no state."""
    return {
        "attention_layers": tuple(not flag for flag in state_layers),
        "state_layers": state_layers,
        "state_space": state_space,
    }


def _qwen(fields: Fields, num_layers: int) -> dict[str, Any]:
    interval = fields.integer("full_attention_interval", default=4) or 1
    layers = _listed_or(fields, [(layer + 1) % interval != 0 for layer in range(num_layers)])
    # vLLM 0.32 models/config.py: Qwen3.5 checkpoints name the dtype of their state, Qwen3-Next ones do not.
    named = fields.raw("mamba_ssm_dtype") if str(fields.raw("model_type")).startswith("qwen3_5") else None
    return _either(
        layers,
        StateSpace(
            kind="gated_delta_net",
            conv_kernel=fields.integer("linear_conv_kernel_dim"),
            num_heads=fields.integer("linear_num_value_heads"),
            head_dim=fields.integer("linear_value_head_dim"),
            num_key_heads=fields.integer("linear_num_key_heads"),
            key_head_dim=fields.integer("linear_key_head_dim"),
            state_dtype=str(named or "auto"),
            norm=True,
        ),
    )


def _kimi(fields: Fields, num_layers: int) -> dict[str, Any]:
    linear = fields.raw("linear_attn_config")
    linear = linear if isinstance(linear, Mapping) else {}
    full, state = linear.get("full_attn_layers"), linear.get("kda_layers")
    layers: tuple[bool, ...]
    if fields.raw("layer_types") is None and full is not None and state is not None:
        both = sorted([*full, *state])
        if both != list(range(1, num_layers + 1)):  # the checkpoint counts from 1
            raise fields.error(
                f"linear_attn_config lists {len(full)} attention and {len(state)} KDA layers, which together must name "
                f"each of the layers 1–{num_layers} once"
            )
        layers = tuple(layer in set(state) for layer in range(1, num_layers + 1))
    else:
        layers = _listed_or(fields, [layer == 0 or layer % 4 != 0 for layer in range(num_layers)])
    mlp_kinds = fields.listed("mlp_layer_types")
    dense = fields.integer("first_k_dense_replace", default=1)
    moe = [kind == "sparse" for kind in mlp_kinds] if mlp_kinds else [layer >= dense for layer in range(num_layers)]

    def size(key: str, flat: str) -> int:
        return fields.whole(linear[key], key) if key in linear else fields.integer(flat)

    return {
        **_either(
            layers,
            StateSpace(
                kind="kimi_delta",
                conv_kernel=size("short_conv_kernel_size", "linear_conv_kernel_dim"),
                num_heads=size("num_heads", "linear_num_heads"),
                head_dim=size("head_dim", "linear_head_dim"),
                state_dtype="float32",  # vLLM 0.32 MambaStateDtypeCalculator.kda_state_dtype for "auto"
                norm=True,
            ),
        ),
        "moe_layers": tuple(moe),
    }


def _mamba2_shape(fields: Fields, width: int, heads: int) -> dict[str, Any]:
    head_dim = fields.raw("mamba_d_head", "mamba_head_dim", "head_dim")
    if head_dim in (None, "auto"):
        head_dim = width // max(1, heads)
    head_dim = fields.whole(head_dim, "mamba_d_head")
    if heads * head_dim != width:
        raise fields.error(f"{heads} state-space heads of {head_dim} do not make up the width {width}")
    return {"kind": "mamba2", "num_heads": heads, "head_dim": head_dim}


def _bamba_like(fields: Fields, layers: tuple[bool, ...], width: int) -> dict[str, Any]:
    """Bamba, Granite 4, Falcon-H1: the same spellings."""
    projection = fields.flag("mamba_proj_bias", default=False)
    return _either(
        layers,
        StateSpace(
            **_mamba2_shape(fields, width, fields.integer("mamba_n_heads")),
            conv_kernel=fields.integer("mamba_d_conv"),
            num_groups=fields.integer("mamba_n_groups"),
            state_size=fields.integer("mamba_d_state"),
            conv_bias=fields.flag("mamba_conv_bias", default=True),
            projection_bias=projection,
            output_bias=fields.flag("projectors_bias", default=projection),
            norm=fields.flag("mamba_rms_norm", default=True),
        ),
    )


def _expanded(fields: Fields, *keys: str) -> int:
    """The width of state-space layers as a multiple of the hidden size."""
    factor = fields.raw(*keys)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor <= 0:
        raise fields.error(f"{keys[0]} is {factor!r}, must be a positive number")
    return int(factor * fields.integer("hidden_size"))


def _granite(fields: Fields, num_layers: int) -> dict[str, Any]:
    return _bamba_like(fields, _listed_or(fields, (True,) * num_layers), _expanded(fields, "mamba_expand"))


def _bamba(fields: Fields, num_layers: int) -> dict[str, Any]:
    attention = set(fields.listed("attn_layer_indices") or ())
    _within(fields, "attn_layer_indices", attention, num_layers)
    layers = tuple(layer not in attention for layer in range(num_layers))
    return _bamba_like(fields, layers, _expanded(fields, "mamba_expand"))


def _falcon_h1(fields: Fields, num_layers: int) -> dict[str, Any]:
    width = fields.optional("mamba_d_ssm") or _expanded(fields, "mamba_expand")
    both = (True,) * num_layers  # attention beside a state in every layer
    return {**_bamba_like(fields, both, width), "attention_layers": both}


def _within(fields: Fields, key: str, layers: Iterable[Any], num_layers: int) -> None:
    outside = [layer for layer in layers if not isinstance(layer, int) or not 0 <= layer < num_layers]
    if outside:
        raise fields.error(f"{key} names layer {outside[0]!r} of {num_layers} hidden layers")


def _nemotron_kinds(fields: Fields) -> tuple[str, ...]:
    listed = fields.listed("layers_block_type", "layer_types")
    if listed is not None:
        legacy = {"mamba": "linear_attention", "attention": "full_attention"}
        return tuple(legacy.get(str(kind), str(kind)) for kind in listed)
    pattern = fields.raw("hybrid_override_pattern")
    if not isinstance(pattern, str) or not set(pattern) <= _PATTERN.keys():
        raise fields.error(f"hybrid_override_pattern is {pattern!r}, must be made of {' '.join(_PATTERN)}")
    return tuple(_PATTERN[letter] for letter in pattern)


def _nemotron_h(fields: Fields, num_layers: int) -> dict[str, Any]:
    kinds = _nemotron_kinds(fields)
    strange = sorted(set(kinds) - set(_PATTERN.values()))
    if strange:
        raise fields.error(
            f"layers of kind {', '.join(strange)} are not modelled; known: {', '.join(_PATTERN.values())}"
        )
    heads = fields.integer("mamba_num_heads")
    bias = fields.flag("use_bias", default=False)
    return {
        "attention_layers": tuple(kind == "full_attention" for kind in kinds),
        "state_layers": tuple(kind == "linear_attention" for kind in kinds),
        "mlp_layers": tuple(kind in ("mlp", "moe") for kind in kinds),
        "moe_layers": tuple(kind == "moe" for kind in kinds),
        **_latent_experts(fields),
        **dict.fromkeys(("attention_bias", "attention_output_bias"), False),  # whatever the config says
        "state_space": StateSpace(
            kind="mamba2",
            num_heads=heads,
            head_dim=fields.integer("mamba_head_dim"),
            conv_kernel=fields.integer("mamba_d_conv", "conv_kernel"),
            num_groups=fields.integer("mamba_n_groups", "n_groups"),
            state_size=fields.integer("ssm_state_size"),
            # vLLM 0.32 NemotronHForCausalLMConfig: as the checkpoint says, else fp32.
            state_dtype=str(fields.raw("mamba_ssm_cache_dtype") or "float32"),
            conv_bias=fields.flag("mamba_conv_bias", "use_conv_bias", default=True),
            projection_bias=bias,
            output_bias=bias,
            norm=True,
        ),
    }


def _latent_experts(fields: Fields) -> dict[str, Any]:
    """Experts that read and write a narrower copy of the hidden state, whole on every rank."""
    latent, hidden = fields.optional("moe_latent_size"), fields.integer("hidden_size")
    if not latent:
        return {}
    pairs = [(latent, hidden), (hidden, latent)]
    matrices = [
        ExtraTensor(component="mlp", rows=rows, cols=cols, place="moe_layer", quantizable=True) for rows, cols in pairs
    ]
    if fields.flag("mlp_bias", default=False):
        matrices.append(ExtraTensor(component="mlp", rows=latent + hidden, place="moe_layer"))
    return {"moe_hidden_size": latent, "extra_tensors": tuple(matrices)}


def _periodic(fields: Fields, period_key: str, offset_key: str, num_layers: int) -> tuple[bool, ...]:
    """Layers at an offset in each period."""
    period, offset = fields.integer(period_key), fields.integer(offset_key)
    if offset >= period:
        raise fields.error(f"{offset_key} {offset} must be below {period_key} {period}")
    return tuple(layer % period == offset for layer in range(num_layers))


def _jamba(fields: Fields, num_layers: int) -> dict[str, Any]:
    attention = _periodic(fields, "attn_layer_period", "attn_layer_offset", num_layers)
    bias = fields.flag("mamba_proj_bias", default=False)
    return {
        **_either(
            tuple(not flag for flag in attention),
            StateSpace(
                kind="mamba1",
                intermediate_size=_expanded(fields, "mamba_expand"),
                state_size=fields.integer("mamba_d_state"),
                conv_kernel=fields.integer("mamba_d_conv"),
                dt_rank=_dt_rank(fields, "mamba_dt_rank"),
                conv_bias=fields.flag("mamba_conv_bias", default=True),
                projection_bias=bias,
                output_bias=bias,
                norm=True,
            ),
        ),
        "moe_layers": _periodic(fields, "expert_layer_period", "expert_layer_offset", num_layers),
    }


def _dt_rank(fields: Fields, key: str) -> int:
    rank = fields.raw(key)
    return -(-fields.integer("hidden_size", "d_model") // 16) if rank in (None, "auto") else fields.whole(rank, key)


def _lfm2(fields: Fields, num_layers: int) -> dict[str, Any]:
    indices = fields.listed("full_attn_idxs")
    attention = set(range(num_layers) if indices is None else indices)
    _within(fields, "full_attn_idxs", attention, num_layers)
    layers = _listed_or(fields, [layer not in attention for layer in range(num_layers)])
    found = _either(
        layers,
        StateSpace(
            kind="short_conv",
            intermediate_size=fields.integer("hidden_size"),
            conv_kernel=fields.integer("conv_L_cache"),
            conv_bias=fields.flag("conv_bias", default=False),
        ),
    )
    if fields.raw("model_type") != "lfm2_moe":
        return found
    dense = fields.integer("num_dense_layers")
    return {**found, "moe_layers": tuple(layer >= dense for layer in range(num_layers))}


def _without_attention(num_layers: int, state_space: StateSpace) -> dict[str, Any]:
    return {
        "attention_layers": (False,) * num_layers,
        "state_layers": (True,) * num_layers,
        "mlp_layers": (False,) * num_layers,
        "state_space": state_space,
    }


def _mamba(fields: Fields, num_layers: int) -> dict[str, Any]:
    bias = fields.flag("use_bias", default=False)
    return _without_attention(
        num_layers,
        StateSpace(
            kind="mamba1",
            intermediate_size=_expanded(fields, "expand"),
            state_size=fields.integer("state_size"),
            conv_kernel=fields.integer("conv_kernel"),
            dt_rank=_dt_rank(fields, "time_step_rank"),
            conv_bias=fields.flag("use_conv_bias", default=True),
            projection_bias=bias,
            output_bias=bias,
        ),
    )


def _mamba2(fields: Fields, num_layers: int) -> dict[str, Any]:
    bias = fields.flag("use_bias", default=False)
    shape = _mamba2_shape(fields, _expanded(fields, "expand"), fields.integer("num_heads"))
    return _without_attention(
        num_layers,
        StateSpace(
            **shape,
            num_groups=fields.integer("n_groups"),
            state_size=fields.integer("state_size"),
            conv_kernel=fields.integer("conv_kernel"),
            conv_bias=fields.flag("use_conv_bias", default=True),
            projection_bias=bias,
            output_bias=bias,
            norm=True,
        ),
    )


# Sources: the configuration and modelling files of transformers 5.19, the models of vLLM 0.32 (Bamba's: 0.22).
_READERS: Mapping[str, Callable[[Fields, int], dict[str, Any]]] = {
    "qwen3_next": _qwen,
    "qwen3_5_text": _qwen,
    "qwen3_5_moe_text": _qwen,
    "kimi_linear": _kimi,
    "granitemoehybrid": _granite,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "nemotron_h": _nemotron_h,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "mamba": _mamba,
    "falcon_mamba": _mamba,
    "mamba2": _mamba2,
}
