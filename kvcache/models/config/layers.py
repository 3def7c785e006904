"""From a config to the model's layers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from files.errors import HeadcountError
from kvcache.models.config.blocks import read_blocks
from kvcache.models.config.compressed import read_compressed
from kvcache.models.config.fields import Fields, Names, Numbers
from kvcache.models.config.layer_kinds import FULL, PARALLEL, STATE, WINDOW, chunk_of, layer_kinds, window_of
from kvcache.models.config.mlps import read_mlps
from kvcache.models.config.states import read_state
from kvcache.shape.layer import Attention, Indexer, LatentAttention, Layer


def read_layers(fields: Fields) -> tuple[Layer, ...]:
    """Every layer. Raises `ValueError` on missing or contradictory fields."""
    if fields.family.kinds == "blocks":
        return read_blocks(fields)
    if fields.family.compresses:
        compressed = read_compressed(fields)
        widths = read_mlps(fields, (WINDOW,) * len(compressed), (False,) * len(compressed))
        by_word = fields.integer("num_hash_layers")
        return tuple(
            Layer(
                attention=own,
                intermediate_size=width,
                experts=experts and replace(experts, by_word=index < by_word),
            )
            for index, (own, (width, experts)) in enumerate(zip(compressed, widths, strict=True))
        )
    kinds = layer_kinds(fields)
    owners = _kv_owners(fields, kinds)
    attends = {kind: _attention(fields, kind) for kind in dict.fromkeys(kinds) if kind in (FULL, WINDOW, PARALLEL)}
    state = read_state(fields) if {STATE, PARALLEL} & set(kinds) else None
    mlps = read_mlps(fields, kinds, [owner is not None for owner in owners])
    found = tuple(
        Layer(
            attention=attends.get(kind) if owner is None else replace(attends[kind], kv_owner=owner),
            state=state if kind in (STATE, PARALLEL) else None,
            intermediate_size=width,
            experts=experts,
        )
        for kind, owner, (width, experts) in zip(kinds, owners, mlps, strict=True)
    )
    if fields.family.unequal_heads:
        found = tuple(
            replace(layer, attention=layer.attention and replace(layer.attention, num_heads=heads))
            for layer, heads in zip(found, _query_heads(fields, kinds), strict=True)
        )
    if fields.family.has_block_indexer:
        return tuple(_block_sparse(fields, found))
    return tuple(
        layer
        if chooses or layer.attention is None
        else replace(layer, attention=replace(layer.attention, indexer=None))
        for layer, chooses in zip(found, _choosing(fields, len(found)), strict=True)
    )


def _block_sparse(fields: Fields, layers: Sequence[Layer]) -> Iterator[Layer]:
    """Layers whose queries attend to the best blocks of tokens alone, where `sparse_attention_freq` has a 1.

    Source: vLLM 0.33, models/minimax_m3/nvidia/model.py.
    """
    section = "sparse_attention_config"
    flags = fields.value(Numbers, f"{section}.sparse_attention_freq") or []
    if len(flags) != len(layers):
        raise fields.error(f"sparse_attention_freq lists {len(flags)} layers for {len(layers)} hidden layers")
    blocks = fields.integer(f"{section}.sparse_topk_blocks") * fields.integer(f"{section}.sparse_block_size")
    heads, width = fields.integer(f"{section}.sparse_num_index_heads"), fields.integer(f"{section}.sparse_index_dim")
    indexer = Indexer(num_heads=heads, head_dim=width, chooses_blocks=True)
    for layer, flag in zip(layers, flags, strict=True):
        if flag and layer.attention is not None:
            yield replace(layer, attention=replace(layer.attention, topk=blocks, indexer=indexer))
        else:
            yield layer


def _choosing(fields: Fields, num_layers: int) -> list[bool]:
    """Which layers choose for themselves what sparse attention reads; the others take an earlier one's choice.

    Source: vLLM 0.33, models/deepseek_v32/attention.py.
    """
    pattern = fields.raw("index_topk_pattern")
    if pattern is not None:
        letters = pattern if isinstance(pattern, str) else fields.value(Names, "index_topk_pattern") or []
        if len(letters) != num_layers or not set(letters) <= {"F", "S"}:
            raise fields.error(f"index_topk_pattern must be one letter, F or S, for each of {num_layers} hidden layers")
        return [letter == "F" for letter in letters]
    step, offset = (
        fields.integer("index_topk_freq", default=1) or 1,
        fields.integer("index_skip_topk_offset", default=2),
    )
    return [max(layer - offset + 1, 0) % step == 0 for layer in range(num_layers)]


def _kv_owners(fields: Fields, kinds: Sequence[str]) -> list[int | None]:
    """Whose cache each layer reads, None for its own: the last ones that of the last of their kind before them."""
    count = fields.integer("num_kv_shared_layers", default=0) if fields.family.unequal_caches else 0
    first = max(0, len(kinds) - count)
    last_of_kind = {kind: layer for layer, kind in enumerate(kinds[:first])}
    missing = sorted(set(kinds[first:]) - last_of_kind.keys())
    if missing:
        name = "full_attention" if missing[0] == FULL else "sliding_attention"
        raise fields.error(
            f"num_kv_shared_layers {count} of {len(kinds)} hidden layers leaves no earlier {name} layer to share"
        )
    return [None] * first + [last_of_kind[kind] for kind in kinds[first:]]


def _attention(fields: Fields, kind: str) -> Attention:
    heads = fields.integer("num_attention_heads", "n_head", "num_heads", "n_heads")
    if heads <= 0:
        raise fields.error(f"num_attention_heads is {heads}, must be positive")
    latent, chunk = fields.optional("kv_lora_rank"), chunk_of(fields)
    window, chunked = window_of(fields) if kind == WINDOW else None, kind == WINDOW and chunk is not None
    if latent:
        nope, rope = fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim")
        return Attention(
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=nope + rope,
            window=window,
            chunked=chunked,
            latent=LatentAttention(
                kv_lora_rank=latent,
                q_lora_rank=fields.optional("q_lora_rank"),
                qk_nope_head_dim=nope,
                qk_rope_head_dim=rope,
                v_head_dim=fields.integer("v_head_dim"),
            ),
            **_sparse(fields),
        )
    if fields.family.wide_keys:
        return _wide_keys(fields, window)
    own = kind == FULL and fields.model_type == "gemma4_text"
    # Its own number of KV heads counts only where keys serve as values (transformers Gemma4TextConfig).
    same = own and fields.flag("attention_k_eq_v")
    kv_heads = (fields.optional("num_global_key_value_heads") if same else None) or _kv_heads(fields, heads)
    return Attention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=fields.integer("global_head_dim") if own else _head_dim(fields, heads),
        window=window,
        chunked=chunked,
        keys_as_values=same,
    )


def _query_heads(fields: Fields, kinds: Sequence[str]) -> list[int]:
    """Each layer's query heads: as listed (Laguna), or those of layers with a window apart (Step 3.5)."""
    usual, other = fields.integer("num_attention_heads"), "attention_other_setting"
    listed = fields.value(Numbers, "num_attention_heads_per_layer")
    if listed is not None and len(listed) != len(kinds):
        raise fields.error(f"num_attention_heads_per_layer lists {len(listed)} layers for {len(kinds)} hidden layers")
    for key, usually in (("num_attention_groups", _kv_heads(fields, usual)), ("head_dim", _head_dim(fields, usual))):
        if (own := fields.optional(f"{other}.{key}")) is not None and own != usually:
            raise fields.error(f"{other}.{key} is {own}, not {usually} as elsewhere: such caches are not modelled")
    windowed = fields.integer("num_sliding_attention_heads", f"{other}.num_attention_heads", default=usual)
    return listed or [windowed if kind == WINDOW else usual for kind in kinds]


