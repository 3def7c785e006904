"""Step times under decode context parallelism: shorter where contexts are long, longer where they are short."""

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.forms.physical import latency_model
from simulator.latency.model import served_model
from simulator.latency.step_time import StepTimes

RANKS = (1, 2, 4, 8)
SEQUENCES = 64


def step_times(model: str, ranks: int) -> StepTimes:
    served = served_model(
        load_model(model),
        find_gpu("h200-sxm"),
        tensor_parallel_size=8,
        max_model_len=32_768,
        decode_context_parallel_size=ranks,
    )
    return latency_model(served).step_times


def decode_s(times: StepTimes, context: int) -> float:
    """A step in which SEQUENCES sequences of so many tokens decode."""
    read = SEQUENCES * context * times.context_s
    return float(times.decode[SEQUENCES] + times.sampling[SEQUENCES] + times.decode_base_s + read)


def test_long_contexts_are_read_faster_and_short_ones_wait_for_the_ranks() -> None:
    found = [step_times("moonshotai/Kimi-K2-Instruct", ranks) for ranks in RANKS]
    short, long = ([decode_s(times, context) for times in found] for context in (16, 30_000))
    assert short == sorted(short)
    assert long == sorted(long, reverse=True)
    per_token = [times.context_s for times in found]
    assert per_token == sorted(per_token, reverse=True)
    assert per_token[-1] >= per_token[0] / 8  # heads of the whole group are computed over a part of the context


@pytest.mark.parametrize("model", ["moonshotai/Kimi-K2-Instruct", "deepseek-v2-lite"])
def test_prompts_of_latent_attention_take_as_long(model: str) -> None:
    whole, split = step_times(model, 1), step_times(model, 8)
    assert np.array_equal(whole.prefill, split.prefill)
    assert whole.prefill_s == split.prefill_s


def test_kv_heads_are_split_too() -> None:
    whole, split = step_times("qwen3-30b-a3b", 1), step_times("qwen3-30b-a3b", 2)
    assert split.context_s == pytest.approx(whole.context_s / 2)
    assert np.all(split.prefill[1:] > whole.prefill[1:])  # their queries are gathered
