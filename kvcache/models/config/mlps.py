"""From a config to each layer's MLP and experts."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from files.errors import HeadcountError
from files.names import shortened
from kvcache.models.config.families import FALLBACK
from kvcache.models.config.fields import Factor, Fields, Names, Numbers, Size
from kvcache.models.config.layer_kinds import EXPERTS, MLP, periodic
from kvcache.shape.layer import Experts

LayerNumbers = Annotated[
    str, Meta(max_length=10_000, pattern=r"^\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*$", description="layers, separated by commas")
]
_DENSE_WIDTHS = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_k",
    "moe_top_k",
    "moe_topk",
)
Mlp = tuple[int, Experts | None]  # width of the MLP, 0 without one; the experts


def read_mlps(fields: Fields, kinds: Sequence[str], borrows: Sequence[bool]) -> list[Mlp]:
    """What each layer has beside attention or a state; `borrows`: which layers read another's cache.

    Raises `ValueError` where a width is missing.
    """
    is_pattern = fields.family.kinds == "pattern"  # Nemotron-H: an MLP or experts are layers of their own
    has_mlp = [fields.family.has_mlp and (not is_pattern or kind in (MLP, EXPERTS)) for kind in kinds]
    sparse = _expert_layers(fields, kinds)
    num_experts = fields.integer(*_COUNTS, default=0)
    is_dense_with_0 = fields.model_type == "granitemoehybrid"  # transformers: has_experts = num_local_experts > 0
    if (
        fields.raw(*_COUNTS) == 0
        and not is_dense_with_0
        and (chosen := next(filter(None, map(fields.config.get, _PER_TOKEN)), 0))
    ):
        raise fields.error(f"{shortened(str(chosen))} experts per token of 0 experts")
    if num_experts <= 1 or not any(sparse):
        _refuse_unread_experts(fields)
        widths = _widths(fields, _dense_width(fields) if any(has_mlp) else 0, borrows)
        return _mlps(fields, widths, has_mlp, [None] * len(kinds))
    dense = _one_width(fields) if is_pattern else fields.optional(*_DENSE_WIDTHS)
    experts = _experts(fields, num_experts, dense)
    if fields.family.dense_width_key and fields.raw(fields.family.dense_width_key) is not None:
        dense = fields.integer(fields.family.dense_width_key)
    beside = fields.flag("enable_moe_block") and fields.model_type == "gemma4_text"
    has_dense = [has and (beside or not routed) for has, routed in zip(has_mlp, sparse, strict=True)]
    widths = _widths(fields, dense or 0, borrows)
    return _mlps(fields, widths, has_dense, [experts if routed else None for routed in sparse])


def _refuse_unread_experts(fields: Fields) -> None:
    """Raises HeadcountError where a family that is not known counts experts under a name that is not read."""
    for key, value in fields.config.items() if fields.family is FALLBACK else ():
        if "expert" in key and key not in _COUNTS and isinstance(value, int) and value > 1:
            known = ", ".join(_COUNTS)
            raise fields.error(
                f"{shortened(key)} is {value}, and its experts are not read; give their number as {known}"
            )


def _mlps(
    fields: Fields, widths: Sequence[int], has_dense: Sequence[bool], experts: Sequence[Experts | None]
) -> list[Mlp]:
    dense = [width if has else 0 for width, has in zip(widths, has_dense, strict=True)]
    if any(has and not width for width, has in zip(dense, has_dense, strict=True)):
        raise fields.error("intermediate_size is missing for its dense layers")
    return list(zip(dense, experts, strict=True))


def _experts(fields: Fields, num_experts: int, dense: int | None) -> Experts:
    width = fields.integer("moe_intermediate_size", default=dense)
    shared = fields.optional("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
    if shared is None:
        shared = fields.integer("moe_shared_expert_intermediate_size", default=width) * fields.integer(
            "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0
        )
    return Experts(
        num_experts=num_experts,
        num_experts_per_tok=fields.integer(*_PER_TOKEN),
        moe_intermediate_size=width,
        shared_expert_intermediate_size=shared,
        hidden_size=latent_width(fields),
    )


def latent_width(fields: Fields) -> int:
    """The width of what experts read and write, where it is a narrower copy of the hidden state; else 0."""
    key = {"nemotron_h": "moe_latent_size", "kimi_linear": "routed_expert_hidden_size"}.get(fields.model_type)
    return (fields.optional(key) or 0) if key else 0


def _expert_layers(fields: Fields, kinds: Sequence[str]) -> list[bool]:
    """Which layers route tokens to experts, were there any."""
    layers = range(len(kinds))
    if fields.family.kinds == "pattern":
        return [kind == EXPERTS for kind in kinds]
    if fields.family.kinds == "period":
        return periodic(fields, "expert", len(kinds))
    if fields.model_type == "gemma4_text":
        return [fields.flag("enable_moe_block")] * len(kinds)
    if (fields.family.kinds == "kimi" or fields.family.lists_mlps) and (
        listed := fields.value(Names, "mlp_layer_types")
    ):
        return _listed(fields, listed, len(kinds))
    if (numbers := fields.value(LayerNumbers, "moe_layers_enum")) is not None:  # Step 3.5
        sparse = {int(number) for number in numbers.split(",")}
        if max(sparse) >= len(kinds):
            raise fields.error(
                f"moe_layers_enum names layer {max(sparse)} of {len(kinds)} hidden layers, counted from 0"
            )
        return [layer in sparse for layer in layers]
    return _sparse_by_step(fields, layers)


def _listed(fields: Fields, mlps: Sequence[str], num_layers: int) -> list[bool]:
    """Which layers have experts, as `mlp_layer_types` says; draft layers may be listed behind."""
    if len(mlps) not in (num_layers, num_layers + (fields.optional("num_nextn_predict_layers") or 0)):
        raise fields.error(f"mlp_layer_types lists {len(mlps)} layers for {num_layers} hidden layers")
    if unknown := sorted(set(mlps) - {"dense", "sparse"}):
        raise fields.error(f"mlp_layer_types has {shortened(unknown[0])!r}; known: dense, sparse")
    return [mlp == "sparse" for mlp in mlps[:num_layers]]


def _sparse_by_step(fields: Fields, layers: range) -> list[bool]:
    if isinstance(fields.raw("moe_layer_freq"), list | tuple):  # MiMo-V2: a flag for each layer
        flags = fields.value(Numbers, "moe_layer_freq") or []
        if len(flags) != len(layers):
            raise fields.error(f"moe_layer_freq lists {len(flags)} layers for {len(layers)} hidden layers")
        return [flag != 0 for flag in flags]
    first = fields.integer("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
    open_end = fields.raw("moe_layer_end_index") in (None, -1)  # ERNIE 4.5
    last = len(layers) if open_end else fields.integer("moe_layer_end_index")
    step = (
        fields.integer(
            "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval", default=1
        )
        or 1
    )
    dense_only, sparse_only = (set(fields.value(Numbers, key) or ()) for key in ("mlp_only_layers", "moe_layers"))
    if sparse_only:
        return [layer in sparse_only for layer in layers]
    # DeepSeek counts its frequency from layer 0, Qwen and Llama 4 from layer 1; they differ only for steps above 1.
    offset = 0 if fields.raw("moe_layer_freq") is not None else 1
    return [first <= layer <= last and (layer + offset) % step == 0 and layer not in dense_only for layer in layers]


def _widths(fields: Fields, usual: int, borrows: Sequence[bool]) -> list[int]:
    """Each layer's MLP width, where it has one: Gemma 3n lists them, Gemma 4 doubles those of borrowing layers."""
    listed = fields.raw("intermediate_size")
    if fields.model_type == "gemma3n_text" and isinstance(listed, list | tuple):
        if len(listed) != len(borrows):
            raise fields.error(f"intermediate_size lists {len(listed)} widths for {len(borrows)} hidden layers")
        return fields.value(list[Size], "intermediate_size") or []
    doubled = fields.model_type == "gemma4_text" and fields.flag("use_double_wide_mlp")
    return [usual * (2 if doubled and borrowed else 1) for borrowed in borrows]


