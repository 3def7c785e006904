"""What the physical step times must obey, whatever the constants are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, gpu_names, load_model
from kvcache.parallelism import Parallelism
from simulator.engines.vllm.compilation import Compilation
from simulator.latency.forms import latency_model
from simulator.latency.gpu_constants import FOLDER, Constants, constants_for
from simulator.latency.model import ACTIVATIONS, served_model
from simulator.latency.passes import padded_batch
from simulator.latency.step_time import FloatArray, StepTimes
from simulator.latency.terms import all_reduce_s
from tests.simulator.latency.physical_times import BUDGET, SEQS, decode_s, physical_step_times, prefill_s, step_times
from validation.constants.kernel_tables.rows import lone_rank

MEASURED = Path(__file__).parents[3] / "docs" / "measurements" / "results" / "accuracy.json"


@settings(max_examples=30)
@given(
    model=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-12b-it", "gpt-oss-120b"]),
    gpu=st.sampled_from(["h100-sxm", "b200-sxm", "a100-80gb", "mi300x"]),
    tp=st.sampled_from([1, 2, 4, 8]),
)
def test_a_step_takes_longer_with_more_tokens_sequences_or_context(model: str, gpu: str, tp: int) -> None:
    times = step_times(model, gpu, tensor_parallel_size=tp)
    assert (np.diff(times.decode) >= 0).all()
    assert (np.diff(times.prefill) >= 0).all()
    assert (np.diff(times.sampling) >= 0).all()
    assert decode_s(times, 64, 9000) > decode_s(times, 64, 1000)
    near, far = prefill_s(times, 4096), prefill_s(times, 4096, start=8192)
    assert far > near or far == near == times.floor[4096] + times.gap_s  # launching takes longer than computing


def test_tensor_parallelism_shortens_the_reading_of_weights() -> None:
    one, two, four = (decode_s(step_times("llama-3.1-70b", tensor_parallel_size=tp), 1, 100) for tp in (1, 2, 4))
    assert 1.6 < one / two < 2
    assert 1.3 < two / four < 2


def test_a_decode_step_of_one_sequence_is_the_weights_over_the_bandwidth_with_the_kernels_starts() -> None:
    gpu, layers, gemms = find_gpu("h100-sxm"), 32, 4
    constants = constants_for(gpu)
    weights_s = 2 * 7.5e9 / gpu.memory_bandwidth_bytes_per_s  # 8.03e9 parameters less the embedding
    layer_s = gemms * constants.gemm_start_s + constants.glue_s + constants.decode_attention_start_s
    columns = layers * (3 * 4096 + 14336) + 4096  # that the multiplies sum over: hidden size, MLP, head
    overhead_s = layers * layer_s + constants.gemm_start_s + constants.sampling_start_s + constants.step_gap_s
    overhead_s += columns * constants.gemm_depth_s
    expected_s = weights_s / constants.gemm_bandwidth_share["bf16"] + overhead_s
    assert decode_s(step_times(), 1, 100) == pytest.approx(expected_s, rel=0.01)


def test_a_long_prefill_is_its_flops_over_the_peak() -> None:
    gpu = find_gpu("h100-sxm")
    flops_s = 2 * 6.98e9 * BUDGET / gpu.flops_per_s["bf16"]  # without embedding or head
    assert flops_s < prefill_s(step_times(), BUDGET) < 2.5 * flops_s


@pytest.mark.parametrize(("gpu", "tokens"), [("h100-sxm", 4096), ("b200-sxm", 4096), ("h100-sxm", 1), ("b200-sxm", 1)])
def test_fp8_is_faster_than_bf16_where_the_gpu_has_it(gpu: str, tokens: int) -> None:
    names = {"bf16": step_times("llama-3.1-70b", gpu), "fp8": step_times("llama-3.1-70b", gpu, quantization="fp8")}
    assert names["fp8"].decode[tokens] < names["bf16"].decode[tokens]
    saved_s = names["bf16"].decode[tokens] - names["fp8"].decode[tokens]
    assert saved_s > 0.85 * least_saving_s(gpu, tokens)


def least_saving_s(gpu_name: str, tokens: int) -> float:
    """What 68.5e9 parameters in FP8 save by their bytes, or by their flops, whichever bounds the multiply."""
    gpu = find_gpu(gpu_name)
    constants, parameters = constants_for(gpu), 68.5e9
    reached = {name: gpu.flops_per_s[name] * constants.gemm_compute_share[name] for name in ("bf16", "fp8")}
    compute_s = {name: 2 * parameters * tokens / flops for name, flops in reached.items()}
    share = constants.gemm_bandwidth_share
    read_s = parameters * (2 / share["bf16"] - 1 / share["fp8"]) / gpu.memory_bandwidth_bytes_per_s
    return read_s if tokens == 1 else compute_s["bf16"] - compute_s["fp8"]


def test_weight_only_formats_read_less_yet_compute_in_16_bits() -> None:
    plain, awq = step_times(), step_times(quantization="awq")
    assert awq.decode[1] < 0.5 * plain.decode[1]
    assert awq.decode[4096] == pytest.approx(plain.decode[4096], rel=0.1)


def test_a_tile_that_is_hardly_filled_takes_longer_in_fp8_on_h200() -> None:
    """Decodes of Qwen3-32B, vLLM 0.26: 11.6 ms with 16 sequences, 14.9 with 32, 13.4 with 64."""
    fp8, plain = (step_times("qwen3-32b", "h200-sxm", quantization=name).decode for name in ("fp8", None))
    assert fp8[16] < fp8[48] < fp8[24]
    assert plain[16] < plain[24] < plain[48]


def test_without_fp8_tensor_cores_fp8_weights_compute_in_16_bits() -> None:
    plain, fp8 = step_times(gpu="a100-80gb"), step_times(gpu="a100-80gb", quantization="fp8")
    assert fp8.decode[1] < plain.decode[1]
    assert fp8.decode[4096] == pytest.approx(plain.decode[4096], rel=0.1)


def test_decode_batches_are_padded_to_cuda_graph_sizes() -> None:
    deployment = served_model(
        architecture=load_model("llama-3.1-8b"), gpu=find_gpu("h100-sxm"), max_num_batched_tokens=600, max_num_seqs=512
    )
    padded = padded_batch(np.arange(601.0), deployment)
    sizes = sorted(set(padded[1:513]))
    assert sizes == [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]
    assert (padded >= np.arange(601)).all()
    assert padded[513] == 513
    times = step_times()
    assert times.decode[9] == times.decode[16] < times.decode[17]
    assert step_times(enforce_eager=True).decode[9] < times.decode[16]


def test_steps_with_prefill_last_at_least_as_long_as_their_launches() -> None:
    times = step_times()
    layers = load_model("llama-3.1-8b").num_hidden_layers
    known = constants_for(find_gpu("h100-sxm"))
    assert times.floor[513] == pytest.approx(layers * 0.9 * known.eager_layer_s)  # four multiplies a layer, not five
    assert times.floor[512] == pytest.approx(known.piecewise_eager_share * times.floor[513])
    assert step_times(enforce_eager=True).floor[1] == times.floor[513]
    assert step_times(gpu="b200-sxm").floor[513] > 1.5 * times.floor[513]
    assert step_times(gpu="b200-sxm", vllm_version="0.19.0").floor[513] == step_times(gpu="b200-sxm").floor[513]


def test_layers_of_more_multiplies_take_longer_to_launch() -> None:
    """Mixtral has attention with experts; DeepSeek's latent attention has three multiplies more, shared experts two."""
    plain, latent = (step_times(name, "b200-sxm", tensor_parallel_size=8) for name in ("mixtral-8x7b", "deepseek-v3"))
    layer_s = constants_for(find_gpu("b200-sxm")).eager_layer_s
    assert plain.floor[1025] == pytest.approx(load_model("mixtral-8x7b").num_hidden_layers * layer_s)
    dense_layers, layers = 3, load_model("deepseek-v3").num_hidden_layers
    assert latent.floor[1025] == pytest.approx((dense_layers * 1.2 + (layers - dense_layers) * 1.5) * layer_s)


