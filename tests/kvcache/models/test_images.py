"""How many tokens an image becomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.errors import HeadcountError
from kvcache.models.catalog import load_model
from kvcache.models.config.images import require_image_rule
from kvcache.shape.images import MOST_ASPECT, ClosestRatio, ImageRule, SmartResize
from tests.kvcache.image_models import IMAGE_MODELS

QWEN3 = SmartResize(patch=16, merge=2, min_pixels=65_536, max_pixels=16_777_216)
SIDES = st.integers(28, 5000)


def rule_of(model: str) -> ImageRule:
    found = load_model(model).image_rule
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "size", "embeddings", "tokens"),
    [
        # 1,280 × 960 is 40 × 30 squares of 32 pixels; marks on either side.
        ("qwen3-vl-8b", (1280, 960), 1200, 1202),
        # 46 × 34 squares of 28 pixels.
        ("qwen2.5-vl-7b", (1280, 960), 1564, 1566),
        # Google's model card: 896 × 896, 256 tokens each.
        ("gemma-3-27b", (1280, 960), 256, 260),
        # OpenGVLab's card: 256 tokens a tile, up to 12 tiles and a thumbnail.
        ("OpenGVLab/InternVL3_5-8B", (448, 448), 256, 258),
        ("OpenGVLab/InternVL3_5-8B", (1792, 1344), 13 * 256, 13 * 256 + 2),
        # Llama 4: 336 pixels a tile, 144 tokens each; one tile has no small whole beside it.
        ("llama-4-scout", (336, 336), 144, 147),
        ("llama-4-scout", (672, 336), 3 * 144, 3 * 144 + 5),
        # 55 × 55 squares of 28 pixels, a break behind each row.
        ("mistral-small-3.1", (3000, 3000), 55 * 55, 55 * 56),
        ("llava-1.5-7b", (1280, 960), 576, 576),
    ],
)
def test_an_image_has_the_tokens_of_its_family_s_processor(
    model: str, size: tuple[int, int], embeddings: int, tokens: int
) -> None:
    found = rule_of(model).of(*size)
    assert (found.embeddings, found.tokens) == (embeddings, tokens)


@given(st.sampled_from(IMAGE_MODELS), SIDES, SIDES)
def test_the_encoder_s_output_fits_its_place_and_the_budget(model: str, width: int, height: int) -> None:
    rule = rule_of(model)
    found = rule.of(width, height)
    assert 0 <= found.first < found.last <= found.length
    assert 0 < found.embeddings <= found.last - found.first
    assert found.embeddings <= rule.largest or model == "kimi-vl-a3b"  # vLLM profiles 1024 × 1024 alone
    assert found.patches % found.attended == 0


@given(st.integers(1, 140), st.integers(1, 140), st.integers(1, 20))
def test_a_larger_image_never_has_fewer_tokens(columns: int, rows: int, factor: int) -> None:
    """Of whole squares, in ratio: rounding of other sizes may go either way."""
    width, height = 32 * columns, 32 * rows
    if max(width, height) * factor > 60_000 or max(columns, rows) > MOST_ASPECT * min(columns, rows):
        return
    small, large = QWEN3.of(width, height), QWEN3.of(factor * width, factor * height)
    # At most 16,384 tokens, less what whole rows and columns leave over.
    assert large.tokens >= min(small.tokens, 16_384 - 2 * 128 * max(columns, rows) // min(columns, rows))


def test_a_side_that_is_too_long_for_the_other_is_refused() -> None:
    with pytest.raises(HeadcountError, match="more than 200 times as long"):
        QWEN3.of(20_000, 50)
    with pytest.raises(HeadcountError, match=r"image width 0; give 1 to 65,536 pixels, such as 1280x960"):
        QWEN3.of(0, 50)


def test_one_tile_has_no_thumbnail() -> None:
    rule = ClosestRatio(tile=448, tile_patches=1024, tile_tokens=256, max_tiles=1)
    assert rule.of(4000, 3000).embeddings == rule.largest == 256


def test_a_model_whose_rule_is_not_known_is_refused_with_those_known() -> None:
    gemma = load_model("google/gemma-4-31B-it")
    with pytest.raises(HeadcountError, match="is not known; known are models of the types gemma3, glm4v"):
        require_image_rule(gemma.image_rule, model=gemma.name, sees=bool(gemma.modalities))


def test_a_text_model_sees_no_images() -> None:
    llama = load_model("llama-3.1-8b")
    with pytest.raises(HeadcountError, match="sees no images; leave the images out"):
        require_image_rule(llama.image_rule, model=llama.name, sees=bool(llama.modalities))
