"""`--mamba-ssm-cache-dtype`: what states are kept in."""

import pytest

from files.errors import HeadcountError
from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.architecture import with_state_dtype
from simulator.deployment import Deployment, resolve


def deployed(model: str, gpu: str, dtype: str, **given: object) -> Deployment:
    return resolve(model, gpu, mamba_ssm_cache_dtype=dtype, **given)


def test_half_the_bytes_of_a_state_are_twice_as_many_blocks_and_faster_steps() -> None:
    whole, half = (
        deployed("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h200-sxm", each) for each in ("auto", "float16")
    )
    assert whole.architecture.state_space is not None and whole.architecture.state_space.state_dtype == "float32"
    assert half.budget.num_gpu_blocks == pytest.approx(2 * whole.budget.num_gpu_blocks, rel=0.05)
    assert half.budget.block_size == pytest.approx(whole.budget.block_size / 2, rel=0.05)
    assert half.latency.step_times.decode[64] <= whole.latency.step_times.decode[64]
    named = deployed("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h200-sxm", "float32")
    assert named.budget.num_gpu_blocks == whole.budget.num_gpu_blocks


def test_a_model_without_states_does_not_change() -> None:
    gpu = find_gpu("h100-sxm")
    assert resolve("llama-3.1-8b", gpu, mamba_ssm_cache_dtype="float16").budget == resolve("llama-3.1-8b", gpu).budget


def test_a_dtype_that_a_model_s_layers_do_not_have_is_refused() -> None:
    with pytest.raises(HeadcountError, match="no mamba_ssm_cache_dtype 'float8'; allowed: auto, float32"):
        with_state_dtype(load_model("llama-3.1-8b"), "float8")
    kimi = load_model("moonshotai/Kimi-K3")
    state = with_state_dtype(kimi, "bfloat16").state_space
    assert state is not None and state.state_dtype == "bfloat16"
    with pytest.raises(HeadcountError, match="is float32 or bfloat16; leave --mamba-ssm-cache-dtype out"):
        with_state_dtype(kimi, "float16")
