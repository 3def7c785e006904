"""Which configs describe layers or caches that are not modelled, and would be counted wrongly."""

from files.errors import HeadcountError
from kvcache.models.config.families import entries, families_with_states
from kvcache.models.config.fields import Fields, Names, Numbers

_OTHER_WIDTHS = {  # of some layers → of the others
    "global_head_dim": "head_dim", "num_global_key_value_heads": "num_key_value_heads",
    "swa_head_dim": "head_dim", "swa_num_key_value_heads": "num_key_value_heads",
}  # fmt: skip
_LAYER_NAMES = {"attention", "full_attention", "sliding_attention", "chunked_attention"}


def refuse_unread(fields: Fields, outer_type: str = "") -> None:
    """Raises `ValueError` where the KV cache or the weights would be read wrongly.

    `outer_type`: the model_type around a text_config.
    """
    _refuse_sparse(fields)
    _refuse_others(fields, (fields.model_type, outer_type))
    if fields.family.state is None:
        _refuse_states(fields)
    found = [] if fields.family.unequal_caches else _unequal_caches(fields)
    if fields.raw("is_encoder_decoder"):
        found.append("is_encoder_decoder")
    if found:
        raise HeadcountError(
            f"model {fields.name!r}: {', '.join(found)}: KV caches that differ between layers are not modelled "
            f"for model_type {fields.model_type!r}"
        )


def _refuse_sparse(fields: Fields) -> None:
    sparse = entries("refusals.toml")["sparse"]
    compresses = fields.family.compresses
    read = () if fields.family.has_indexer or compresses else sparse["signs"]
    blocks = () if fields.family.has_block_indexer else sparse["of_blocks"]
    compressed = () if compresses else sparse["of_compression"]
    signs = [key for key in (*read, *blocks, *compressed) if fields.config.get(key) is not None]
    if signs or fields.model_type.startswith(tuple(sparse["beginnings"])):
        told = f" ({', '.join(signs)})" if signs else ""
        raise HeadcountError(
            f"model {fields.name!r}: the sparse attention of model_type {fields.model_type!r}{told} is not modelled: "
            "it keeps caches of its own, which are not counted; choose a model without them"
        )


def _refuse_others(fields: Fields, model_types: tuple[str, str]) -> None:
    for beginning, why in entries("refusals.toml")["otherwise"].items():
        if found := next((each for each in model_types if each.startswith(beginning)), None):
            raise HeadcountError(
                f"model {fields.name!r}: {why}, not modelled for model_type {found!r}; take another model"
            )


def _refuse_states(fields: Fields) -> None:
    kinds = set(fields.value(Names, "layer_types", "layers_block_type") or ())
    own = {"deepseek_sparse_attention"} if fields.family.has_indexer else set()
    own |= {"compressed_sparse_attention", "heavily_compressed_attention"} if fields.family.compresses else set()
    strange = sorted(kinds - _LAYER_NAMES - own)
    signs = [key for key in entries("refusals.toml")["states"]["signs"] if fields.config.get(key) is not None]
    if set(fields.value(Numbers, "attn_type_list") or ()) == {1}:  # MiniMax: 1 is softmax attention, 0 lightning
        signs.remove("attn_type_list")
    known = entries("refusals.toml")["state_types"].get(fields.model_type)
    if strange or signs or known:
        what = known or ", ".join(strange) or f"state-space ({', '.join(signs)})"
        raise HeadcountError(
            f"model {fields.name!r}: {what} layers are not modelled for model_type {fields.model_type!r}; "
            f"only attention layers are, or those of {', '.join(families_with_states())}"
        )


def _unequal_caches(fields: Fields) -> list[str]:
    found = [
        f"{key} {fields.raw(key)}"
        for key, usual in _OTHER_WIDTHS.items()
        if fields.raw(key) is not None and fields.raw(key) != fields.raw(usual)
    ]
    if fields.raw("attention_other_setting") and not fields.family.unequal_heads:  # Step 3.5: heads of some layers
        found.append("attention_other_setting")
    if fields.raw("num_kv_shared_layers"):
        found.append(f"num_kv_shared_layers {fields.raw('num_kv_shared_layers')}")
    return found
