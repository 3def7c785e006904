"""What the image encoders compute whose tokens are known, by the model's outer `model_type`; as in `vision`."""

from collections.abc import Callable, Mapping
from typing import Final

from kvcache.models.config.encoder import Config, Encoder
from kvcache.models.config.vision import encoder_of
from kvcache.shape.image_encoder import EncoderMultiply, ImageEncoder

_HEADS: Final = 16  # of Qwen's, Pixtral's and SigLIP's configs, where a checkpoint leaves them out


def image_encoder(config: Config) -> ImageEncoder | None:
    """Of a model whose encoder is known; None of others. Raises HeadcountError on a width that is no width."""
    made, encoder = _BESIDE_LAYERS.get(str(config.get("model_type"))), encoder_of(config)
    if made is None or encoder is None:
        return None
    kind = str(config["model_type"])
    return ImageEncoder(
        multiplies=(*_layers(encoder, kind), *made(encoder)),
        depth=encoder.depth,
        width=encoder.width,
        num_heads=encoder.size("num_heads", "num_attention_heads", default=_HEADS),
        **_windows(encoder),
    )


def _layers(encoder: Encoder, kind: str) -> tuple[EncoderMultiply, ...]:
    """Attention and the MLP of all layers, gated in some families."""
    width, depth = encoder.width, encoder.depth
    inner = encoder.size("out_hidden_size") if kind in ("glm4v", "glm4v_moe") else encoder.inner
    gated = kind in ("qwen2_5_vl", "mistral3", "glm4v", "glm4v_moe")
    return (
        EncoderMultiply(rows=3 * width, cols=width, count=depth),
        EncoderMultiply(rows=width, cols=width, count=depth),
        EncoderMultiply(rows=(2 if gated else 1) * inner, cols=width, count=depth),
        EncoderMultiply(rows=width, cols=inner, count=depth),
    )


def _windows(encoder: Encoder) -> dict[str, int]:
    """Qwen2.5-VL's layers attend to windows, but for some that are listed."""
    window, whole = encoder.vision.get("window_size"), encoder.vision.get("fullatt_block_indexes")
    if not isinstance(window, int) or not isinstance(whole, list):
        return {}
    return {"windowed_layers": encoder.depth - len(whole), "window": (window // encoder.patch) ** 2}


def _beside(rows: int, cols: int, *, patches: int = 1, count: int = 1) -> EncoderMultiply:
    return EncoderMultiply(rows=rows, cols=cols, patches=patches, count=count, in_layers=False)


def _qwen(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    """Pieces of two frames; neighbours through two matrices, of Qwen3-VL at some layers' outputs as well."""
    merge = encoder.size("spatial_merge_size") ** 2
    joined, out = merge * encoder.width, encoder.size("out_hidden_size")
    deep = encoder.vision.get("deepstack_visual_indexes")
    mergers = 1 + (len(deep) if isinstance(deep, list) else 0)
    return (
        _beside(encoder.width, encoder.patch_pixels * encoder.size("temporal_patch_size")),
        _beside(joined, joined, patches=merge, count=mergers),
        _beside(out, joined, patches=merge, count=mergers),
    )


def _glm(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    merge, out, inner = encoder.size("spatial_merge_size") ** 2, encoder.size("out_hidden_size"), encoder.inner
    return (
        _beside(encoder.width, encoder.patch_pixels * encoder.size("temporal_patch_size")),
        _beside(out, merge * encoder.width, patches=merge),
        _beside(out, out, patches=merge),
        _beside(2 * inner, out, patches=merge),
        _beside(out, inner, patches=merge),
    )


def _gemma3(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    """The mean of 4 × 4 pieces through one matrix."""
    return _pieces(encoder), _beside(encoder.text_width, encoder.width, patches=16)


def _llava(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    text = encoder.text_width
    return _pieces(encoder), _beside(text, encoder.width), _beside(text, text)


def _internvl(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    text = encoder.text_width
    return _pieces(encoder), _beside(text, 4 * encoder.width, patches=4), _beside(text, text, patches=4)


def _llama4(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    joined = encoder.size("projector_output_dim")
    return (
        _pieces(encoder),
        _beside(encoder.size("projector_input_dim"), encoder.inner, patches=4),
        _beside(joined, joined, patches=4),
        _beside(encoder.text_width, encoder.size("vision_output_dim"), patches=4),
    )


def _mistral3(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    width, text = encoder.width, encoder.text_width
    return (
        _pieces(encoder),
        _beside(width, 4 * width, patches=4),
        _beside(text, width, patches=4),
        _beside(text, text, patches=4),
    )


def _kimi_vl(encoder: Encoder) -> tuple[EncoderMultiply, ...]:
    joined = 4 * encoder.width
    return (
        _pieces(encoder),
        _beside(joined, joined, patches=4),
        _beside(encoder.text_width, joined, patches=4),
    )


def _pieces(encoder: Encoder) -> EncoderMultiply:
    return _beside(encoder.width, encoder.patch_pixels)


_BESIDE_LAYERS: Final[Mapping[str, Callable[[Encoder], tuple[EncoderMultiply, ...]]]] = {
    "gemma3": _gemma3,
    "glm4v": _glm,
    "glm4v_moe": _glm,
    "internvl_chat": _internvl,
    "kimi_vl": _kimi_vl,
    "llama4": _llama4,
    "llava": _llava,
    "mistral3": _mistral3,
    "qwen2_5_vl": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
}
