"""What decode attention costs: by the cache's type, the heads, the sequences, the release."""

from dataclasses import replace

import numpy as np
import pytest

from kvcache.models.catalog import find_gpu, load_model
from simulator.latency.forms import latency_model
from simulator.latency.forms.physical import window_class
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model
from tests.simulator.latency.physical_times import SEQS, decode_s, step_times


def test_an_fp8_cache_is_read_faster_than_one_of_16_bits() -> None:
    shares = constants_for(find_gpu("h100-sxm")).decode_attention_bandwidth_share
    half, whole = step_times(kv_cache_dtype="fp8").context_s, step_times().context_s
    assert half == pytest.approx(whole / 2 * shares["16"] / shares["8"])
    assert half < whole


def test_before_it_had_tiles_for_decode_hopper_read_an_fp8_cache_little_faster() -> None:
    """Sources: flash-attention pull request 96 (8 query heads per KV head), vLLM's post on FP8 KV caches (4)."""
    for model, of_16_bits in (("llama-3.1-70b", 1.0), ("llama-3.1-8b", 0.63)):
        before, after = (
            step_times(model, kv_cache_dtype="fp8", vllm_version=release).context_s for release in ("0.11.0", "0.11.1")
        )
        plain = step_times(model, vllm_version="0.11.0").context_s
        assert before == pytest.approx(of_16_bits * plain)
        assert before > after
        assert plain == step_times(model, vllm_version="0.11.1").context_s
    on_blackwell = {"gpu": "b200-sxm", "kv_cache_dtype": "fp8"}
    assert step_times(**on_blackwell, vllm_version="0.11.0").context_s == step_times(**on_blackwell).context_s


def test_wide_heads_gain_nothing_from_an_fp8_cache_on_hopper() -> None:
    """Kernel tables: 0.43 of the bandwidth at a head dim of 256, 0.91 with 16 bits."""
    wide = [step_times("gemma-2-9b", kv_cache_dtype=name).context_s for name in ("auto", "fp8")]
    assert wide[1] == pytest.approx(wide[0], rel=0.1)


def test_short_sequences_cost_decode_more_than_their_bytes() -> None:
    """Kernel table of 32 query and 8 KV heads on H100: 26 µs at 64 sequences of 128 tokens, 151 µs at 512."""
    layers, sequences = 32, np.array([64, 512])
    times = step_times(max_num_seqs=512)
    known = constants_for(find_gpu("h100-sxm"))
    read_s = sequences * 128 * times.context_s / layers
    attention_s = times.decode_base_s / layers + 8 * sequences * known.decode_attention_sequence_s + read_s
    assert attention_s == pytest.approx([26e-6, 151e-6], rel=0.1)


def test_every_sequence_takes_its_time_in_attention_and_between_steps() -> None:
    of_gpu = replace(constants_for(find_gpu("h100-sxm")), stream_token_s=0.0)
    attention_s = 32 * 8 * of_gpu.decode_attention_sequence_s
    for changed, each_s in (
        ({"decode_attention_sequence_s": 2 * of_gpu.decode_attention_sequence_s}, attention_s),
        ({"step_gap_sequence_s": 2 * of_gpu.step_gap_sequence_s}, of_gpu.step_gap_sequence_s),
    ):
        served = served_model(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), max_num_seqs=SEQS)
        plain, longer = (
            latency_model(served, constants=constants).step_times for constants in (of_gpu, replace(of_gpu, **changed))
        )
        for count in (1, 512):
            assert decode_s(longer, count, 9) - decode_s(plain, count, 9) == pytest.approx(count * each_s)


def test_the_latent_of_mla_is_read_whole_on_every_rank() -> None:
    one, eight = (step_times("deepseek-v3", "h200-sxm", tensor_parallel_size=tp) for tp in (2, 8))
    assert one.context_s == eight.context_s
    assert one.prefill_s == pytest.approx(4 * eight.prefill_s)
    assert step_times(tensor_parallel_size=8).context_s == pytest.approx(step_times().context_s / 8)


def test_a_windowed_layer_costs_no_more_than_a_full_one() -> None:
    times = step_times("gemma-3-12b-it")
    windowed, window = window_class(load_model("gemma-3-12b-it"))
    full = load_model("gemma-3-12b-it").num_hidden_layers - windowed
    assert times.window == window == 1024
    assert times.window_context_s / windowed == pytest.approx(times.context_s / full)
    everywhere = decode_s(times, 8, 100)
    assert decode_s(times, 8, 8192) - everywhere < 8 * 8092 * (times.context_s + times.window_context_s)
    assert step_times().window_context_s == 0
