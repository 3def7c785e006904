"""From `block_configs` to layers of unequal widths, as neural architecture search leaves them (Llama-Nemotron)."""

from typing import Annotated

from msgspec import Meta

from files.schema import Lenient
from kvcache.models.config.fields import Factor, Fields, Positive
from kvcache.shape.layer import Attention, Layer

_WIDTH_UNIT = 256  # vLLM 0.32 models/nemotron_nas.py (_ffn_mult_to_intermediate_size)


class _Attention(Lenient, frozen=True, kw_only=True):
    no_op: bool = False
    replace_with_linear: bool | None = False
    n_heads_in_group: Positive | None = None
    window_length: Positive | None = None


class _MLP(Lenient, frozen=True, kw_only=True):
    no_op: bool = False
    replace_with_linear: bool | None = False
    ffn_mult: Factor | None = None
    intermediate_size: Positive | None = None


class _Block(Lenient, frozen=True, kw_only=True):
    attention: _Attention
    ffn: _MLP


_Blocks = Annotated[list[_Block], Meta(max_length=10_000, description="a list of tables, at most 10,000")]


def read_blocks(fields: Fields) -> tuple[Layer, ...]:
    """Every layer, from its block. Raises `ValueError` where blocks are missing, or have linear layers or windows."""
    num_layers = fields.integer("num_hidden_layers")
    blocks = fields.value(_Blocks, "block_configs")
    if blocks is None:
        raise fields.error("block_configs is missing")
    if len(blocks) != num_layers:
        raise fields.error(f"block_configs lists {len(blocks)} blocks for {num_layers} hidden layers")
    return tuple(_layer(fields, block) for block in blocks)


def _layer(fields: Fields, block: _Block) -> Layer:
    if block.attention.replace_with_linear or block.ffn.replace_with_linear or block.attention.window_length:
        raise fields.error("block_configs with linear layers or windows are not modelled")
    return Layer(
        attention=None if block.attention.no_op else _attention(fields, block.attention),
        intermediate_size=0 if block.ffn.no_op else _width(fields, block.ffn),
    )


def _attention(fields: Fields, attention: _Attention) -> Attention:
    heads, group = fields.integer("num_attention_heads"), attention.n_heads_in_group
    if group is None or heads <= 0 or heads % group:
        raise fields.error(f"block_configs: n_heads_in_group {group} does not divide num_attention_heads {heads}")
    head_dim = fields.optional("head_dim") or fields.hidden_size // heads
    return Attention(num_heads=heads, num_kv_heads=heads // group, head_dim=head_dim)


def _width(fields: Fields, mlp: _MLP) -> int:
    if mlp.intermediate_size is not None:
        return mlp.intermediate_size
    if mlp.ffn_mult is None:
        raise fields.error("block_configs: ffn has neither ffn_mult nor intermediate_size")
    return -(-int(2 * mlp.ffn_mult * fields.hidden_size / 3) // _WIDTH_UNIT) * _WIDTH_UNIT
