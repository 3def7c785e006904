"""Step times of models whose layers are not all alike."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.models import with_attention
from kvcache.layout.kv_content import kv_bytes_per_token_per_layer
from kvcache.layout.state_content import state_bytes
from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import active_parameters, parameter_counts
from simulator.latency.forms.physical import latency_model
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import COMPUTE, KV_READ, AverageStep, LatencyModel, breakdown, served_model
from simulator.latency.profile import STEP_SCALE, with_terms
from simulator.latency.step_time import BatchSums
from tests.simulator.latency.physical_times import decode_s

HYBRIDS = (
    "qwen3-next-80b", "granite-4.0-h-small", "kimi-linear-48b", "nemotron-nano-9b-v2", "falcon-h1-7b", "lfm2-1.2b",
    "qwen3.5-27b", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)  # fmt: skip
GPU = find_gpu("h100-sxm")
EAGER_S = constants_for(GPU).eager_layer_s


def model_of(arch: Architecture, **options: Any) -> LatencyModel:
    sizes = {"max_num_batched_tokens": 4096, "max_num_seqs": 128} | options
    return latency_model(served_model(architecture=arch, gpu=GPU, **sizes))


def without_states(arch: Architecture) -> Architecture:
    return replace(arch, layers=tuple(replace(layer, state=None) for layer in arch.layers))


@pytest.mark.parametrize("name", HYBRIDS)
def test_one_sequence_waits_for_the_weights_it_passes_through(name: str) -> None:
    arch = load_model(name)
    embedding = 0 if arch.tie_word_embeddings else parameter_counts(arch)["embedding"]
    weights_s = 2 * (active_parameters(arch) - embedding) / GPU.memory_bandwidth_bytes_per_s
    # Beside the weights: kernel starts, glue, in every step the sampler, the host.
    start_s = 60e-6 * arch.num_hidden_layers + 1.5e-3
    assert weights_s < decode_s(model_of(arch).step_times, 1, 100) < 1.35 * weights_s + start_s


@pytest.mark.parametrize("name", HYBRIDS)
def test_only_layers_with_attention_read_a_context(name: str) -> None:
    arch = load_model(name)
    times = model_of(arch).step_times
    read = (
        sum(layer.caches_kv for layer in arch.layers)
        * kv_bytes_per_token_per_layer(arch)
        / GPU.memory_bandwidth_bytes_per_s
    )
    assert read < times.context_s < 1.5 * read
    assert times.window_context_s == 0


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_sequence_more_reads_and_writes_its_states(name: str) -> None:
    arch = load_model(name)
    assert arch.state_space is not None
    model, without = model_of(arch), model_of(without_states(arch))
    moved = 2 * arch.num_state_layers * state_bytes(arch.state_space, arch.dtype)
    more = np.diff(model.step_times.sampling - without.step_times.sampling)
    np.testing.assert_allclose(more, moved / (0.85 * GPU.memory_bandwidth_bytes_per_s), rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in HYBRIDS if name != "lfm2-1.2b"])  # a convolution alone
def test_a_prompt_is_scanned_and_a_decode_step_is_not(name: str) -> None:
    arch = load_model(name)
    with_states, without = model_of(arch), model_of(without_states(arch))
    more, plain = (model.step_times.prefill - model.step_times.decode for model in (with_states, without))
    assert more[0] == plain[0] == 0
    assert (np.diff(more) > np.diff(plain)).all()


def test_a_step_s_causes_add_up_to_its_time_where_states_take_part() -> None:
    model = model_of(load_model("qwen3-next-80b"))
    sums = BatchSums()
    sums.add(start=0, end=2048, is_sampled=True, is_decode=False, window=model.step_times.window)
    for _ in range(16):
        sums.add(start=999, end=1000, is_sampled=True, is_decode=True, window=model.step_times.window)
    step = AverageStep(
        tokens=sums.tokens, sequences=sums.sequences, sampled=sums.sampled, decode_context=sums.decode_context,
        prefill_tokens=sums.prefill_tokens, prefill_work=sums.prefill_work, prefill_share=1.0,
    )  # fmt: skip
    causes = breakdown(model, step)
    assert sum(causes.values()) == pytest.approx(model.step_times.step_s(sums), rel=1e-9)
    assert causes[KV_READ] > 17 * model.causes_by_sampled[KV_READ][1]
    times = model.step_times
    assert causes[COMPUTE] > times.prefill[sums.tokens] - times.decode[sums.tokens] > 0


def test_heads_that_differ_between_windows_and_full_attention_are_read_as_they_are() -> None:
    arch = load_model("gemma-4-31b")
    times = model_of(arch).step_times
    read = {True: 0, False: 0}
    for layer in arch.layers:
        read[layer.attention.window is None] += kv_bytes_per_token_per_layer(arch, attention=layer.attention)
    ratio = read[True] / read[False]
    assert times.context_s / times.window_context_s == pytest.approx(ratio)


def test_layers_that_share_a_cache_read_it_all_the_same() -> None:
    arch = load_model("gemma-3n-e4b")
    alone = with_attention(arch, kv_owner=None)
    assert model_of(arch).step_times.context_s == model_of(alone).step_times.context_s
    assert model_of(arch).step_times.decode[8] < model_of(alone).step_times.decode[8]  # fewer projections


def test_a_layer_of_one_block_is_half_of_a_layer_of_two() -> None:
    arch = load_model("nemotron-nano-9b-v2")
    assert {layer.num_parts for layer in arch.layers} == {1}
    assert model_of(arch).step_times.floor[-1] == pytest.approx(56 / 2 * 0.9 * EAGER_S)  # two multiplies a block
    assert {layer.num_parts for layer in load_model("falcon-h1-7b").layers} == {3}


def test_tensor_parallel_ranks_share_states_and_scan() -> None:
    arch = load_model("qwen3-next-80b")
    one, four = (model_of(arch, tensor_parallel_size=tp) for tp in (1, 4))
    ones, fours = (model.step_times.prefill - model.step_times.decode for model in (one, four))
    assert fours[4096] == pytest.approx(ones[4096] / 4)
    assert four.causes_by_sampled[KV_READ][8] == pytest.approx(one.causes_by_sampled[KV_READ][8] / 4)


def test_the_scale_of_a_profile_scales_states_too() -> None:
    base = constants_for(GPU)
    deployment = served_model(
        architecture=load_model("qwen3-next-80b"), gpu=GPU, max_num_batched_tokens=512, max_num_seqs=64
    )
    one, two = (
        latency_model(deployment, constants=with_terms(base, {STEP_SCALE: np.log(scale)})).step_times
        for scale in (1, 2)
    )
    for name in ("prefill", "decode", "sampling"):
        np.testing.assert_allclose(getattr(two, name), 2 * getattr(one, name), rtol=1e-9)


def test_what_is_not_measured_is_said_and_widens_the_error() -> None:
    hybrid, plain = model_of(load_model("lfm2-1.2b")), model_of(load_model("llama-3.1-8b"))
    assert any(row[0] == "SSM / linear-attention layers" for row in hybrid.assumptions)
    assert any(row[0].startswith("state bandwidth") for row in hybrid.assumptions)
    assert not any(row[0].startswith(("state", "SSM")) for row in plain.assumptions)
    assert hybrid.tpot_log_error.total > plain.tpot_log_error.total
    assert hybrid.ttft_log_error.total > plain.ttft_log_error.total
