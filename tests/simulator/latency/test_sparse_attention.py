"""What sparse attention costs: an indexer reads all of a context, attention the chosen tokens alone.

Times are of whole attention modules with 16 heads, vLLM 0.24, in aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0).
"""

from pathlib import Path

import pytest

from kvcache.models.catalog import load_model
from simulator.latency.forms.physical import window_class
from simulator.latency.step_time import StepTimes
from tests.simulator.latency.physical_times import step_times
from validation.constants.sparse_attention import compared

DATA = Path(__file__).parents[4] / "shared" / "data"
LAYERS = 61


def sparse(gpu: str = "h200-sxm", model: str = "deepseek-v3.2", **settings: object) -> StepTimes:
    return step_times(model, gpu=gpu, **{"tensor_parallel_size": 8, "max_model_len": 131_072, **settings})


@pytest.mark.parametrize(("gpu", "key_s"), [("h200-sxm", 36.9e-12), ("b200-sxm", 24.5e-12)])
def test_a_longer_context_costs_what_its_keys_take_to_read(gpu: str, key_s: float) -> None:
    """From 16,384 to 65,536 tokens, 512 sequences: 1.073 to 2.001 ms on H200, 0.678 to 1.294 ms on B200."""
    assert sparse(gpu).context_s / LAYERS == pytest.approx(key_s, rel=0.08)


def test_up_to_the_most_that_is_chosen_latents_are_read_too() -> None:
    """From 2 to 2,048 tokens, 512 sequences with 16 bits on H200: 0.333 to 0.654 ms, of which keys take little."""
    times = sparse()
    assert times.window == 2048
    grown_s = 512 * 2046 * (times.window_context_s + times.context_s) / LAYERS
    assert grown_s == pytest.approx(0.321e-3, rel=0.08)


def test_packed_latents_take_as_long_however_few_there_are() -> None:
    """On Hopper, 512 sequences of 2 tokens take 0.396 ms more with an FP8 cache than with one of 16 bits."""
    packed, plain = sparse(kv_cache_dtype="fp8"), sparse()
    assert packed.window_context_s == 0
    more_s = packed.sampling[512] - plain.sampling[512]
    assert more_s / LAYERS == pytest.approx(0.396e-3, rel=0.1)


def test_layers_that_take_an_earlier_choice_read_no_keys() -> None:
    every, fourth = sparse(model="glm-5"), sparse(model="glm-5.3")
    assert fourth.context_s == pytest.approx(every.context_s * 21 / 78)
    assert fourth.window_context_s == pytest.approx(every.window_context_s)
    assert window_class(load_model("glm-5.3")) == (78, 2048)


def test_at_long_contexts_sparse_attention_is_faster_than_full_attention() -> None:
    dense = step_times("deepseek-v3", gpu="h200-sxm", tensor_parallel_size=8)
    chosen = sparse()
    for context, is_faster in ((1_000, False), (100_000, True)):
        read_s = chosen.decode_base_s + 64 * (chosen.context_s * context + chosen.window_context_s * min(context, 2048))
        assert (read_s < dense.decode_base_s + 64 * dense.context_s * context) is is_faster


def test_a_module_that_drafts_reads_what_it_chooses() -> None:
    drafts = {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.7}
    drafting, plain = sparse(speculative_config=drafts), sparse()
    assert drafting.context_s == pytest.approx(plain.context_s * (LAYERS + 1) / LAYERS)
    assert drafting.window_context_s == pytest.approx(plain.window_context_s * (2 * LAYERS + 2) / LAYERS)


@pytest.mark.parametrize(("gpu", "key_s"), [("h200-sxm", 57.0e-12), ("b200-sxm", 35.4e-12)])
def test_blocks_are_chosen_by_the_keys_of_all_tokens(gpu: str, key_s: float) -> None:
    """From 32,767 to 131,071 tokens, 256 sequences: 0.589 to 2.024 ms on H200, 0.379 to 1.271 ms on B200."""
    times, full = sparse(gpu, "minimax-m3"), step_times("minimax-m2.5", gpu=gpu, tensor_parallel_size=8)
    of_full_s = 3 * full.context_s / 62  # its first three layers read everything; both keep one KV head on each rank
    assert (times.context_s - of_full_s) / 57 == pytest.approx(key_s, rel=0.08)


@pytest.mark.parametrize(("gpu", "token_s"), [("h200-sxm", 0.17e-6), ("b200-sxm", 0.045e-6)])
def test_a_prompt_reads_the_blocks_that_each_token_chose(gpu: str, token_s: float) -> None:
    """Of 16,384 more tokens of a prompt: 5.84 - 2.81 ms on H200, 1.52 - 0.78 ms on B200, most of it that."""
    assert 2048 * sparse(gpu, "minimax-m3").window_prefill_s / 57 == pytest.approx(token_s, rel=0.15)


@pytest.mark.slow
def test_measured_kernel_times_are_met() -> None:
    pytest.importorskip("pyarrow", reason="the tables are parquet files")
    if not (DATA / "measured" / "op_tables").is_dir():
        pytest.skip("the kernel tables are not here")
    table = compared(DATA)
    off = (table["ours_s"] / table["measured_s"] - 1).abs()
    assert len(table) > 10_000
    assert off.median() < 0.08
    assert off.groupby(table["gpu"]).median().max() < 0.08
