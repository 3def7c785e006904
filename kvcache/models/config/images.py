"""How a model's processor turns images into tokens, by the model's outer `model_type`."""

from collections.abc import Callable, Mapping
from typing import Final

from files.errors import HeadcountError
from kvcache.models.config.encoder import Encoder
from kvcache.models.config.vision import encoder_of
from kvcache.shape.images import (
    BestCanvas,
    ClosestRatio,
    FixedSize,
    ImageRule,
    PaddedPatches,
    RowsWithBreaks,
    SmartResize,
)

# A `config.json` has no limits of pixels; these are of the published `preprocessor_config.json` of
# Qwen/Qwen2.5-VL-7B-Instruct (min_pixels 3,136, max_pixels 12,845,056: 4 to 16,384 tokens),
# Qwen/Qwen3-VL-8B-Instruct (shortest_edge 65,536, longest_edge 16,777,216), and transformers' default of GLM-4V
# (112 × 112; 14 · 14 · 2 · 2 · 2 · 6,144 over two frames: at most 2,184 × 2,184, github.com/zai-org/GLM-V issue 151).
_QWEN2_5_PIXELS: Final = (56 * 56, 16_384 * 28 * 28)
_QWEN3_PIXELS: Final = (65_536, 16_777_216)
_GLM_PIXELS: Final = (112 * 112 // 2, 14 * 14 * 2 * 2 * 6_144)
_GEMMA3_TOKENS: Final = 256  # mm_tokens_per_image; a newline and a mark on either side: Gemma3Processor's sequence
_INTERNVL_TILES: Final = 12  # max_dynamic_patch of OpenGVLab/InternVL3_5-8B
_LLAMA4_TILES: Final = 16  # max_patches of transformers' Llama4ImageProcessor
_KIMI_PATCHES: Final = 4096  # in_token_limit of moonshotai/Kimi-VL-A3B-Instruct's processor
_KIMI_MARKS: Final = (3, 1)  # <|media_start|>image<|media_content|> … <|media_end|>


# Embeddings of one item whose tokens attend to each other both ways, so that vLLM computes it in one step; at most 32
# frames of a video, 70 embeddings and 8 marks each (vLLM 0.33 models/gemma4_mm.py, get_mm_max_tokens_per_item).
_UNDIVIDED: Final = {
    "gemma3": (("image", _GEMMA3_TOKENS),),
    "gemma4": (("image", 280), ("video", 32 * (70 + 8))),
}


def undivided_items(config: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """By modality, the largest item that a step computes as a whole; of Gemma 4 where its config asks for it."""
    model_type, text = str(config.get("model_type")), config.get("text_config")
    if model_type == "gemma4":
        both_ways = text.get("use_bidirectional_attention") if isinstance(text, Mapping) else None
        return _UNDIVIDED[model_type] if both_ways == "vision" else ()
    return _UNDIVIDED.get(model_type, ())


def image_rule(config: Mapping[str, object]) -> ImageRule | None:
    """The rule of the model's own processor; None where the model sees nothing, or its rule is not known.

    Raises HeadcountError on a width that is no width.
    """
    rule, encoder = _RULES.get(str(config.get("model_type"))), encoder_of(config)
    return None if rule is None or encoder is None else rule(encoder)


def require_image_rule(rule: ImageRule | None, *, model: str, sees: bool) -> ImageRule:
    """The rule, or HeadcountError: a model that does not see, or one whose rule is not known."""
    if rule is not None:
        return rule
    if not sees:
        raise HeadcountError(f"{model} sees no images; leave the images out, or choose a model such as qwen3-vl-8b")
    known = ", ".join(sorted(_RULES))
    raise HeadcountError(
        f"how many tokens an image becomes in {model} is not known; known are models of the types {known}: choose one "
        "of them, or give the image's tokens as part of the prompt's"
    )


def _smart_resize(
    pixels: tuple[int, int], *, video_frames: int = 0, enlarges_narrow: bool = False
) -> Callable[[Encoder], ImageRule]:
    def rule(encoder: Encoder) -> ImageRule:
        return SmartResize(
            patch=encoder.patch,
            merge=encoder.size("spatial_merge_size"),
            min_pixels=pixels[0],
            max_pixels=pixels[1],
            video_frames=video_frames,
            enlarges_narrow=enlarges_narrow,
        )

    return rule


def _gemma3(encoder: Encoder) -> ImageRule:
    return FixedSize(embeddings=_GEMMA3_TOKENS, patches=encoder.patches, marks=(2, 2))


def _llava(encoder: Encoder) -> ImageRule:
    """Without the class token, which `vision_feature_select_strategy` "default" drops."""
    return FixedSize(embeddings=encoder.patches, patches=encoder.patches)


def _internvl(encoder: Encoder) -> ImageRule:
    side = encoder.size("image_size")
    config = encoder.config
    most = config.get("max_dynamic_patch", _INTERNVL_TILES) if config.get("dynamic_image_size", True) else 1
    return ClosestRatio(
        tile=side,
        tile_patches=encoder.patches,
        tile_tokens=encoder.patches // 4,
        max_tiles=most if isinstance(most, int) and most > 0 else _INTERNVL_TILES,
        thumbnail=bool(config.get("use_thumbnail", True)),
    )


def _llama4(encoder: Encoder) -> ImageRule:
    side, patches = encoder.size("image_size"), encoder.patches
    return BestCanvas(tile=side, tile_patches=patches, tile_tokens=patches // 4, max_tiles=_LLAMA4_TILES)


def _mistral3(encoder: Encoder) -> ImageRule:
    merge = encoder.config.get("spatial_merge_size", 2)
    edge = encoder.size("image_size", default=1540)
    return RowsWithBreaks(patch=encoder.patch, merge=merge if isinstance(merge, int) else 2, longest_edge=edge)


def _kimi_vl(encoder: Encoder) -> ImageRule:
    return PaddedPatches(patch=encoder.patch, merge=2, max_patches=_KIMI_PATCHES, marks=_KIMI_MARKS)


_RULES: Final[Mapping[str, Callable[[Encoder], ImageRule]]] = {
    "gemma3": _gemma3,
    "glm4v": _smart_resize(_GLM_PIXELS, enlarges_narrow=True),
    "glm4v_moe": _smart_resize(_GLM_PIXELS, enlarges_narrow=True),
    "internvl_chat": _internvl,
    "kimi_vl": _kimi_vl,
    "llama4": _llama4,
    "llava": _llava,
    "mistral3": _mistral3,
    "qwen2_5_vl": _smart_resize(_QWEN2_5_PIXELS, video_frames=14),  # vLLM 0.33 qwen2_vl.py, _MAX_FRAMES_PER_VIDEO
    "qwen3_5": _smart_resize(_QWEN3_PIXELS),
    "qwen3_5_moe": _smart_resize(_QWEN3_PIXELS),
    "qwen3_vl": _smart_resize(_QWEN3_PIXELS),
    "qwen3_vl_moe": _smart_resize(_QWEN3_PIXELS),
}