def test_between_multiplies_a_rank_moves_what_its_own_multiplies_take_and_give() -> None:
    """Llama-3.1-70B: the hidden state enters and leaves on every rank, the rest is split; norms keep the residual."""

    def elements(tp: int) -> float:
        served = served_model(load_model("llama-3.1-70b"), find_gpu("h100-sxm"), tensor_parallel_size=tp)
        model = latency_model(served)
        moved_s = model.causes_by_tokens[ACTIVATIONS][1024] - model.causes_by_tokens[ACTIVATIONS][512]
        constants = constants_for(served.gpu)
        bytes_per_s = constants.gemm_bandwidth_share["bf16"] * served.gpu.memory_bandwidth_bytes_per_s
        return float(moved_s) * bytes_per_s / (512 * 80 * constants.activation_bytes_per_element)

    whole, hidden = 8192 * 4, 8192  # entering attention and MLP, leaving both
    split = 10240 + hidden + 2 * 28672 + 28672  # queries, keys, values; heads; gate and up; down
    for tp in (1, 2, 8):
        assert elements(tp) == pytest.approx(whole + split / tp + 4 * hidden, rel=1e-6)


def test_cuda_graphs_decide_what_a_step_launches() -> None:
    """Llama-3.1-8B, 32 layers: what is launched outside of graphs bounds a decode, and a short step with prefill."""

    def times(**given: Any) -> StepTimes:
        return step_times(compilation=Compilation(**given), gpu="h100-sxm")

    whole, launched = step_times(gpu="h100-sxm"), step_times(enforce_eager=True, gpu="h100-sxm")
    constants = constants_for(find_gpu("h100-sxm"))
    pieces, decodes, mixed = (times(cudagraph_mode=mode) for mode in ("PIECEWISE", "FULL_DECODE_ONLY", "FULL"))
    assert pieces.host_base_s == pytest.approx(32 * 0.9 * constants.piecewise_decode_layer_s)
    assert whole.host_base_s < pieces.host_base_s < launched.host_base_s
    assert whole.host_base_s == decodes.host_base_s == mixed.host_base_s
    assert (pieces.floor == whole.floor).all()
    assert decodes.floor[1] == whole.floor[513] == mixed.floor[513]
    assert mixed.floor[1] == 0.0
    assert times(cudagraph_mode="NONE").host_base_s == launched.host_base_s
    assert step_times(vllm_version="0.10.0", gpu="h100-sxm").host_base_s == pieces.host_base_s