def _sparse(fields: Fields) -> dict[str, Any]:
    """What makes latent attention sparse, where the config has `index_topk`, as vLLM asks."""
    topk = fields.optional("index_topk") if fields.family.has_indexer else None
    if topk is None:
        return {}
    if not fields.optional("q_lora_rank"):
        raise fields.error("index_topk without q_lora_rank, of which its indexer makes its queries")
    indexer = Indexer(num_heads=fields.integer("index_n_heads"), head_dim=fields.integer("index_head_dim"))
    return {"topk": topk, "indexer": indexer}


def _wide_keys(fields: Fields, window: int | None) -> Attention:
    """MiMo-V2: keys wider than values, and widths of their own in the layers with a window."""
    own = "swa_" if window else ""
    head_dim = fields.integer(f"{own}head_dim")
    return Attention(
        num_heads=fields.integer(f"{own}num_attention_heads"),
        num_kv_heads=fields.integer(f"{own}num_key_value_heads"),
        head_dim=head_dim,
        v_head_dim=fields.integer(f"{own}v_head_dim", default=head_dim),
        window=window,
    )


def _head_dim(fields: Fields, heads: int) -> int:
    head_dim, hidden = fields.optional("head_dim"), fields.hidden_size
    if head_dim is None and hidden % heads:
        raise HeadcountError(
            f"model {fields.name!r}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}; "
            "give head_dim in its config.json"
        )
    return hidden // heads if head_dim is None else head_dim


def _kv_heads(fields: Fields, heads: int) -> int:
    # Falcon: `new_decoder_architecture` reads num_kv_heads; before it, `multi_query` shares one head.
    if fields.flag("new_decoder_architecture"):
        return fields.integer("num_kv_heads", default=heads)
    if fields.raw("multi_query") is not None:
        return 1 if fields.flag("multi_query") else heads
    return fields.integer("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", default=heads)
