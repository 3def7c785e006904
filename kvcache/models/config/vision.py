"""How many parameters a multimodal model's image encoder has."""

from collections.abc import Callable, Mapping

from files.documents import Json
from files.schema import Lenient, typed
from kvcache.models.config.encoder import Config, Encoder
from kvcache.models.config.families import entries
from kvcache.models.config.fields import Positive, Size, Table
from kvcache.models.config.joining_encoders import (
    hunyuan_vl,
    minicpmv4_6,
    phi4mm,
    phi4mm_whole,
    radio,
    radio_whole,
)

_LARGEST_IMAGE_TOKENS = 16_384
_LAYERS_UNNAMED, _WIDTH_UNNAMED = 24, 1024  # what SGLang takes where a config names them otherwise


def vision_parameters(config: Config) -> int:
    """Parameters of the encoder with its projector, as vLLM loads them; 0 without a `vision_config`.

    An encoder of an unknown kind is counted like SigLIP (see `knows_encoder`). Raises `ValueError` on a width that is
    no whole number.
    """
    vision = _widths(config)
    if vision is None:
        return 0
    if not knows_encoder(config):
        widths = ("hidden_size", "num_hidden_layers", "intermediate_size")
        given = [typed(vision[key], Size | None, "vision_config", key) for key in widths if key in vision]  # type: ignore[arg-type]
        return _siglip(Encoder(config, vision)) if len(given) == len(widths) else 0
    return _ENCODERS[str(config["model_type"])](_encoder(config, vision))


def _widths(config: Config) -> Config | None:
    """What a config says of its encoder."""
    given_as = "embd_layer" if config.get("model_type") == "phi4mm" else "vision_config"
    return typed(config.get(given_as), Table | None, "config.json", given_as)  # type: ignore[arg-type]


def vision_size(config: Config) -> tuple[int, int] | None:
    """Layers and width of an encoder as SGLang counts them, by two names alone; None without a `vision_config`.

    Source: SGLang 0.5.23 arg_groups/memory_hook.py (adjust_mem_fraction_for_vlm), configs/kimi_k25.py.
    """
    vision = typed(config.get("vision_config"), Table | None, "config.json", "vision_config")  # type: ignore[arg-type]
    if vision is None:
        return None
    if config.get("model_type") == "gemma4_unified":  # pieces go into the text model as they are
        return 0, 0
    named = (("num_hidden_layers", _LAYERS_UNNAMED), ("hidden_size", _WIDTH_UNNAMED))
    layers, width = (
        typed(vision.get(name, vision.get(f"vt_{name}", usual)), Size, "vision_config", name) for name, usual in named
    )
    return layers, width


def encoder_of(config: Config) -> Encoder | None:
    """The widths of the encoder, where it is of a known kind; None without one."""
    widths = _widths(config)
    return _encoder(config, widths) if widths is not None and knows_encoder(config) else None


def _encoder(config: Config, widths: Config) -> Encoder:
    """One of a known kind, whose config need not say what all of its kind have."""
    return Encoder(config, {**entries("encoders.toml")[str(config["model_type"])], **widths})


def whole_parameters(config: Config) -> int:
    """Of them, what every rank holds whole though it splits the rest."""
    whole, widths = _WHOLE.get(str(config.get("model_type"))), _widths(config)
    return 0 if whole is None or widths is None else whole(_encoder(config, widths))


def encoder_pass(config: Config) -> Json:
    """The fields of `Architecture` for the encoder's pass over the largest image, of Qwen3-VL's encoder; else none.

    vLLM's profiling run encodes an image of 16,384 tokens (models/qwen3_vl.py, longest_edge of the processor), four
    pieces each. At its widest a layer holds its input, the residual, and the MLP before and after its activation;
    pixels and the encoder's output stay beside the text model's pass.
    """
    widths = _widths(config)
    if widths is None or _ENCODERS.get(str(config.get("model_type"))) is not _qwen3_vl:
        return {}
    encoder = _encoder(config, widths)
    pieces = _LARGEST_IMAGE_TOKENS * encoder.size("spatial_merge_size") ** 2
    outputs = _LARGEST_IMAGE_TOKENS * encoder.size("out_hidden_size")
    whole = pieces * (_frame_pixels(encoder) + 2 * encoder.width) + outputs
    return {"encoder_pass_bytes": 2 * whole, "encoder_pass_split_bytes": 2 * pieces * 2 * encoder.inner}