def test_norms_over_the_ranks_take_kernels_and_a_sum() -> None:
    arch = load_model("minimax-m2.5")

    def times(version: str, *, whole: bool) -> StepTimes:
        model = replace(arch, qk_norm_whole_projection=whole)
        settings = {"tensor_parallel_size": 4, "max_num_batched_tokens": BUDGET, "max_num_seqs": SEQS}
        return physical_step_times(model, find_gpu("b200-sxm"), vllm_version=version, **settings)  # type: ignore[arg-type]

    rank = replace(lone_rank("b200_sxm"), parallelism=Parallelism(tensor_parallel_size=4))
    sum_s = float(all_reduce_s(rank, np.array([1.0]), 2)[0])
    for version, kernels in (("0.19.0", 3), ("0.32.0", 1)):  # fused into one since
        with_norm, without = (times(version, whole=whole) for whole in (True, False))
        layer_s = (kernels - 1) / 4 * rank.constants.glue_s + sum_s
        assert with_norm.decode[1] - without.decode[1] == pytest.approx(arch.num_hidden_layers * layer_s, rel=1e-3)
        assert with_norm.floor[-1] / without.floor[-1] == pytest.approx(1 + kernels / 10)


def test_norms_of_each_head_need_no_other_rank() -> None:
    arch = load_model("minimax-m2.5")
    settings: dict[str, Any] = {"tensor_parallel_size": 4, "max_num_batched_tokens": 64, "max_num_seqs": 8}
    cohere, none = (
        physical_step_times(replace(arch, **changes), find_gpu("b200-sxm"), **settings)
        for changes in ({"model_type": "cohere"}, {"qk_norm_whole_projection": False})
    )
    assert np.array_equal(cohere.floor, none.floor)
    assert cohere.decode[1] == pytest.approx(none.decode[1], rel=1e-3)


def test_kernels_of_a_decode_take_twice_as_long_to_launch_under_the_newer_runner() -> None:
    """Dense models have it from 0.25.1 on, mixtures from 0.29."""
    for model, last, first in (("llama-3.1-8b", "0.25.0", "0.25.1"), ("mixtral-8x7b", "0.28.0", "0.29.0")):
        before, since = (step_times(model, enforce_eager=True, vllm_version=each).host_base_s for each in (last, first))
        assert since == pytest.approx(2.1 * before)


