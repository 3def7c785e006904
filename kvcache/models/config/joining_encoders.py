"""How many parameters the encoders have that join pieces on the way, of models that read pages."""

from kvcache.models.config.encoder import Encoder


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