def modalities(config: Config) -> tuple[str, ...]:
    """What the encoder reads, by the names of vLLM's limits per prompt; of an unknown one images with videos."""
    if not vision_parameters(config):
        return ()
    known = entries("encoders.toml").get(str(config.get("model_type")), {})
    heard = ("audio",) if isinstance(config.get("audio_config", config.get("sound_config")), Mapping) else ()
    return (*known.get("modalities", ("image", "video")), *heard)


def knows_encoder(config: Config) -> bool:
    """Whether the encoder of this outer `model_type` is counted exactly."""
    return str(config.get("model_type")) in _ENCODERS


def _siglip(encoder: Encoder) -> int:
    # vLLM leaves SigLIP's pooling head out (models/siglip.py, use_head), whatever `vision_use_head` says.
    width = encoder.width
    embedding = encoder.patch_pixels * width + width + encoder.patches * width
    projector = width * encoder.text_width + width  # Gemma 3: one matrix, one RMSNorm
    return embedding + encoder.layers + 2 * width + projector


def _llama4(encoder: Encoder) -> int:
    width = encoder.width
    embedding = encoder.patch_pixels * width + width + (encoder.patches + 1) * width
    joined = encoder.size("projector_output_dim")
    adapter = encoder.inner * encoder.size("projector_input_dim") + joined * joined
    projector = encoder.size("vision_output_dim") * encoder.text_width
    return embedding + encoder.layers + 4 * width + adapter + projector


def _pixtral(encoder: Encoder) -> int:
    width, hidden = encoder.width, encoder.text_width
    layers = encoder.depth * (4 * width * width + 3 * width * encoder.inner + 2 * width)
    merger = encoder.merged_patches(encoder.config.get("spatial_merge_size", 2)) * width
    biases = 2 * hidden if encoder.config.get("multimodal_projector_bias") else 0
    projector = width + merger + width * hidden + hidden * hidden + biases
    return encoder.patch_pixels * width + width + layers + projector


def _moonvit(encoder: Encoder) -> int:
    width = encoder.width
    height, breadth = (encoder.size(f"init_pos_emb_{side}", f"pos_emb_{side}") for side in ("height", "width"))
    embedding = encoder.patch_pixels * width + width + height * breadth * width
    merged = encoder.merged_patches(encoder.vision.get("merge_kernel_size") or (2, 2))
    projector = 2 * width + merged * merged + merged + merged * encoder.text_width + encoder.text_width
    return embedding + encoder.layers + 2 * width + projector


def _kimi_k3(encoder: Encoder) -> int:
    """Without biases; heads wider than the hidden state (vLLM 0.33 kimi_k25_vit.py, KimiK25MultiModalProjector)."""
    width, heads = encoder.width, encoder.size("qkv_hidden_size", "vt_hidden_size")
    height, breadth = (encoder.size(f"init_pos_emb_{side}") for side in ("height", "width"))
    layer = 4 * width * heads + 2 * width * encoder.inner + 2 * width
    merged = encoder.merged_patches(encoder.vision.get("merge_kernel_size") or (2, 2))
    projector = merged * merged + merged * encoder.text_width + encoder.text_width
    return encoder.patch_pixels * width + height * breadth * width + encoder.depth * layer + width + projector


def _clip(encoder: Encoder) -> int:
    # vLLM leaves out the layers behind `vision_feature_layer`, 25 MB of LLaVA-1.5's; the checkpoint holds them.
    width, hidden = encoder.width, encoder.text_width
    embedding = encoder.patch_pixels * width + (encoder.patches + 2) * width
    projector = (width + hidden) * hidden
    biases = 2 * hidden if encoder.config.get("multimodal_projector_bias", True) else 0
    return embedding + encoder.layers + 4 * width + projector + biases


