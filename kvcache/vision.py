"""How many parameters a multimodal model's image encoder has."""

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]


def vision_parameters(config: Config) -> int:
    """Parameters of the encoder with its projector, as vLLM loads them; 0 without a `vision_config`.

    An encoder of an unknown kind is counted like SigLIP (see `knows_encoder`). Raises `ValueError` on a width that is
    no whole number.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return 0
    if not knows_encoder(config):
        sized = {"hidden_size", "num_hidden_layers", "intermediate_size"} <= vision.keys()
        return _siglip(_Encoder(config, vision)) if sized else 0
    count, defaults = _ENCODERS[str(config.get("model_type"))]
    return count(_Encoder(config, {**defaults, **vision}))


def knows_encoder(config: Config) -> bool:
    """Whether the encoder of this outer `model_type` is counted exactly."""
    return str(config.get("model_type")) in _ENCODERS


class _Encoder:
    """Widths of one encoder, looked up under each of their spellings."""

    def __init__(self, config: Config, vision: Config) -> None:
        self.config, self.vision = config, vision
        text = config.get("text_config")
        self.text: Config = text if isinstance(text, Mapping) else {}
        self.width = self.size("hidden_size", "vt_hidden_size")
        self.inner = self.size("intermediate_size", "vt_intermediate_size")
        self.depth = self.size("num_hidden_layers", "vt_num_hidden_layers", "depth")
        self.patch = self.size("patch_size", default=14)

    def size(self, *keys: str, default: int | None = None) -> int:
        """A width or count of the encoder."""
        value = next((self.vision[key] for key in keys if self.vision.get(key) is not None), default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"vision_config: {keys[0]} is {value!r}, must be a whole number; correct its config.json")
        return value

    @property
    def text_width(self) -> int:
        """The text model's hidden size, which the projector ends in."""
        return int(self.text.get("hidden_size", self.config.get("hidden_size", 0)))

    @property
    def patches(self) -> int:
        """Pieces of one image of the configured size."""
        return (self.size("image_size", default=224) // self.patch) ** 2

    @property
    def patch_pixels(self) -> int:
        """Values in one piece: three colours."""
        return self.size("num_channels", default=3) * self.patch**2

    @property
    def layers(self) -> int:
        """Transformer layers with biases, a plain MLP, two LayerNorms."""
        attention = 4 * (self.width * self.width + self.width)
        mlp = 2 * self.width * self.inner + self.inner + self.width
        return self.depth * (attention + mlp + 4 * self.width)

    def merged_patches(self, kernel: Any) -> int:
        """Width of neighbouring pieces side by side."""
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        return self.width * int(height) * int(width)


def _siglip(encoder: _Encoder) -> int:
    # vLLM leaves SigLIP's pooling head out (models/siglip.py, use_head), whatever `vision_use_head` says.
    width = encoder.width
    embedding = encoder.patch_pixels * width + width + encoder.patches * width
    projector = width * encoder.text_width + width  # Gemma 3: one matrix, one RMSNorm
    return embedding + encoder.layers + 2 * width + projector


def _llama4(encoder: _Encoder) -> int:
    width = encoder.width
    embedding = encoder.patch_pixels * width + width + (encoder.patches + 1) * width
    joined = encoder.size("projector_output_dim")
    adapter = encoder.inner * encoder.size("projector_input_dim") + joined * joined
    projector = encoder.size("vision_output_dim") * encoder.text_width
    return embedding + encoder.layers + 4 * width + adapter + projector


def _pixtral(encoder: _Encoder) -> int:
    width, hidden = encoder.width, encoder.text_width
    layers = encoder.depth * (4 * width * width + 3 * width * encoder.inner + 2 * width)
    merger = encoder.merged_patches(encoder.config.get("spatial_merge_size", 2)) * width
    biases = 2 * hidden if encoder.config.get("multimodal_projector_bias") else 0
    projector = width + merger + width * hidden + hidden * hidden + biases
    return encoder.patch_pixels * width + width + layers + projector


def _moonvit(encoder: _Encoder) -> int:
    width = encoder.width
    height, breadth = (encoder.size(f"init_pos_emb_{side}", f"pos_emb_{side}") for side in ("height", "width"))
    embedding = encoder.patch_pixels * width + width + height * breadth * width
    merged = encoder.merged_patches(encoder.vision.get("merge_kernel_size") or (2, 2))
    projector = 2 * width + merged * merged + merged + merged * encoder.text_width + encoder.text_width
    return embedding + encoder.layers + 2 * width + projector


def _clip(encoder: _Encoder) -> int:
    # vLLM leaves out the layers behind `vision_feature_layer`, 25 MB of LLaVA-1.5's; the checkpoint holds them.
    width, hidden = encoder.width, encoder.text_width
    embedding = encoder.patch_pixels * width + (encoder.patches + 2) * width
    projector = (width + hidden) * hidden
    biases = 2 * hidden if encoder.config.get("multimodal_projector_bias", True) else 0
    return embedding + encoder.layers + 4 * width + projector + biases


def _merger(encoder: _Encoder) -> int:
    """Neighbouring pieces side by side, through two layers, to the text model's width."""
    merged = encoder.merged_patches(encoder.size("spatial_merge_size"))
    return merged * merged + merged + merged * encoder.size("out_hidden_size") + encoder.size("out_hidden_size")


def _frame_pixels(encoder: _Encoder) -> int:
    """Values in one piece of as many frames as are read at once."""
    return encoder.size("in_channels", "in_chans", default=3) * encoder.patch**2 * encoder.size("temporal_patch_size")


def _qwen2_5_vl(encoder: _Encoder) -> int:
    width, inner = encoder.width, encoder.inner
    attention = 4 * (width * width + width)
    mlp = 3 * width * inner + 2 * inner + width
    norms = 2 * width * encoder.depth + width
    return _frame_pixels(encoder) * width + encoder.depth * (attention + mlp) + norms + _merger(encoder)


def _qwen3_vl(encoder: _Encoder) -> int:
    width = encoder.width
    merged = encoder.merged_patches(encoder.size("spatial_merge_size"))
    embedding = (_frame_pixels(encoder) + 1) * width + encoder.size("num_position_embeddings") * width
    deepstack = len(encoder.vision["deepstack_visual_indexes"]) * (_merger(encoder) + 2 * merged)
    return embedding + encoder.layers + _merger(encoder) + 2 * width + deepstack


# What a saved `vision_config` leaves out, since it equals the class: transformers 5.19 SiglipVisionConfig,
# Llama4VisionConfig, PixtralVisionConfig, Kimi_K25VisionConfig, CLIPVisionConfig, Qwen2_5_VLVisionConfig,
# Qwen3VLVisionConfig; vLLM 0.32 MoonViTConfig. Shapes: their models there.
_SIGLIP = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "patch_size": 16, "image_size": 224}
_LLAMA4 = {
    "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "patch_size": 14, "image_size": 448,
    "vision_output_dim": 7680, "projector_input_dim": 4096, "projector_output_dim": 4096,
}  # fmt: skip
_PIXTRAL = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 16}
_MOONVIT = {
    "vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27, "patch_size": 14,
    "pos_emb_height": 64, "pos_emb_width": 64,
}  # fmt: skip
_CLIP = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "patch_size": 32, "image_size": 224}
_QWEN2_5_VL = {
    "hidden_size": 3584, "intermediate_size": 3420, "depth": 32, "patch_size": 14, "temporal_patch_size": 2,
    "spatial_merge_size": 2, "out_hidden_size": 3584,
}  # fmt: skip
_QWEN3_VL = {
    "hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "patch_size": 16, "temporal_patch_size": 2,
    "spatial_merge_size": 2, "out_hidden_size": 3584, "num_position_embeddings": 2304,
    "deepstack_visual_indexes": (8, 16, 24),
}  # fmt: skip
_ENCODERS: Mapping[str, tuple[Callable[[_Encoder], int], Config]] = {
    "gemma3": (_siglip, _SIGLIP),
    "llama4": (_llama4, _LLAMA4),
    "mistral3": (_pixtral, _PIXTRAL),
    "kimi_vl": (_moonvit, _MOONVIT),
    "kimi_k25": (_moonvit, _MOONVIT),
    "llava": (_clip, _CLIP),
    "qwen2_5_vl": (_qwen2_5_vl, _QWEN2_5_VL),
    "qwen3_vl": (_qwen3_vl, _QWEN3_VL),
    "qwen3_vl_moe": (_qwen3_vl, _QWEN3_VL),
}