def _dense_width(fields: Fields) -> int:
    """The MLP width of a model without experts."""
    key = fields.family.dense_width_key
    if key and fields.raw(key) is not None:
        return fields.integer(key)
    if fields.model_type == "granitemoehybrid":  # without experts, the shared MLP is the only one
        return fields.integer("shared_intermediate_size")
    listed = fields.raw("intermediate_size")
    if fields.model_type == "gemma3n_text" and isinstance(listed, list | tuple):
        return 0  # each layer has its own
    dense = _one_width(fields)
    if dense is not None:
        return _adjusted(fields, dense) if fields.model_type == "lfm2" else dense
    if fields.family.ffn_multiple is None:
        raise HeadcountError(f"model {fields.name!r}: config.json lacks 'intermediate_size'; add it")
    return fields.hidden_size * fields.family.ffn_multiple


def _one_width(fields: Fields) -> int | None:
    keys = ("block_ff_dim", *_DENSE_WIDTHS)
    value = fields.raw(*keys)
    if isinstance(value, list | tuple):  # Nemotron-H may write one width for all as a list
        widths = fields.value(list[Size], *keys) or []
        if len(set(widths)) != 1:
            raise fields.error(f"intermediate_size {shortened(str(widths))}: MLPs of different widths are not modelled")
        return widths[0]
    return fields.optional(*keys)


def _adjusted(fields: Fields, width: int) -> int:
    """LFM2's rounding of its MLP width (transformers and vLLM models/lfm2, block_auto_adjust_ff_dim)."""
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(2 * width / 3)
    factor = fields.value(Factor, "block_ffn_dim_multiplier")
    if factor is not None:
        width = int(factor * width)
    unit = max(1, fields.integer("block_multiple_of"))
    return -(-width // unit) * unit