def _llava_next(encoder: Encoder) -> int:
    """CLIP, or SigLIP (Granite Vision); the outputs of several layers side by side go into the projector."""
    width, hidden, config = encoder.width, encoder.text_width, encoder.config
    listed = config.get("vision_feature_layer")
    read = len(listed) if isinstance(listed, list | tuple) else 1
    is_clip = encoder.vision.get("model_type") == "clip_vision_model"
    embedding = encoder.patch_pixels * width + (encoder.patches + (2 if is_clip else 1)) * width
    norms = (4 if is_clip else 2) * width
    biases = 2 * hidden if config.get("multimodal_projector_bias", True) else 0
    projector = (read * width + hidden) * hidden + biases + hidden  # the last: the vector of a line's end
    return embedding + encoder.layers + norms + projector


def _merger(encoder: Encoder) -> int:
    """Neighbouring pieces side by side, through two layers, to the text model's width."""
    merged = encoder.merged_patches(encoder.size("spatial_merge_size"))
    return merged * merged + merged + merged * encoder.size("out_hidden_size") + encoder.size("out_hidden_size")


def _frame_pixels(encoder: Encoder) -> int:
    """Values in one piece of as many frames as are read at once."""
    return encoder.size("in_channels", "in_chans", default=3) * encoder.patch**2 * encoder.size("temporal_patch_size")


def _qwen2_5_vl(encoder: Encoder) -> int:
    width, inner = encoder.width, encoder.inner
    attention = 4 * (width * width + width)
    mlp = 3 * width * inner + 2 * inner + width
    norms = 2 * width * encoder.depth + width
    return _frame_pixels(encoder) * width + encoder.depth * (attention + mlp) + norms + _merger(encoder)


def _qwen3_vl(encoder: Encoder) -> int:
    width = encoder.width
    merged = encoder.merged_patches(encoder.size("spatial_merge_size"))
    embedding = (_frame_pixels(encoder) + 1) * width + encoder.size("num_position_embeddings") * width
    indexes = typed(encoder.vision["deepstack_visual_indexes"], list[int], "vision_config", "deepstack_visual_indexes")
    deepstack = len(indexes) * (_merger(encoder) + 2 * merged)
    return embedding + encoder.layers + _merger(encoder) + 2 * width + deepstack


def _glm4v(encoder: Encoder) -> int:
    """No biases in its layers; neighbouring pieces are joined by a convolution, then a gated MLP follows."""
    width, out = encoder.width, encoder.size("out_hidden_size")
    layer = 4 * width * width + 3 * width * out + 2 * width
    embedding = (_frame_pixels(encoder) + 1) * width + encoder.patches * width
    joined = encoder.merged_patches(encoder.size("spatial_merge_size")) * out + out
    merger = out * out + 2 * out + 3 * out * encoder.inner
    return embedding + encoder.depth * layer + 2 * width + joined + merger


def _glm_ocr(encoder: Encoder) -> int:
    """As GLM-4V's, with biases and norms of queries and keys; the merger is three times as wide as what it gives."""
    width, inner, out = encoder.width, encoder.inner, encoder.size("out_hidden_size")
    attention = 4 * (width * width + width) + 2 * width // encoder.size("num_heads")
    layer = attention + 3 * width * inner + 2 * inner + width + 2 * width
    joined = encoder.merged_patches(encoder.size("spatial_merge_size")) * out + out
    merger = out * out + 2 * out + 3 * out * 3 * out
    return (_frame_pixels(encoder) + 1) * width + encoder.depth * layer + width + joined + merger


def _paddleocr_vl(encoder: Encoder) -> int:
    width, merged = encoder.width, encoder.merged_patches(encoder.size("spatial_merge_size"))
    embedding = encoder.patch_pixels * width + width + encoder.patches * width
    projector = 2 * width + merged * merged + merged + merged * encoder.text_width + encoder.text_width
    return embedding + encoder.layers + 2 * width + projector


def _muse_glimmer(encoder: Encoder) -> int:
    width, config = encoder.width, encoder.config
    positions = encoder.size("pos_emb_height") * encoder.size("pos_emb_width")
    embedding = (encoder.patch_pixels * encoder.size("patch_temporal") + positions) * width + 4 * width
    hidden = typed(config.get("projector_hidden_size", 4096), Size, "config.json", "projector_hidden_size")
    joined = encoder.merged_patches(encoder.size("merge_size"))
    return embedding + encoder.layers + (joined + hidden + encoder.text_width) * hidden


