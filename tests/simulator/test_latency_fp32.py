"""What multiplies in 32 bits cost: routers that some models keep in fp32."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.constants.kernel_tables.rows import lone_rank
from kvcache.shape.tensors import Tensor
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank, gemm
from tests.simulator.physical_times import step_times

TF32 = ("VLLM_FLOAT32_MATMUL_PRECISION=high",)
# Tokens: µs of [tokens, 6144] by [6144, 256] on GB200 in fp32, as TF32 (vLLM's pull request 47973). Other kernels
# multiply 1 and 2 tokens (7.5 and 71.8 µs in fp32, 10.9 and 19.6 as TF32), which is not modelled.
PUBLISHED = {4: (20.2, 12.0), 8: (16.7, 12.0), 16: (22.3, 12.2), 32: (63.2, 19.9), 48: (63.4, 20.0), 64: (63.3, 20.1),
             96: (64.1, 20.2), 128: (69.3, 20.2), 256: (77.8, 22.6), 512: (96.8, 25.8), 1024: (111, 32.8)}  # fmt: skip


def rank_with(gpu: str = "b200_sxm", **given: Any) -> Rank:
    rank = lone_rank(gpu)
    return replace(rank, served=replace(rank.served, args=replace(rank.served.args, **given)))


def router_s(rank: Rank, tokens: list[int], *, experts: int = 256, hidden: int = 6144, size: int = 4) -> FloatArray:
    tensor = Tensor("router", experts, hidden, element_bytes=size)
    return np.asarray(sum(gemm(rank, np.array(tokens, dtype=float), tensor).values()))


@pytest.mark.parametrize("place", [0, 1])
def test_a_router_in_fp32_takes_what_was_published(place: int) -> None:
    found = router_s(rank_with(environment=TF32 if place else ()), list(PUBLISHED))
    assert 1e6 * found == pytest.approx([both[place] for both in PUBLISHED.values()], rel=0.26)


def test_many_tokens_go_at_the_speed_of_cuda_cores() -> None:
    """GB300, [16384, 6144] by [6144, 128]: 439 µs (vLLM's pull request 55899)."""
    assert router_s(rank_with(), [16384], experts=128)[0] == pytest.approx(439e-6, rel=0.25)
    half, whole = (router_s(rank_with("h100_sxm"), [8192], size=size)[0] for size in (0, 4))
    assert whole > 5 * half


def test_tf32_takes_no_longer_but_for_a_single_token() -> None:
    counts = list(range(2, 2049, 7))
    for gpu in ("b200_sxm", "h100_sxm", "a100_sxm"):
        rounded, exact = (router_s(rank_with(gpu, environment=names), counts) for names in (TF32, ()))
        assert (rounded < exact).all()
    assert EngineArgs(environment=TF32).ignored_environment == ()
    assert EngineArgs(environment=(TF32[0].replace("high", "HIGH"),)).allows_tf32


def test_few_tokens_have_a_kernel_of_their_own_in_later_releases() -> None:
    """It takes 6 µs for 32 tokens, and is there for MiniMax's shapes only."""
    before, since = (rank_with(vllm_version=release) for release in ("0.22.0", "0.23.0"))
    shape = {"hidden": 3072, "experts": 256}
    assert (router_s(since, [1, 32], **shape) < 8e-6).all()
    assert (router_s(before, [1, 32], **shape) > router_s(since, [1, 32], **shape)).all()
    assert router_s(before, [33], **shape)[0] == router_s(since, [33], **shape)[0]
    assert router_s(before, [32])[0] == router_s(since, [32])[0]


def test_only_models_with_such_a_router_gain_from_tf32() -> None:
    for model, gains in (("minimax-m2.5", True), ("qwen3-30b-a3b", False)):
        options: dict[str, Any] = {"gpu": "b200-sxm", "tensor_parallel_size": 4, "vllm_version": "0.19.0"}
        exact, rounded = (step_times(model, **options, environment=names).decode[128] for names in ((), TF32))
        assert (rounded < exact) == gains
