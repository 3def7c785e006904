"""Step times with LoRA adapters: laws, and what public runs measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.latency.step_time import StepTimes
from tests.simulator.latency.physical_times import step_times

SLOTS = {"max_model_len": 2048, "gpu_memory_utilization": 0.99}


def with_slots(model: str, max_loras: int, rank: int = 8, **more: object) -> StepTimes:
    return step_times(model, adapters=max_loras, max_loras=max_loras, max_lora_rank=rank, **SLOTS, **more)


@pytest.mark.parametrize(
    ("model", "rank", "slots", "measured_s"),
    [
        ("llama-3.1-8b", 8, 352, 23.8e-6), ("llama-3.1-8b", 16, 224, 22.9e-6), ("llama-3.1-8b", 32, 96, 33.3e-6),
        ("qwen2.5-7b", 8, 384, 20.8e-6),
    ],
)  # fmt: skip
def test_a_slot_without_requests_takes_what_was_measured_within_a_third(
    model: str, rank: int, slots: int, measured_s: float
) -> None:
    """Source: ITL of one sequence, vLLM 0.8.5 on an H100; docs/measurements/adapters.md."""
    few, many = with_slots(model, 8, rank), with_slots(model, slots, rank)
    assert (many.decode[1] - few.decode[1]) / (slots - 8) == pytest.approx(measured_s, rel=0.33)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-7b"])
def test_an_adapter_in_the_step_takes_what_was_measured_within_a_tenth(model: str) -> None:
    """Source: the same servers, 220 and 250 sequences with 1 to 300 adapters."""
    assert with_slots(model, 32).adapter_s == pytest.approx(0.33e-3, rel=0.1)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen2.5-7b"])
def test_a_load_takes_what_was_measured_within_a_half(model: str) -> None:
    """Source: the same servers' logs: 6.4 to 8.1 ms and 3.0 to 3.5 ms; hundreds of milliseconds more from disk."""
    times = with_slots(model, 32)
    assert times.adapter_load_s == pytest.approx({"llama-3.1-8b": 7.2e-3, "qwen2.5-7b": 3.25e-3}[model], rel=0.5)
    assert 0.05 <= times.adapter_read_s <= 0.2


def test_two_kernels_of_each_layer_take_what_punica_says() -> None:
    """Source: 2 ms a token (arXiv:2310.18547, abstract)."""
    bare, one = step_times("llama-3.1-8b", **SLOTS), with_slots("llama-3.1-8b", 1)
    assert one.decode[1] - bare.decode[1] == pytest.approx(2e-3, rel=0.1)


@settings(max_examples=10)
@given(st.sampled_from([1, 4, 16, 64]), st.sampled_from([8, 64]))
def test_a_step_takes_longer_with_more_slots_and_no_less_with_specialized_graphs(slots: int, rank: int) -> None:
    bare, some = step_times("qwen3-8b", **SLOTS), with_slots("qwen3-8b", slots, rank)
    more, special = (
        with_slots("qwen3-8b", 2 * slots, rank),
        with_slots("qwen3-8b", slots, rank, specialize_active_lora=True),
    )
    assert np.all(bare.decode[1:] < special.decode[1:])
    assert np.all(special.decode <= some.decode)
    assert np.all(some.decode <= more.decode)
    assert (bare.adapter_s, bare.adapter_load_s, bare.adapter_read_s) == (0.0, 0.0, 0.0)


def test_ranks_of_a_split_share_the_work_of_adapters() -> None:
    assert with_slots("llama-3.1-8b", 8, tensor_parallel_size=4).adapter_s < with_slots("llama-3.1-8b", 8).adapter_s


def test_experts_have_kernels_of_their_own() -> None:
    bare, one = (
        step_times("mixtral-8x7b", gpu="h200", **SLOTS),
        step_times("mixtral-8x7b", gpu="h200", adapters=1, **SLOTS),
    )
    assert np.all(one.decode[1:] - bare.decode[1:] > 1e-3)
