"""Images in the compiled core: what is encoded, how often, and what it costs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from files.errors import HeadcountError
from kvcache.models.catalog import load_model
from kvcache.shape.images import ImageTokens
from simulator.engines.vllm.engine import EngineConfig
from simulator.engines.vllm.images import EncoderLimits
from simulator.engines.vllm.speculation import Speculation
from simulator.fleet.fleet import Fleet, Pool
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from workloads.images import ImageUse, with_images
from workloads.load import load_preset
from workloads.requests import RequestTable
from workloads.synthetic import closed_load

IMAGE_S = 1.0  # of the encoder, for each patch


def shape() -> ImageTokens:
    rule = load_model("qwen3-vl-8b").image_rule
    assert rule is not None
    return rule.of(640, 480)


def use(per_request: int) -> ImageUse:
    return ImageUse(width=640, height=480, per_request=per_request, shape=shape())


def engine(cache: int = 16_384, **settings: Any) -> EngineConfig:
    given: dict[str, Any] = {
        "num_gpu_blocks": 20_000, "max_model_len": 20_000, "max_num_seqs": 64, "max_num_batched_tokens": 2048,
        "encoder": EncoderLimits(max_num_encoder_input_tokens=cache, encoder_cache_size=cache),
    }  # fmt: skip
    return EngineConfig(**(given | settings))


def served(table: RequestTable, config: EngineConfig, *, patch_s: float = 0.0) -> Simulation:
    times = constant_step_times(0.01, max_num_batched_tokens=2048, max_num_seqs=64)
    times = replace(times, encoder_patch_s=patch_s)
    simulation = Simulation(Fleet(pools=(Pool(engine=config, step_times=times),)), table, log_steps=True)
    simulation.run()
    return simulation


def requests(num_requests: int, per_request: int) -> RequestTable:
    table = closed_load(concurrency=4, num_requests=num_requests, input_len=50, output_len=5)
    return with_images(table, use(per_request), 0)


def test_with_room_for_all_every_image_is_encoded_once() -> None:
    simulation = served(requests(20, 2), engine(), patch_s=0.001)
    embeddings, patches = 40 * shape().embeddings, 40 * shape().patches
    assert sum(step.embeddings for step in simulation.steps) == embeddings
    assert float(simulation.totals["embeddings"].sum()) == embeddings
    assert float(simulation.totals["encoder_s"].sum()) == pytest.approx(0.001 * patches)


def test_a_step_encodes_no_more_than_its_budget_and_the_cache_holds_no_more_than_its_size() -> None:
    limit = shape().embeddings + 10
    simulation = served(requests(20, 2), engine(limit))
    assert max(step.embeddings for step in simulation.steps) == shape().embeddings
    assert min(step.free_slots for step in simulation.steps) >= 0
    assert (simulation.requests["output"] == 5).all()


def test_the_same_image_in_another_prompt_is_not_encoded_again() -> None:
    table = requests(20, 1)
    assert table.images is not None
    same = replace(table, images=table.images._replace(content=np.zeros_like(table.images.content)))
    simulation = served(same, engine(enable_prefix_caching=False))
    assert sum(step.embeddings for step in simulation.steps) == shape().embeddings


def test_later_turns_find_their_images_in_the_prefix_cache() -> None:
    chat = replace(load_preset("chat"), images=replace(use(0), per_conversation=1))
    table = chat.draw(10, 5, 0, 19_000, stationary_start=False)
    simulation = served(table, engine(max_num_batched_tokens=2048))
    opened = len(np.unique(table.span_start))
    assert sum(step.embeddings for step in simulation.steps) == opened * shape().embeddings


def test_more_images_never_make_anybody_faster() -> None:
    means = []
    for count in (0, 1, 2, 4):
        table = closed_load(concurrency=4, num_requests=40, input_len=50, output_len=5)
        table = with_images(table, use(count), 0) if count else table
        found = served(table, engine(), patch_s=1e-6).requests
        means.append(float((found["first_token_s"] - found["arrival_s"]).mean()))
    assert means == sorted(means)


def test_text_is_served_alike_with_and_without_an_encoder() -> None:
    table = closed_load(concurrency=8, num_requests=60, input_len=300, output_len=20, length_spread=0.5)
    one, other = served(table, engine()), served(table, engine(encoder=None))
    assert one.requests.tobytes() == other.requests.tobytes()
    assert one.steps == other.steps


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"encoder": None}, "a server that loads its image encoder"),
        (
            {"encoder": EncoderLimits(max_num_encoder_input_tokens=9999, encoder_cache_size=9999, images_per_prompt=1)},
            "a prompt has 2 images, those of earlier turns included, and --limit-mm-per-prompt allows 1",
        ),
        (
            {"encoder": EncoderLimits(max_num_encoder_input_tokens=9, encoder_cache_size=9)},
            "an image has 300 embeddings, and a step of the encoder takes 9",
        ),
        (
            {"speculation": Speculation(method="ngram", num_speculative_tokens=2, acceptance_rate=0.5)},
            "images are not simulated with speculative decoding",
        ),
    ],
)
def test_what_vllm_refuses_or_is_not_simulated_is_one_clear_error(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(HeadcountError, match=why):
        served(requests(4, 2), engine(**settings))