def _ernie_vl(encoder: Encoder) -> int:
    """Neighbouring pieces, then neighbouring frames, each through two layers and a norm."""
    width, text = encoder.width, encoder.text_width
    joined = encoder.merged_patches(encoder.size("spatial_merge_size"))
    frames = encoder.size("temporal_merge_size") * joined
    resampler = 3 * joined * joined + frames * joined + 8 * joined + joined * text + 2 * text
    return encoder.patch_pixels * width + encoder.layers + 2 * width + resampler


def _internvl(encoder: Encoder) -> int:
    """InternViT: scales behind attention and MLP; four pieces through a norm and two layers."""
    width, text, vision = encoder.width, encoder.text_width, encoder.vision
    biases = 3 * width if vision.get("qkv_bias", vision.get("attention_bias")) else 0
    norms = 2 * width if vision.get("norm_type") == "rms_norm" else 4 * width
    normed = 2 * width if vision.get("qk_normalization", vision.get("use_qk_norm")) else 0
    mlp = 2 * width * encoder.inner + encoder.inner + width
    layer = 4 * width * width + width + biases + normed + mlp + norms + 2 * width
    embedding = encoder.patch_pixels * width + width + (encoder.patches + 2) * width
    projector = 8 * width + 4 * width * text + text * text + 2 * text
    return embedding + encoder.depth * layer + projector


def _internvl_whole(encoder: Encoder) -> int:
    """Of Intern-S1's, all but the MLPs (vLLM 0.33 interns1_vit.py)."""
    return _internvl(encoder) - encoder.depth * (2 * encoder.width + 1) * encoder.inner


def _lfm2_vl(encoder: Encoder) -> int:
    width, config = encoder.width, encoder.config
    hidden = typed(config.get("projector_hidden_size", 2560), Size, "config.json", "projector_hidden_size")
    joined = encoder.merged_patches(config.get("downsample_factor", 2))
    norm = 2 * joined if config.get("projector_use_layernorm", True) else 0
    projector = norm + joined * hidden + hidden + hidden * encoder.text_width + encoder.text_width
    embedding = encoder.patch_pixels * width + width + encoder.size("num_patches") * width
    return embedding + encoder.layers + 2 * width + projector


