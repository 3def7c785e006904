"""From a config to layers of DeepSeek-V4, which compress what lies before a window.

Source: vLLM 0.33, models/deepseek_v4; transformers DeepseekV4Config, which reads the same from newer configs.
"""

from collections.abc import Iterator, Mapping, Sequence

from kvcache.models.config.fields import Fields, Names, Numbers
from kvcache.shape.layer import CHOSEN_RATIO, SUMMED_RATIO, Attention, CompressedAttention, Indexer

_NAMES: Mapping[object, int | None] = {
    "sliding_attention": None,
    "compressed_sparse_attention": CHOSEN_RATIO,
    "heavily_compressed_attention": SUMMED_RATIO,
}
_RATIOS: Mapping[object, int | None] = {0: None, CHOSEN_RATIO: CHOSEN_RATIO, SUMMED_RATIO: SUMMED_RATIO}


def read_compressed(fields: Fields) -> list[Attention]:
    """Every layer's attention. Raises `ValueError` on a list that is too short, or on another ratio."""
    return list(_attentions(fields, _ratios(fields)))


def _attentions(fields: Fields, ratios: Sequence[int | None]) -> Iterator[Attention]:
    heads, width = fields.integer("num_attention_heads"), fields.integer("head_dim")
    if fields.integer("num_key_value_heads", default=1) != 1:
        raise fields.error("num_key_value_heads is not 1, as it is where one vector is key and value of all heads")
    indexer = Indexer(num_heads=fields.integer("index_n_heads"), head_dim=fields.integer("index_head_dim"))
    entries = fields.integer("index_topk")
    for ratio in ratios:
        compressed = CompressedAttention(
            ratio=ratio,
            q_lora_rank=fields.integer("q_lora_rank"),
            o_lora_rank=fields.integer("o_lora_rank"),
            o_groups=fields.integer("o_groups"),
        )
        yield Attention(
            num_heads=heads,
            num_kv_heads=1,
            head_dim=width,
            window=fields.integer("sliding_window"),
            compressed=compressed,
            topk=entries * CHOSEN_RATIO if compressed.is_chosen_from else None,
            indexer=indexer if compressed.is_chosen_from else None,
        )


def _ratios(fields: Fields) -> list[int | None]:
    """Tokens in an entry, layer by layer; lists go on with the modules that draft."""
    num_layers = fields.integer("num_hidden_layers")
    listed: Sequence[object] | None = fields.value(Numbers, "compress_ratios")
    known = _RATIOS
    if listed is None:
        listed, known = fields.value(Names, "layer_types"), _NAMES
    if listed is None:
        raise fields.error("neither compress_ratios nor layer_types says how each layer compresses its context")
    if len(listed) < num_layers:
        raise fields.error(f"compress_ratios or layer_types lists {len(listed)} layers for {num_layers} hidden layers")
    if strange := [each for each in listed if each not in known]:
        raise fields.error(f"{str(strange[0])[:40]!r} in compress_ratios or layer_types is none of {[*known]}")
    return [known[each] for each in listed[:num_layers]]
