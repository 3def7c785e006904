"""Images that are asked for on the command line."""

from collections.abc import Callable
from typing import Any

import pytest

from headcount.inputs.traffic import TrafficInput, read_size
from tests.headcount.told import assert_told
from workloads.images import ImageUse

SEES = ("simulate", "--model", "qwen3-vl-8b", "--gpu", "h100-sxm", "--concurrency", "2", "--num-requests", "4")
LOAD = ("--input-len", "50", "--output-len", "5")
TWO = ("--images-per-request", "2", "--image-size", "640x480")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((*SEES, *LOAD, "--images-per-request", "2"), "images have no size; give --image-size, such as 1280x960"),
        ((*SEES, *LOAD, "--image-size", "640x480"), "--image-size needs images; give --images-per-request or"),
        ((*SEES, *LOAD, *TWO, "--image-size", "640"), "'640' is no image size; give width x height in pixels"),
        ((*SEES, *LOAD, *TWO, "--image-size", "0x9"), "image width 0; give 1 to 65,536 pixels"),
        ((*SEES, *LOAD, *TWO, "--images-per-request", "101"), "101"),
        ((*SEES, *LOAD, *TWO, "--model", "llama-3.1-8b"), "meta-llama/Llama-3.1-8B-Instruct sees no images; leave"),
        ((*SEES, *LOAD, *TWO, "--model", "liquidai/lfm2.5-vl-1.6b"), "known are models of the types gemma3, glm4v"),
        ((*SEES, *LOAD, *TWO, "--limit-mm-per-prompt", "image=1"), "a prompt has 2 images, those of earlier turns"),
        ((*SEES, *LOAD, *TWO, "--language-model-only"), "a server that loads its image encoder; leave"),
        ((*SEES, *LOAD, *TWO, "--vllm-version", "0.32.0"), "vLLM's rules of release 0.33 and later"),
        (("workload", "describe", "vision-chat"), "only a model tells how many tokens they become; ask about a model"),
    ],
    ids=lambda value: " ".join(value[-4:]) if isinstance(value, tuple) else "",
)
def test_images_that_cannot_be_are_told_with_what_to_do(
    headcount: Callable[..., Any], arguments: tuple[str, ...], part: str
) -> None:
    assert_told(headcount(*arguments), part)


def test_no_images_are_the_same_question_as_none_asked_for() -> None:
    assert TrafficInput(images_per_request=0).images(None) is None
    assert TrafficInput(images_per_conversation=0).images(ImageUse(width=9, height=9, per_conversation=1)) is None


def test_options_change_a_workload_s_own_images() -> None:
    own = ImageUse(width=640, height=480, per_conversation=1)
    assert TrafficInput().images(own) == own
    changed = TrafficInput(images_per_request=2, image_size="1280×960").images(own)
    assert changed == ImageUse(width=1280, height=960, per_request=2, per_conversation=1)
    assert read_size(" 1280X960 ") == (1280, 960)
