"""The kernel of a mixture's experts is the one that was asked for, or that the release picks."""

import numpy as np
import pytest

from kvcache.gpus.gpu import find_gpu
from simulator.deployment import resolve
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.defaults import MOE_BACKENDS
from simulator.latency import expert_kernels
from simulator.latency.expert_kernels import Kernels
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import LatencyModel
from tests.simulator.latency.physical_times import decode_s


def latency(moe_backend: str = "auto", *, model: str = "gpt-oss-20b", vllm_version: str = "0.32.0") -> LatencyModel:
    return resolve(model, "h100-sxm", max_model_len=4096, moe_backend=moe_backend, vllm_version=vllm_version).latency


def kernel(model: LatencyModel) -> str | None:
    return next((value for name, value, _ in model.assumptions if name == "expert kernel"), None)


def test_mxfp4_on_hopper_is_triton_from_the_measured_tables_on_and_was_marlin_in_the_runs() -> None:
    assert kernel(latency()) == "triton"
    assert kernel(latency(vllm_version="0.19.0")) == "marlin"
    assert kernel(latency("marlin")) == "marlin"


def test_the_variable_that_forces_marlin_is_heeded_where_nothing_else_is_asked_for() -> None:
    forced = EngineArgs(environment=("VLLM_MXFP4_USE_MARLIN=1",), max_model_len=4096)
    assert kernel(resolve("gpt-oss-20b", "h100-sxm", forced).latency) == "marlin"
    assert kernel(resolve("gpt-oss-20b", "h100-sxm", forced, moe_backend="triton").latency) == "triton"
    assert forced.ignored_environment == ()


def test_gpt_oss_on_blackwell_had_triton_s_experts_until_0_11_unless_told_otherwise() -> None:
    """Published runs on one B200, 1,000 to about 930 tokens, vLLM 0.10.1: 4.8 ms with one client, 12.0 ms with 32."""

    def on_b200(version: str, *environment: str) -> LatencyModel:
        asked = EngineArgs(environment=environment, max_model_len=4096, vllm_version=version)
        return resolve("gpt-oss-20b", "b200-sxm", asked).latency

    told = "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1"
    assert [kernel(on_b200("0.10.1")), kernel(on_b200("0.11.0"))] == ["triton", "flashinfer_trtllm"]
    assert kernel(on_b200("0.10.1", told)) == "flashinfer_trtllm"
    for sequences, tpot_s in ((1, 4.8e-3), (32, 12.0e-3)):
        assert decode_s(on_b200("0.10.1").step_times, sequences, 1465) == pytest.approx(tpot_s, rel=0.2)


def test_what_is_asked_for_is_as_fast_as_where_it_is_picked() -> None:
    picked, asked, older = latency(), latency("triton"), latency("marlin")
    np.testing.assert_array_equal(picked.step_times.decode, asked.step_times.decode)
    # By the tables it computes faster, while Marlin does more of that beside reading.
    assert picked.step_times.decode[1] == pytest.approx(older.step_times.decode[1], rel=0.03)
    assert (picked.step_times.decode[512:] < older.step_times.decode[512:]).all()


def test_times_from_kernel_tables_alone_are_less_certain_than_those_of_runs() -> None:
    assert latency("triton").tpot_log_error.half_width > latency("marlin").tpot_log_error.half_width


def test_triton_s_experts_in_fp8_are_slower_on_b200_than_those_that_vllm_picks_and_less_certain() -> None:
    def on_b200(moe_backend: str) -> LatencyModel:
        return resolve("minimax-m2.5", "b200-sxm", tensor_parallel_size=4, moe_backend=moe_backend).latency

    triton, picked = on_b200("triton"), on_b200("auto")
    # At a few tokens it starts sooner; from then on it reads and computes at less of the peaks.
    assert (triton.step_times.prefill[8:] > picked.step_times.prefill[8:]).all()
    assert triton.tpot_log_error.half_width > picked.tpot_log_error.half_width
    assert not triton.unmeasured


def test_a_kernel_without_measurement_is_said_to_be_one() -> None:
    found, usual = latency("deep_gemm", model="qwen3-30b-a3b-fp8"), latency(model="qwen3-30b-a3b-fp8")
    assert found.unmeasured == ("experts by deep_gemm",)
    assert kernel(found) == "deep_gemm, taken to be as fast as flashinfer_cutlass or triton"
    np.testing.assert_array_equal(found.step_times.decode, usual.step_times.decode)
    assert not latency("triton", model="qwen3-30b-a3b-fp8").unmeasured


def test_a_model_without_experts_does_not_ask_for_their_kernel() -> None:
    found, usual = latency("deep_gemm", model="qwen2.5-3b"), latency(model="qwen2.5-3b")
    assert found.unmeasured == usual.unmeasured == ()
    np.testing.assert_array_equal(found.step_times.decode, usual.step_times.decode)


def test_names_are_read_as_vllm_reads_them_and_others_refused() -> None:
    assert EngineArgs(moe_backend="FlashInfer-CUTLASS").moe_backend == "flashinfer_cutlass"
    with pytest.raises(ValueError, match="no moe_backend 'tritn'; did you mean 'triton'"):
        EngineArgs(moe_backend="tritn")


def test_every_entry_names_kernels_that_vllm_has_and_constants_that_exist() -> None:
    for group, formats in expert_kernels._tables().items():
        for weight_format, entry in formats.items():
            kernels = Kernels(**entry)
            named = {*kernels.shipped, *kernels.others, *([kernels.picked["kernel"]] if kernels.picked else ())}
            assert named <= set(MOE_BACKENDS), (group, weight_format)
            assert kernels.source.strip()
            for other in kernels.others.values():
                assert other["source"].strip()
                names = set(other) - {"source"}
                assert all(isinstance(getattr(constants_for(find_gpu("h100-sxm")), name), dict) for name in names)
