"""From a Gemma 3n or Gemma 4 config to layers that differ in caches, heads or widths."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvcache.models.config.fields import Fields
from kvcache.models.tensors import ExtraTensor

RESIDUAL = "residual"  # what these families add around the residual stream


def gemma_fields(fields: Fields, num_layers: int) -> dict[str, Any]:
    """The `Architecture` fields that only these families have; empty for all others."""
    reader = _READERS.get(str(fields.raw("model_type")))
    return {} if reader is None else reader(fields, num_layers)


def _gemma3n(fields: Fields, num_layers: int) -> dict[str, Any]:
    kinds = _kinds(fields, num_layers, every=5)
    widths = fields.raw("intermediate_size")
    if isinstance(widths, list | tuple) and len(widths) != num_layers:
        raise fields.error(f"intermediate_size lists {len(widths)} widths for {num_layers} hidden layers")
    hidden, inputs = fields.integer("hidden_size"), fields.integer("altup_num_inputs")
    rank = fields.integer("laurel_rank")
    return {
        **_shared(fields, kinds),
        "layer_windows": _windows(fields, kinds),
        "mlp_widths": tuple(fields.whole(width, "intermediate_size") for width in widths)
        if isinstance(widths, list | tuple)
        else (),
        "extra_tensors": (
            *_per_layer_inputs(fields, num_layers),
            # Alternating updates: `inputs` copies of the hidden state.
            ExtraTensor(component=RESIDUAL, rows=hidden, cols=hidden, count=inputs - 1, place="first", split="rows"),
            ExtraTensor(component=RESIDUAL, rows=hidden, cols=hidden, count=inputs - 1, place="last", split="rows"),
            ExtraTensor(component=RESIDUAL, rows=inputs, cols=inputs),
            ExtraTensor(component=RESIDUAL, rows=inputs**2, cols=inputs),
            ExtraTensor(component=RESIDUAL, rows=inputs, cols=hidden),
            ExtraTensor(component=RESIDUAL, rows=hidden),  # the router's norm
            ExtraTensor(component=RESIDUAL, rows=hidden, element_bytes=4),  # the output's scale
            # The learned augmented residual.
            ExtraTensor(component=RESIDUAL, rows=rank, cols=hidden, split="rows", quantizable=True),
            ExtraTensor(component=RESIDUAL, rows=hidden, cols=rank, split="cols", quantizable=True),
            ExtraTensor(component=RESIDUAL, rows=hidden),
        ),
    }


def _gemma4(fields: Fields, num_layers: int) -> dict[str, Any]:
    kinds = _kinds(fields, num_layers, every=6)
    kinds = (*kinds[:-1], "full_attention")  # transformers and vLLM force the last layer
    shared = _shared(fields, kinds)
    borrows = [layer is not None for layer in shared["kv_shared_with"]] or [False] * num_layers
    width = fields.integer("intermediate_size")
    doubled = fields.flag("use_double_wide_mlp", default=False) and any(borrows)
    same = fields.flag("attention_k_eq_v", default=False)
    has_experts = fields.flag("enable_moe_block", default=False)
    return {
        **shared,
        **_full_heads(fields, same),
        "layer_windows": _windows(fields, kinds),
        "mlp_widths": tuple(width * (2 if borrowed else 1) for borrowed in borrows) if doubled else (),
        "keys_as_values": same,
        "dense_beside_experts": has_experts,
        "moe_layers": (True,) * num_layers if has_experts else (),
        "norms_per_layer": 7 if has_experts else 4,
        "extra_tensors": (
            *_per_layer_inputs(fields, num_layers),
            ExtraTensor(component=RESIDUAL, rows=1),  # each layer's scalar
            *_router_scales(fields, has_experts),
        ),
    }


def _router_scales(fields: Fields, has_experts: bool) -> tuple[ExtraTensor, ...]:
    if not has_experts:
        return ()
    widths = fields.integer("hidden_size"), fields.integer("num_experts")
    return tuple(ExtraTensor(component="router", rows=width) for width in widths)


def _kinds(fields: Fields, num_layers: int, *, every: int) -> tuple[str, ...]:
    """Each layer's kind: as listed, else full attention in every so many."""
    listed = fields.listed("layer_types")
    if listed is None:
        return tuple("sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(num_layers))
    strange = sorted({str(kind) for kind in listed} - {"full_attention", "sliding_attention"})
    if strange:
        raise fields.error(f"{', '.join(strange)} layers are not modelled")
    if len(listed) != num_layers:
        raise fields.error(f"{len(listed)} attention layers listed for {num_layers} hidden layers")
    return tuple(str(kind) for kind in listed)


def _windows(fields: Fields, kinds: Sequence[str]) -> tuple[int | None, ...]:
    window = fields.integer("sliding_window")
    return tuple(None if kind == "full_attention" else window for kind in kinds)


def _shared(fields: Fields, kinds: Sequence[str]) -> dict[str, Any]:
    """The last layers read the cache of the last layer of their kind before them."""
    count = fields.integer("num_kv_shared_layers", default=0)
    if not count:
        return {"kv_shared_with": ()}
    first = len(kinds) - count
    owners = {kind: layer for layer, kind in enumerate(kinds[: max(0, first)])}
    missing = sorted(set(kinds[max(0, first) :]) - owners.keys())
    if missing:
        raise fields.error(
            f"num_kv_shared_layers {count} of {len(kinds)} hidden layers leaves no earlier {missing[0]} layer to share"
        )
    return {"kv_shared_with": (*(None,) * first, *(owners[kind] for kind in kinds[first:]))}


def _full_heads(fields: Fields, same: bool) -> dict[str, Any]:
    """Heads of full attention where they differ from those with a window.

    Their own number of KV heads counts only where keys serve as values (transformers Gemma4TextConfig).
    """
    head_dim, kv_heads = fields.integer("global_head_dim"), fields.optional("num_global_key_value_heads")
    usual_dim, usual_kv = fields.integer("head_dim"), fields.integer("num_key_value_heads")
    if not same:
        kv_heads = None
    return {
        "rotary_width": (usual_dim + head_dim) // 2,  # the mean of its two tables
        "full_attention_head_dim": None if head_dim == usual_dim else head_dim,
        "full_attention_num_key_value_heads": None if kv_heads == usual_kv else kv_heads,
    }


def _per_layer_inputs(fields: Fields, num_layers: int) -> tuple[ExtraTensor, ...]:
    """A second, narrow embedding of each token for each layer; absent where its width is 0."""
    width = fields.integer("hidden_size_per_layer_input", default=0)
    if not width:
        return ()
    hidden, vocabulary = fields.integer("hidden_size"), fields.integer("vocab_size_per_layer_input")
    packed = num_layers * width
    return (
        ExtraTensor(component="embedding", rows=vocabulary, cols=packed, place="every", vocabulary=True),
        ExtraTensor(component=RESIDUAL, rows=packed, cols=hidden, place="every", split="rows", quantizable=True),
        ExtraTensor(component=RESIDUAL, rows=width, place="every"),
        ExtraTensor(component=RESIDUAL, rows=width, cols=hidden, quantizable=True),
        ExtraTensor(component=RESIDUAL, rows=hidden, cols=width, quantizable=True),
        ExtraTensor(component=RESIDUAL, rows=hidden),
    )


# Sources: transformers 5.19 models/gemma3n, models/gemma4; splits as vLLM 0.32 models/gemma3n, models/gemma4.
_READERS: Mapping[str, Callable[[Fields, int], dict[str, Any]]] = {
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
}
