"""Our tokens of images are compared with those of the families' own processors, and a difference would be seen."""

from pathlib import Path

import pytest

from conformance.components.images import ImageComparison, check_images, compare, image_cases
from kvcache.shape.images import FixedSize

CASE = {"name": "one", "width": 640, "height": 480}


def compared(theirs: dict[str, object]) -> ImageComparison:
    found = ImageComparison()
    compare(found, CASE, FixedSize(embeddings=256, patches=4096, marks=(2, 2)), theirs)
    return found


def test_one_token_more_or_a_refusal_of_one_alone_is_a_difference() -> None:
    assert compared({"embeddings": 256, "length": 260}).equal == 1
    assert list(compared({"embeddings": 256, "length": 261}).differences) == ["one, 640x480"]
    assert list(compared({"refused": "too narrow"}).differences.values()) == [((256, 260), None)]


@pytest.mark.slow
def test_every_size_has_the_tokens_of_the_family_s_own_processor(vllm_python: Path) -> None:
    cases = image_cases(seed=1, count=300)
    found = check_images(vllm_python, cases)
    assert found.differences == {}
    assert found.equal + found.refused_by_both == len(cases) >= 2_100
