"""What multiplies in 32 bits cost: routers that some models keep in fp32."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvcache.shape.tensors import Tensor
from simulator.engines.vllm.arguments import EngineArgs
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank, gemm
from tests.simulator.latency.physical_times import step_times
from validation.constants.kernel_tables.rows import lone_rank

TF32 = ("VLLM_FLOAT32_MATMUL_PRECISION=high",)
# Tokens: µs of [tokens, 6144] by [6144, 256] on GB200 in fp32, as TF32 (vLLM's pull request 47973). Other kernels
# multiply 1 and 2 tokens (7.5 and 71.8 µs in fp32, 10.9 and 19.6 as TF32), which is not modelled.
PUBLISHED = {4: (20.2, 12.0), 8: (16.7, 12.0), 16: (22.3, 12.2), 32: (63.2, 19.9), 48: (63.4, 20.0), 64: (63.3, 20.1),
             96: (64.1, 20.2), 128: (69.3, 20.2), 256: (77.8, 22.6), 512: (96.8, 25.8), 1024: (111, 32.8)}  # fmt: skip
# Columns, rows: tokens: µs in fp32, as TF32, in vLLM's own kernel. One H200, torch 2.11.0 (CUDA 13.0), fifty multiplies
# in a CUDA graph, 2026-11-27; [tokens, columns] in 32 bits, without the conversion.
TIMED = {
    (2048, 128): {24: (7.8, 5.8), 64: (8.2, 6.8), 128: (8.5, 7.0), 512: (14.9, 8.4), 2048: (34.7, 10.1)},
    (3072, 256): {16: (14.0, 6.7, 3.4), 24: (11.5, 6.7, 4.2), 32: (11.7, 6.8, 6.6), 64: (12.5, 6.8), 128: (14.8, 7.5),
                  512: (28.7, 11.3), 2048: (76.6, 18.4), 8192: (261, 38.3)},
    (6144, 128): {16: (12.6, 6.9, 4.1), 32: (12.0, 7.3, 7.7), 64: (12.9, 7.4), 128: (16.4, 7.8), 512: (33.3, 11.4),
                  2048: (79.5, 26.7)},
    (6144, 256): {8: (16.3, 8.2), 32: (15.2, 8.7), 128: (21.5, 9.3), 512: (47.9, 15.9), 2048: (139, 35.7),
                  8192: (512, 79.6)},
    (7168, 256): {8: (17.2, 8.5), 32: (16.9, 8.8), 128: (24.3, 9.7), 512: (61.3, 17.4), 2048: (160, 39.7)},
}  # fmt: skip


def rank_with(gpu: str = "b200_sxm", **given: Any) -> Rank:
    rank = lone_rank(gpu)
    return replace(rank, served=replace(rank.served, args=replace(rank.served.args, **given)))


def router_s(rank: Rank, tokens: list[int], *, experts: int = 256, hidden: int = 6144, size: int = 4) -> FloatArray:
    tensor = Tensor("router", experts, hidden, element_bytes=size)
    return np.asarray(sum(gemm(rank, np.array(tokens, dtype=float), tensor).values()))


@pytest.mark.parametrize("place", [0, 1])
def test_a_router_in_fp32_takes_what_was_published(place: int) -> None:
    found = router_s(rank_with(environment=TF32 if place else ()), list(PUBLISHED))
    ratios = 1e6 * found / [both[place] for both in PUBLISHED.values()]
    assert np.median(ratios) == pytest.approx(1, abs=0.1)
    assert list(ratios) == pytest.approx([1] * len(ratios), abs=0.26)


@pytest.mark.parametrize("place", [0, 1])
def test_a_router_in_fp32_takes_what_an_h200_was_timed_at(place: int) -> None:
    rank, ratios = rank_with("h200_sxm", vllm_version="0.22.0", environment=TF32 if place else ()), []
    for (hidden, experts), timed in TIMED.items():
        found = 1e6 * router_s(rank, list(timed), hidden=hidden, experts=experts)
        ratios += list(found / [times[place] for times in timed.values()])
    assert np.median(ratios) == pytest.approx(1, abs=0.1)
    assert ratios == pytest.approx([1] * len(ratios), abs=0.42)


def test_many_tokens_go_at_the_speed_of_cuda_cores() -> None:
    """GB300, [16384, 6144] by [6144, 128]: 439 µs (vLLM's pull request 55899)."""
    assert router_s(rank_with(), [16384], experts=128)[0] == pytest.approx(439e-6, rel=0.15)
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
    """It is there for MiniMax's shapes only."""
    for (hidden, experts), timed in TIMED.items():
        own = {tokens: times[2] for tokens, times in timed.items() if len(times) == 3}
        found = 1e6 * router_s(rank_with("h200_sxm", vllm_version="0.26.0"), list(own), hidden=hidden, experts=experts)
        assert np.abs(found - list(own.values())).max(initial=0) < 3
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