def test_eager_decode_steps_are_launched_alike_on_every_gpu() -> None:
    """What prefill takes at least on B200 was measured on prefill alone."""
    eager = {gpu: step_times(gpu=gpu, enforce_eager=True) for gpu in ("h100-sxm", "b200-sxm")}
    assert eager["h100-sxm"].host_base_s == eager["b200-sxm"].host_base_s > step_times().host_base_s
    faster = replace(constants_for(find_gpu("h100-sxm")), eager_decode_layer_s=100e-6)  # as a profile may have it
    deployment = served_model(
        architecture=load_model("llama-3.1-8b"), gpu=find_gpu("h100-sxm"), max_num_batched_tokens=64, max_num_seqs=8,
        enforce_eager=True,
    )  # fmt: skip
    calibrated = latency_model(deployment, constants=faster).step_times
    assert calibrated.host_base_s < eager["h100-sxm"].host_base_s


@pytest.mark.parametrize("gpu", gpu_names())
def test_no_multiply_is_faster_than_the_gpu_can(gpu: str) -> None:
    """A share of the 16-bit peak may pass 1 where activations have 8 bits, as gpt-oss's on B200: not the 8-bit peak."""
    known, found = find_gpu(gpu), constants_for(find_gpu(gpu))
    peaks, has_fp8_kernels = known.flops_per_s, known.family == "blackwell" and known.interconnect == "nvlink"
    for weight_format, share in found.expert_compute_share.items():
        counted = peaks.get(weight_format, peaks.get("bf16", peaks["fp16"]))
        assert share * counted < (peaks["fp8"] if weight_format == "mxfp4" and has_fp8_kernels else counted)


def test_synchronous_scheduling_adds_the_host_to_the_gpu() -> None:
    waits, overlaps = step_times(async_scheduling=False), step_times()
    hidden = overlaps.host_base_s + 8 * overlaps.host_sequence_s
    assert decode_s(overlaps, 8, 4000) > hidden
    assert decode_s(waits, 8, 4000) == pytest.approx(decode_s(overlaps, 8, 4000) + hidden)


def test_expert_parallelism_costs_an_imbalance_over_tensor_parallelism() -> None:
    model, gpu = load_model("qwen3-30b-a3b"), find_gpu("h100-sxm")
    known = constants_for(gpu)
    by_bytes = replace(known, expert_read_s=dict.fromkeys(known.expert_read_s, 0.0))

    def decode(on: bool, constants: Constants) -> FloatArray:
        served = served_model(model, gpu, tensor_parallel_size=4, enable_expert_parallel=on)
        return latency_model(served, constants=constants).step_times.decode

    split, whole = (decode(on, by_bytes) for on in (False, True))
    few = slice(1, 65)
    assert (whole[few] >= split[few]).all()
    assert (whole[few] < 1.16 * split[few]).all()
    # A rank with whole experts begins a quarter as many; the fullest, which the others wait for, somewhat more.
    begun, begun_whole = decode(False, known)[few] - split[few], decode(True, known)[few] - whole[few]
    assert (begun > 2 * begun_whole).all() and (begun[4:] > 3 * begun_whole[4:]).all()
    # A rank with whole experts moves the tokens that chose one of them; one with a slice of each, all.
    assert whole[-1] < split[-1]


@pytest.mark.parametrize("gpu", gpu_names())
def test_every_gpu_of_the_catalog_has_constants_with_sources(gpu: str) -> None:
    constants = constants_for(find_gpu(gpu))
    assert all(value and source for value, source in constants.sources.values())
    assert not any(word in source for _, source in constants.sources.values() for word in ("RUNS", "TABLES", "REPLAYS"))
    found = json.loads(MEASURED.read_text(encoding="utf-8"))["held-out"]["intervals"]  # docs/measurements/intervals.md
    least_percent = min(kind["tpot_half_width"] for kind in found.values())
    assert 100 * constants.tpot_log_error.half_width >= least_percent - 0.01  # the page rounds


