"""What all-reduces take: by the message, the ranks, their link and the release."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.errors import HeadcountError
from kvcache.models.catalog import find_gpu, load_model
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.compilation import Compilation
from simulator.latency.forms import latency_model
from simulator.latency.forms.physical import rank_of
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import served_model
from simulator.latency.terms import all_reduce_s
from validation.constants.kernel_tables.rows import lone_rank


@pytest.mark.parametrize(("gpu", "link"), [("h100_sxm", "nvlink"), ("l40s", "pcie")])
def test_all_reduces_grow_with_the_ranks_as_their_link_does(gpu: str, link: str) -> None:
    rank = lone_rank(gpu)
    small, large = np.array([2048.0]), np.array([4096.0])  # beyond what any kernel does in one stage
    bulk_s = {
        ranks: float((all_reduce_s(rank, large, 4096, ranks=ranks) - all_reduce_s(rank, small, 4096, ranks=ranks))[0])
        for ranks in (2, 4, 8)
    }
    power = rank.constants.all_reduce_rank_exponent[link]
    assert bulk_s[4] / bulk_s[2] == pytest.approx(1.5**power)
    assert bulk_s[8] / bulk_s[2] == pytest.approx(1.75**power)


def test_an_all_reduce_reads_all_ranks_messages_whole_while_they_are_small() -> None:
    rank, width = lone_rank("b200_sxm"), 8192
    constants, link_bytes_per_s = rank.constants, rank.gpu.interconnect_bytes_per_s
    tokens = np.array([1.0, 15.0, 16.0])  # 8 ranks: one stage below 256 KiB, 16 tokens of 16 KiB
    one, most, above = all_reduce_s(rank, tokens, width, ranks=8)
    share = constants.all_reduce_one_stage_share["nvlink"]
    assert most - one == pytest.approx(7 * 14 * 2 * width / (share * link_bytes_per_s))
    assert above - most > 0.5 * constants.all_reduce_second_stage_s["nvlink"]
    fused = all_reduce_s(rank, tokens, width, ranks=8, fused=True)  # up to 1 MiB
    assert fused[:2] == pytest.approx([one, most])
    assert most < fused[2] < above


@pytest.mark.parametrize(("ranks", "tokens", "beside_us"), [(8, 32, 4), (8, 15, 0), (4, 64, 0), (2, 512, 0)])
def test_before_0_11_eight_gpus_add_up_larger_messages_without_the_switch(
    ranks: int, tokens: int, beside_us: float
) -> None:
    """Kernel tables on eight H100, 512 KiB: 15.6 µs without symmetric memory (vLLM 0.14 there), 11.9 with (0.19)."""
    rank, width = lone_rank("h100_sxm"), 8192
    older = replace(rank, served=replace(rank.served, args=replace(rank.args, vllm_version="0.10.2")))
    before_s, since_s = (all_reduce_s(each, np.array([float(tokens)]), width, ranks=ranks) for each in (older, rank))
    assert 1e6 * (before_s - since_s) == pytest.approx([beside_us])


@given(
    tokens=st.tuples(st.integers(1, 8192), st.integers(1, 8192)).map(sorted),
    width=st.sampled_from([2, 2880, 8192]),
    ranks=st.sampled_from([2, 4, 6, 8, 16]),
    fused=st.booleans(),
    gpu=st.sampled_from(["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s"]),
)
def test_a_longer_message_is_never_reduced_sooner(
    tokens: list[int], width: int, ranks: int, *, fused: bool, gpu: str
) -> None:
    counts = np.array(tokens, dtype=np.float64)
    shorter, longer = all_reduce_s(lone_rank(gpu), counts, width, ranks=ranks, fused=fused)
    assert 0 < shorter <= longer


def test_all_reduces_are_fused_with_norms_as_the_release_does_unless_told() -> None:
    def fuses(gpu: str, **given: Any) -> bool:
        return EngineArgs(**given).fuses_all_reduces(find_gpu(gpu))

    assert [fuses("h100-sxm", vllm_version=version) for version in ("0.16.0", "0.17.0")] == [False, True]
    assert [fuses("b300-sxm", vllm_version=version) for version in ("0.17.0", "0.19.0")] == [False, True]
    assert fuses("b200-sxm", vllm_version="0.11.0", compilation=Compilation(fuse_allreduce_rms=True))
    assert not fuses("h100-sxm", compilation=Compilation(fuse_allreduce_rms=False))
    assert not fuses("a100-80gb")


def test_all_reduces_over_pcie_say_that_they_are_those_of_l40s() -> None:
    for gpu, is_said in (("rtx-pro-6000", True), ("l40s", False), ("h100-sxm", False)):
        deployment = served_model(
            architecture=load_model("llama-3.1-8b"), gpu=find_gpu(gpu), tensor_parallel_size=2,
            max_num_batched_tokens=64, max_num_seqs=8,
        )  # fmt: skip
        assert any(row[0] == "all-reduces over PCIe" for row in latency_model(deployment).assumptions) is is_said


def test_cards_that_reach_each_other_over_pcie_sum_faster_and_as_a_ring_moves() -> None:
    """Two A100 PCIe without it: 256 tokens of Qwen2.5-7B, 1.8 MB, took about 0.4 ms (vLLM 0.10.1, TP 2 over TP 1)."""

    def reduced_s(*environment: str, ranks: int) -> float:
        served = served_model(
            load_model("qwen2.5-7b"),
            find_gpu("a100-pcie-80gb"),
            EngineArgs(environment=environment, max_model_len=4096),
        )
        rank = replace(lone_rank("a100_sxm"), served=served)
        return float(all_reduce_s(rank, np.array([256.0]), 3584, ranks=ranks)[0])

    untold, host = reduced_s(ranks=2), reduced_s("NCCL_P2P_DISABLE=1", ranks=2)
    assert untold == pytest.approx(host, rel=0.02)
    assert host == pytest.approx(0.4e-3, rel=0.3)
    for level, is_peer in (("SYS", True), ("phb", True), ("NVL", False), ("LOC", False)):
        found = reduced_s(f"NCCL_P2P_LEVEL={level}", ranks=2)
        assert found == (pytest.approx(reduced_s("NCCL_P2P_LEVEL=PIX", ranks=2)) if is_peer else pytest.approx(host))
    peers = [reduced_s("NCCL_P2P_LEVEL=SYS", ranks=ranks) for ranks in (2, 4)]
    assert peers[0] < host / 3
    assert peers[1] < 1.7 * peers[0]
    assert reduced_s("NCCL_P2P_DISABLE=1", ranks=4) > 2 * host


def summed_s(interconnect: str | None, *environment: str, gpu: str = "a100-pcie-80gb", ranks: int = 2) -> float:
    """One sum of a whole step of 2,048 tokens, 14.7 MB."""
    args = EngineArgs(environment=environment, interconnect=interconnect, max_model_len=4096)
    rank = rank_of(served_model(load_model("qwen2.5-7b"), find_gpu(gpu), args), constants_for(find_gpu(gpu)))
    return float(all_reduce_s(rank, np.array([2048.0]), 3584, ranks=ranks)[0])


def test_a_servers_own_link_says_lanes_and_whether_cards_reach_each_other() -> None:
    assert summed_s("pcie4x16-host") == pytest.approx(summed_s(None, "NCCL_P2P_DISABLE=1"))
    assert summed_s("pcie4x16-p2p") == pytest.approx(summed_s(None, "NCCL_P2P_LEVEL=SYS"), rel=0.03)
    assert summed_s("pcie4x16") == pytest.approx(summed_s(None), rel=0.03)  # as usual for the card, which has 16 lanes
    assert summed_s("PCIe4x16-p2p", "NCCL_P2P_DISABLE=1") == summed_s("pcie4x16-p2p")  # what is said of the server


@pytest.mark.parametrize("gpu", ["a10", "l40s", "rtx-3090", "rtx-5090"])
@pytest.mark.parametrize("access", ["", "-p2p", "-host"])
def test_fewer_or_older_lanes_never_sum_faster(gpu: str, access: str) -> None:
    links = ["pcie5x16", "pcie4x16", "pcie4x8", "pcie4x4", "pcie3x4", "pcie3x1"]
    found = [summed_s(f"{link}{access}", gpu=gpu, ranks=4) for link in links]
    assert found == sorted(found)
    assert found[-1] > 3 * found[0]


@pytest.mark.parametrize("interconnect", ["pcie4", "pcie2x16", "pcie4x5", "pcie4x16-nvlink", "nvlink", ""])
def test_a_link_that_is_no_pcie_is_refused(interconnect: str) -> None:
    with pytest.raises(HeadcountError, match="such as pcie4x16; with -p2p"):
        EngineArgs(interconnect=interconnect)


def test_pcie_is_refused_for_gpus_that_nvlink_links() -> None:
    with pytest.raises(HeadcountError, match="h100-sxm is linked by NVLink; leave it out"):
        summed_s("pcie5x16", gpu="h100-sxm")
