"""How many parameters the encoders have that join pieces on the way, or hear as well."""

from collections.abc import Mapping

from files.schema import typed
from kvcache.models.config.encoder import Encoder
from kvcache.models.config.fields import Size

# vLLM 0.33's AudioEmbedding and Phi4MMImageEncoder, whose widths are in the code, on torch's meta device, with the
# published `audio_processor`: a conformer of 24 layers, and 26 of SigLIP's 27 layers without its pooling head.
_HEARD, _SEEN = 466_416_416, 411_069_856
# The same of its Parakeet: 24 layers of 1,024, of which nothing is split.
_PARAKEET = 608_977_920


def hunyuan_vl(encoder: Encoder) -> int:
    """Two convolutions without overlap join the pieces; vectors for a line's end, an image's and between them."""
    width, text = encoder.width, encoder.text_width
    positions = (encoder.size("max_image_size") // encoder.patch) ** 2 + 1
    embedding = encoder.patch_pixels * width + width + positions * width
    joined = encoder.merged_patches(encoder.size("spatial_merge_size")) * 2 * width + 2 * width
    joined += 2 * width * 4 * width + 4 * width + 4 * width * text + text
    vectors = width + 4 * width + 4 * text
    return embedding + encoder.layers + joined + vectors


def minicpmv4_6(encoder: Encoder) -> int:
    """SigLIP; behind one of its layers attention within four pieces joins them, and a projector does so again."""
    width, text = encoder.width, encoder.text_width
    embedding = encoder.patch_pixels * width + width + encoder.patches * width
    joined, inner = 4 * width, 4 * encoder.inner
    attention = 4 * (width * width + width) + 2 * width
    merger = 2 * joined + joined * inner + inner + inner * width + width
    projector = 2 * joined + joined * joined + joined + joined * text + text
    return embedding + encoder.layers + 2 * width + attention + merger + projector


def phi4mm(encoder: Encoder) -> int:
    """Images and sound, each with a projector of its own and sound with a second one beside images."""
    del encoder
    return _SEEN + _HEARD


def phi4mm_whole(encoder: Encoder) -> int:
    """What hears, and a part of what sees: the rest is split, as two ranks' 213,046,160 each say."""
    del encoder
    return _HEARD + 15_022_464


def radio(encoder: Encoder) -> int:
    """RADIO with scales behind attention and MLP, tokens beside the pieces (vLLM 0.33 radio.py); what follows it."""
    return encoder.layers + 2 * encoder.width * encoder.depth + _beside_radio(encoder)


def radio_whole(encoder: Encoder) -> int:
    """All but the matrices and the biases of their outputs."""
    return _beside_radio(encoder) + encoder.depth * (2 + 4 + 2) * encoder.width


def _beside_radio(encoder: Encoder) -> int:
    """Pieces, of images and of as many frames, positions, tokens; the ways into the text model of what is seen, heard.

    A norm and two matrices are each such way.
    """
    width, config = encoder.width, encoder.config
    positions = (encoder.size("max_resolution") // encoder.patch) ** 2
    frames = encoder.size("video_temporal_patch_size", default=1)
    pieces = encoder.patch_pixels * (1 + (frames if frames > 1 else 0))
    hidden = typed(config.get("projector_hidden_size", 20_480), Size, "config.json", "projector_hidden_size")
    seen = 4 * width + (4 * width + encoder.text_width) * hidden
    sound, heard = config.get("sound_config"), 0
    if isinstance(sound, Mapping):
        hidden = typed(sound.get("projection_hidden_size", 4096), Size, "sound_config", "projection_hidden_size")
        heard = _PARAKEET + 1024 + (1024 + encoder.text_width) * hidden
    return (pieces + positions + encoder.size("num_tokens")) * width + seen + heard