@given(
    model=st.sampled_from(["llama-3.1-8b", "gemma-3-12b-it"]), factor=st.floats(0.3, 3.0),
    tokens=st.integers(1, BUDGET), sequences=st.integers(1, SEQS), context=st.integers(1, 8000), eager=st.booleans(),
    in_step=st.booleans(),
)  # fmt: skip
@settings(max_examples=30)
def test_steps_so_many_times_as_long_are_that_whatever_they_hold(
    *, factor: float, model: str, tokens: int, sequences: int, context: int, eager: bool, in_step: bool
) -> None:
    times = replace(step_times(model, enforce_eager=eager, async_scheduling=in_step), cold_start_s=1.0)
    longer = times.times(factor)
    assert decode_s(longer, sequences, context) == pytest.approx(factor * decode_s(times, sequences, context))
    assert prefill_s(longer, tokens, context) == pytest.approx(factor * prefill_s(times, tokens, context))
    kept = ("window", "ingress_request_s", "ingress_token_s", "ingress_s", "cold_start_s")
    assert [getattr(longer, name) for name in kept] == [getattr(times, name) for name in kept]
    all_tokens = np.arange(1000.0)
    assert longer.shared(all_tokens) == pytest.approx(factor * times.shared(all_tokens))


def test_a_gpu_without_measurements_says_so_with_wider_errors() -> None:
    unmeasured, measured = constants_for(find_gpu("mi300x")), constants_for(find_gpu("h100-sxm"))
    assert measured.is_measured and not unmeasured.is_measured
    assert unmeasured.tpot_log_error.total > measured.tpot_log_error.total


def test_every_constants_file_is_reachable() -> None:
    files = {path.stem for path in FOLDER.glob("*.toml")}
    used = {constants_for(find_gpu(name)).name for name in gpu_names()}
    assert files - used <= {"generic"}


def test_a_pipeline_s_step_is_its_way_through_all_stages() -> None:
    """80 layers over 2 or 4 stages: every layer once, a message between stages, what the host does at each."""
    arch, gpu = load_model("llama-3.1-70b"), find_gpu("h100-sxm")
    settings: dict[str, Any] = {"tensor_parallel_size": 4, "max_num_batched_tokens": 2048, "max_num_seqs": 64}
    one, two, four = (physical_step_times(arch, gpu, pipeline_parallel_size=stages, **settings) for stages in (1, 2, 4))
    message_s, handed_s = two.decode[64] - one.decode[64], four.decode[64] - one.decode[64]
    assert 0 < handed_s == pytest.approx(3 * message_s)
    assert handed_s < 0.05 * one.decode[64]
    assert two.context_s == pytest.approx(one.context_s)
    assert two.sampling.tolist() == one.sampling.tolist()
    assert (two.host_base_s, two.gap_s) == pytest.approx((2 * one.host_base_s, 2 * one.gap_s))


def test_the_longest_stage_sets_the_pace() -> None:
    """Over 3 stages, 32 layers go as 33 would: 11 in the longest stage."""
    arch, gpu = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
    settings: dict[str, Any] = {"max_num_batched_tokens": 2048, "max_num_seqs": 64}
    even, odd = (physical_step_times(arch, gpu, pipeline_parallel_size=stages, **settings) for stages in (2, 3))
    assert odd.context_s / even.context_s == pytest.approx(33 / 32)
    assert odd.prefill_s / even.prefill_s == pytest.approx(33 / 32)


def test_no_pipeline_was_measured_and_the_error_says_so() -> None:
    one, two = (
        latency_model(served_model(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), pipeline_parallel_size=stages))
        for stages in (1, 2)
    )
    assert two.tpot_log_error.half_width > one.tpot_log_error.half_width
    assert any(name == "pipeline stages" for name, _, _ in two.assumptions)
    assert not any(name == "pipeline stages" for name, _, _ in one.assumptions)


def test_top_p_sorts_the_vocabulary_only_in_older_releases() -> None:
    """As long for each sequence as PyTorch takes to sort its logits, 0.13 to 0.15 ns for each; nothing since 0.17."""

    def sampling_s(vllm_version: str, top_p: bool) -> float:
        times = step_times("qwen3-32b", tensor_parallel_size=2, vllm_version=vllm_version, top_p_sampling=top_p)
        return float(times.sampling[128])

    more_s = sampling_s("0.12.0", True) - sampling_s("0.12.0", False)
    assert 0.13e-9 < more_s / (128 * 151_936) < 0.15e-9
    assert sampling_s("0.17.0", True) == sampling_s("0.17.0", False)