def _deepencoder(encoder: Encoder) -> int:
    """SAM-ViT-B with its neck and two convolutions, and behind them CLIP-L, or Qwen2-0.5B with 400 queries."""
    sam = 3 * 16**2 * 768 + 768 + 64**2 * 768
    positions = 8 * 2 * (2 * 14 - 1) * 64 + 4 * 2 * (2 * 64 - 1) * 64  # of windows, of layers that see everything
    sam += 12 * (4 * (768**2 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768) + positions
    sam += 768 * 256 + 9 * 256 * 256 + 4 * 256 + 9 * 256 * 512
    text, widths = encoder.text_width, encoder.vision.get("width")
    if isinstance(widths, Mapping) and "qwen2-0-5b" in widths:
        layer = 2 * 896**2 + 896 + 2 * (896 * 128 + 128) + 3 * 896 * 4864 + 2 * 896
        return sam + 9 * 512 * 896 + 24 * layer + 896 + 400 * 896 + 896 * text + 2 * text
    clip = 3 * 14**2 * 1024 + (1 + 257) * 1024 + 2 * 1024
    clip += 24 * (4 * (1024**2 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024)
    return sam + 9 * 512 * 1024 + clip + 2048 * text + 3 * text


def _step3p7(encoder: Encoder) -> int:
    """Scales behind attention and MLP; two convolutions of 3 × 3 that double the width lead into the projector."""
    width = encoder.width
    embedding = encoder.patch_pixels * width + encoder.patches * width + 2 * width
    convolutions = 9 * (width * 2 * width + 2 * width * 4 * width) + 6 * width
    biases = encoder.text_width if encoder.config.get("projector_bias") else 0
    scales = 2 * width * encoder.depth
    return embedding + encoder.layers + scales + convolutions + 4 * width * encoder.text_width + biases


def _gemma4(encoder: Encoder) -> int:
    width, inner = encoder.width, encoder.inner
    head_dim, clipped = encoder.size("head_dim"), 4 * bool(encoder.vision.get("use_clipped_linears"))
    q_width = encoder.size("num_attention_heads") * head_dim
    kv_width = encoder.size("num_key_value_heads") * head_dim
    layer = 2 * width * (q_width + kv_width) + 3 * width * inner + 2 * head_dim + 4 * width + 7 * clipped
    embedding = 2 * encoder.size("position_embedding_size") * width + encoder.patch_pixels * width
    standard = 2 * width if encoder.vision.get("standardize") else 0
    audio = encoder.config.get("audio_config")
    heard = 0
    if isinstance(audio, Mapping):
        heard = _gemma4_audio({**entries("encoders.toml")["gemma4_audio"], **audio}, encoder.text_width)
    return embedding + encoder.depth * layer + standard + width * encoder.text_width + heard


def _gemma4_unified(encoder: Encoder) -> int:
    """A projection between two norms, learned positions of rows and columns, and the way into the text model."""
    piece = 3 * (encoder.patch * encoder.size("pooling_kernel_size")) ** 2
    width = encoder.size("mm_embed_dim")
    embedding = piece * width + width + 2 * piece + 4 * width + 2 * encoder.size("mm_posemb_size") * width
    audio, heard = encoder.config.get("audio_config"), 0
    if isinstance(audio, Mapping):
        heard = typed(audio.get("audio_embed_dim", 640), Size, "audio_config", "audio_embed_dim")
    return embedding + (encoder.size("output_proj_dims") + heard) * encoder.text_width


class _Audio(Lenient, frozen=True, kw_only=True):
    hidden_size: Positive
    output_proj_dims: Positive
    subsampling_conv_channels: tuple[Positive, Positive]
    conv_kernel_size: Positive
    num_attention_heads: Positive
    num_hidden_layers: Positive
    use_clipped_linears: bool


def _gemma4_audio(audio: Config, text_width: int) -> int:
    """The conformer that Gemma 4's small models hear with."""
    sizes = typed(audio, _Audio, "audio_config")
    width, out, (first, second) = sizes.hidden_size, sizes.output_proj_dims, sizes.subsampling_conv_channels
    sampled = 9 * first + first + 9 * first * second + second + 32 * second * width  # 128 mel bands, halved twice
    matrices = 16 * width**2 + 5 * width**2 + 3 * width**2  # two MLPs; attention with positions; gated convolution
    vectors = (sizes.conv_kernel_size + 9) * width + width // sizes.num_attention_heads
    clipped = 4 * 10 if sizes.use_clipped_linears else 0
    layers = sizes.num_hidden_layers * (matrices + vectors + clipped)
    return sampled + layers + width * out + out + out * text_width


def _gemma3n(encoder: Encoder) -> int:
    # MobileNetV5 with the audio conformer and both projectors, into the text width of 2,048 that both sizes have:
    # 7,849,978,192 (E4B), 5,439,438,272 (E2B) parameters in the published safetensors, less the text model with the
    # unused keys and values of its shared layers, leave the same number for both.
    del encoder
    return 983_281_504


_ENCODERS: Mapping[str, Callable[[Encoder], int]] = {
    "NemotronH_Nano_Omni_Reasoning_V3": radio,
    "NemotronH_Nano_VL_V2": radio,
    "deepseek_vl_v2": _deepencoder,
    "ernie4_5_moe_vl": _ernie_vl,
    "ernie4_5_vl_moe": _ernie_vl,
    "gemma3": _siglip,
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4_unified,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v,
    "glm_ocr": _glm_ocr,
    "glmga": _glm4v,
    "hunyuan_vl": hunyuan_vl,
    "intern_s2_preview": _qwen3_vl,
    "interns1": _internvl,
    "internvl_chat": _internvl,
    "kimi_k25": _moonvit,
    "kimi_k3": _kimi_k3,
    "kimi_vl": _moonvit,
    "lfm2_vl": _lfm2_vl,
    "llama4": _llama4,
    "llava": _clip,
    "llava_next": _llava_next,
    "minicpmv4_6": minicpmv4_6,
    "mistral3": _pixtral,
    "muse_glimmer": _muse_glimmer,
    "paddleocr_vl": _paddleocr_vl,
    "phi4mm": phi4mm,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "step3p7": _step3p7,
}

_WHOLE: Mapping[str, Callable[[Encoder], int]] = {
    "NemotronH_Nano_Omni_Reasoning_V3": radio_whole,
    "NemotronH_Nano_VL_V2": radio_whole,
    "interns1": _internvl_whole,
    "phi4mm": phi4mm_whole,
}
