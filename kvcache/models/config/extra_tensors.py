"""From a config to the matrices that one family alone has."""

from collections.abc import Callable, Iterator, Mapping

from kvcache.models.config.fields import Fields
from kvcache.models.config.mlps import latent_width
from kvcache.shape.tensors import ExtraTensor

RESIDUAL = "residual"  # what Gemma adds around the residual stream


def read_extra_tensors(fields: Fields, num_layers: int) -> tuple[ExtraTensor, ...]:
    """Of the families in `_READERS`; splits as vLLM 0.32 models/gemma3n, models/gemma4."""
    reader = _READERS.get(fields.model_type)
    return () if reader is None else tuple(reader(fields, num_layers))


def _gemma3n(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    yield from _per_layer_inputs(fields, num_layers)
    hidden, inputs = fields.hidden_size, fields.integer("altup_num_inputs")
    # Alternating updates: `inputs` copies of the hidden state.
    for place in ("first", "last"):
        yield ExtraTensor(component=RESIDUAL, rows=hidden, cols=hidden, count=inputs - 1, place=place, split="rows")
    yield ExtraTensor(component=RESIDUAL, rows=inputs, cols=inputs)
    yield ExtraTensor(component=RESIDUAL, rows=inputs**2, cols=inputs)
    yield ExtraTensor(component=RESIDUAL, rows=inputs, cols=hidden)
    yield ExtraTensor(component=RESIDUAL, rows=hidden)  # the router's norm
    yield ExtraTensor(component=RESIDUAL, rows=hidden, element_bytes=4)  # the output's scale
    # The learned augmented residual.
    rank = fields.integer("laurel_rank")
    yield ExtraTensor(component=RESIDUAL, rows=rank, cols=hidden, split="rows", quantizable=True)
    yield ExtraTensor(component=RESIDUAL, rows=hidden, cols=rank, split="cols", quantizable=True)
    yield ExtraTensor(component=RESIDUAL, rows=hidden)


def _gemma4(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    yield from _per_layer_inputs(fields, num_layers)
    yield ExtraTensor(component=RESIDUAL, rows=1)  # each layer's scalar
    if fields.flag("enable_moe_block"):
        for width in (fields.hidden_size, fields.integer("num_experts")):
            yield ExtraTensor(component="router", rows=width)


def _per_layer_inputs(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    """A second, narrow embedding of each token for each layer; absent where its width is 0."""
    width = fields.integer("hidden_size_per_layer_input", default=0)
    if not width:
        return
    hidden, vocabulary = fields.hidden_size, fields.integer("vocab_size_per_layer_input")
    packed = num_layers * width
    yield ExtraTensor(component="embedding", rows=vocabulary, cols=packed, place="every", vocabulary=True)
    yield ExtraTensor(component=RESIDUAL, rows=packed, cols=hidden, place="every", split="rows", quantizable=True)
    yield ExtraTensor(component=RESIDUAL, rows=width, place="every")
    yield ExtraTensor(component=RESIDUAL, rows=width, cols=hidden, quantizable=True)
    yield ExtraTensor(component=RESIDUAL, rows=hidden, cols=width, quantizable=True)
    yield ExtraTensor(component=RESIDUAL, rows=hidden)


def _latent_experts(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    """To and from the narrower copy of the hidden state that experts read and write, whole on every rank."""
    latent, hidden = latent_width(fields), fields.hidden_size
    if latent:
        for rows, cols in ((latent, hidden), (hidden, latent)):
            yield ExtraTensor(component="mlp", rows=rows, cols=cols, place="moe_layer", quantizable=True)
        if fields.flag("mlp_bias"):
            yield ExtraTensor(component="mlp", rows=latent + hidden, place="moe_layer")


def _kimi(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    """Kimi-K3's narrower experts, and its residuals over blocks of layers: a score of each block's state.

    Source: vLLM 0.33, models/kimi_k3/nvidia/model.py.
    """
    latent, hidden = latent_width(fields), fields.hidden_size
    if latent:
        for rows, cols in ((latent, hidden), (hidden, latent)):
            yield ExtraTensor(component="mlp", rows=rows, cols=cols, place="moe_layer")
        if fields.flag("latent_moe_use_norm"):
            yield ExtraTensor(component="mlp", rows=latent, place="moe_layer")
    if fields.optional("attn_res_block_size"):
        for place, count in (("layer", 2), ("last", 1)):
            yield ExtraTensor(component=RESIDUAL, rows=hidden, count=count, place=place)
            yield ExtraTensor(component=RESIDUAL, rows=1, cols=hidden, count=count, place=place)


def _hyper_connections(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    """DeepSeek-V4's residuals in several streams, which each half of a layer mixes; in fp32, whole on every rank.

    Beside them, the experts that its first layers give each word. Source: vLLM 0.33, models/deepseek_v4/nvidia.
    """
    streams = fields.integer("hc_mult")
    mixed, width = (2 + streams) * streams, streams * fields.hidden_size
    for rows, cols in ((mixed, width), (mixed, 1), (3, 1)):
        yield ExtraTensor(component=RESIDUAL, rows=rows, cols=cols, count=2, element_bytes=4)
    for rows, cols in ((streams, width), (streams, 1), (1, 1)):
        yield ExtraTensor(component=RESIDUAL, rows=rows, cols=cols, place="every", element_bytes=4)
    by_word = min(fields.integer("num_hash_layers"), num_layers)
    words, chosen = fields.integer("vocab_size"), fields.integer("num_experts_per_tok")
    yield ExtraTensor(component="router", rows=words, cols=chosen, count=by_word, place="first", element_bytes=4)


def _experts_of_images(fields: Fields, num_layers: int) -> Iterator[ExtraTensor]:
    """ERNIE 4.5 VL's: in memory, since tokens of text never go there. Source: vLLM 0.33, models/ernie45_vl_moe.py."""
    experts = fields.integer("vision_moe_num_experts", "moe_num_experts")
    matrices = 3 * fields.integer("vision_moe_intermediate_size") * fields.hidden_size
    yield ExtraTensor(component="vision", rows=experts * matrices, place="moe_layer", split="rows")
    yield ExtraTensor(component="vision", rows=experts * (fields.hidden_size + 1), place="moe_layer", element_bytes=4)


_READERS: Mapping[str, Callable[[Fields, int], Iterator[ExtraTensor]]] = {
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    "nemotron_h": _latent_experts,
    "ernie4_5_moe_vl": _experts_of_images,
    "ernie4_5_vl_moe_text": _experts_of_images,
    "kimi_linear": _kimi,
    "deepseek_v4": _hyper_connections,
}
