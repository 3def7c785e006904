"""How long images take in the encoder."""

from typing import Any

import numpy as np
import pytest

from kvcache.models.catalog import load_model
from simulator.deployment import resolve
from simulator.latency.encoder import FEW, MANY, _pass_s
from simulator.latency.forms.physical import rank_of
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import ENCODER, AverageStep, breakdown
from simulator.latency.step_time import StepTimes
from tests.kvcache.image_models import IMAGE_MODELS


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_the_matrices_that_are_timed_are_those_of_the_known_encoder(name: str) -> None:
    """All but positions, norms and biases."""
    model = load_model(name)
    assert model.image_encoder is not None
    assert 0.985 < model.image_encoder.parameters / model.vision_parameters <= 1


def times(**settings: Any) -> StepTimes:
    return resolve("qwen3-vl-8b", "h100-sxm", **settings).latency.step_times


def test_an_image_of_4800_patches_takes_about_what_its_flops_take() -> None:
    """576 million parameters and 27 layers of attention: 8.3 Tflop, at half of an H100's peak 17 ms."""
    found, patches = times(), 4800
    seconds = found.encoder_start_s + patches * (found.encoder_patch_s + patches * found.encoder_pair_s)
    assert 0.010 < seconds < 0.025


def test_splitting_the_encoder_makes_its_parts_smaller_and_whole_ones_stay() -> None:
    whole, split = times(tensor_parallel_size=1), times(tensor_parallel_size=2)
    assert split.encoder_pair_s == pytest.approx(whole.encoder_pair_s / 2)
    assert split.encoder_patch_s < whole.encoder_patch_s
    kept = times(tensor_parallel_size=2, mm_encoder_tp_mode="data")
    assert (kept.encoder_pair_s, kept.encoder_patch_s) == (whole.encoder_pair_s, whole.encoder_patch_s)


def test_a_server_of_text_alone_has_no_encoder() -> None:
    assert times(language_model_only=True).encoder_patch_s == 0
    assert resolve("llama-3.1-8b", "h100-sxm").latency.step_times.encoder_floor_s == 0


def test_a_pass_is_linear_in_its_patches_but_for_5_percent() -> None:
    plan = resolve("qwen3-vl-8b", "h100-sxm")
    rank, encoder = rank_of(plan.served, constants_for(plan.gpu)), plan.architecture.image_encoder
    assert encoder is not None
    patches = np.geomspace(FEW, 2 * MANY, 20)
    line = plan.latency.step_times.encoder_start_s + patches * plan.latency.step_times.encoder_patch_s
    assert np.abs(line / _pass_s(rank, encoder, patches, 1) - 1).max() < 0.05


def test_the_encoder_is_a_cause_of_steps_with_prefill() -> None:
    latency = resolve("qwen3-vl-8b", "h100-sxm").latency
    step = AverageStep(tokens=300, sequences=8, sampled=8, prefill_tokens=292, prefill_share=0.5)
    with_images = AverageStep(tokens=300, sequences=8, sampled=8, prefill_tokens=292, prefill_share=0.5, encoder_s=0.01)
    more = sum(breakdown(latency, with_images).values()) - sum(breakdown(latency, step).values())
    assert breakdown(latency, with_images)[ENCODER] == pytest.approx(0.01)
    assert more == pytest.approx(0.01)
