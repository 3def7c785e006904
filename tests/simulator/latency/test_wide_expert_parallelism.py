"""Experts that data-parallel ranks share over nodes: how tokens reach them, how evenly they fall."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvcache.memory.all_to_all import buffers_bytes
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.expert_args import DEEPEP_HIGH_THROUGHPUT, DEEPEP_LOW_LATENCY
from simulator.latency.all_to_all import deepep_s, moved
from simulator.latency.expert_balance import pack, replicate
from simulator.latency.forms.physical import latency_model, rank_of
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import COMMUNICATION, AverageStep, LatencyModel, breakdown, served_model
from simulator.latency.shared_experts import exchange_s
from simulator.latency.terms import all_reduce_s

MODEL = load_model("deepseek-ai/DeepSeek-R1")
assert MODEL.experts is not None
MIXTURE = MODEL.experts
# Microseconds there and back for 128 tokens of 7,168 elements on each rank, by ranks: DeepEP, docs/legacy.md.
DEEPEP_US = {16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369), 256: (194, 360)}


def served(gpu: str = "h200", **settings: Any) -> Any:
    args = EngineArgs(enable_expert_parallel=True, max_model_len=8192, **settings)
    return served_model(MODEL, find_gpu(gpu), args)


def model_of(gpu: str = "h200", **settings: Any) -> LatencyModel:
    return latency_model(served(gpu, **settings))


def decode_s(batch: int = 128, **settings: Any) -> dict[str, float]:
    step = AverageStep(tokens=batch, sequences=batch, sampled=batch, decode_context=3000.0 * batch)
    return breakdown(model_of(**settings), step)


@pytest.mark.parametrize("ranks", DEEPEP_US)
def test_low_latency_between_nodes_takes_what_deepep_published(ranks: int) -> None:
    ways = Parallelism(data_parallel_size=ranks, enable_expert_parallel=True)
    tokens = np.array([128.0 * ranks])
    (found_s,) = deepep_s(find_gpu("h800"), ways, MIXTURE, tokens, of=moved(7168, "fp8"), backend=DEEPEP_LOW_LATENCY)
    assert found_s * 1e6 == pytest.approx(sum(DEEPEP_US[ranks]), rel=0.1)


def test_ranks_that_nvlink_joins_exchange_tokens_as_ever() -> None:
    rank = rank_of(served(data_parallel_size=8), constants_for(find_gpu("h200")))
    tokens = np.arange(0.0, 20_000, 100)
    found_s = exchange_s(rank, tokens, MIXTURE, "fp8")
    assert (found_s == all_reduce_s(rank, tokens, MODEL.hidden_size, ranks=8)).all()


def test_a_rack_of_nvlink_beats_nodes_of_eight() -> None:
    within = decode_s(gpu="gb200", data_parallel_size=64, all2all_backend=DEEPEP_LOW_LATENCY)[COMMUNICATION]
    between = decode_s(gpu="b200", data_parallel_size=64, all2all_backend=DEEPEP_LOW_LATENCY)[COMMUNICATION]
    assert within < 0.75 * between


def test_low_latency_is_for_small_steps_and_high_throughput_for_prompts() -> None:
    low, high = (model_of(data_parallel_size=8, all2all_backend=name, max_num_batched_tokens=8192).step_times.shared
                 for name in (DEEPEP_LOW_LATENCY, DEEPEP_HIGH_THROUGHPUT))  # fmt: skip
    few, many = np.array([8.0 * 32]), np.array([8.0 * 8192])
    assert low(few) < high(few)
    assert low(many) > high(many)


def test_a_step_never_gets_shorter_with_more_tokens() -> None:
    for backend in (DEEPEP_LOW_LATENCY, DEEPEP_HIGH_THROUGHPUT):
        for ranks in (8, 32):
            times = model_of(data_parallel_size=ranks, all2all_backend=backend, max_num_batched_tokens=512).step_times
            shared = times.shared(np.arange(0.0, 512.0 * ranks, ranks))
            assert (np.diff(shared) >= -1e-12).all()


def test_balanced_experts_take_less_time_and_more_memory() -> None:
    plain = {"data_parallel_size": 72, "all2all_backend": DEEPEP_LOW_LATENCY}
    balanced = plain | {"enable_eplb": True, "eplb_config": {"num_redundant_experts": 32}}
    assert sum(decode_s(256, **balanced).values()) < 0.85 * sum(decode_s(256, **plain).values())
    ranks = [rank_of(served(**settings), constants_for(find_gpu("h200"))) for settings in (plain, balanced)]
    assert [rank.parallelism.experts_per_rank(256) for rank in ranks] == [4, 4]
    more = replace(ranks[0].parallelism, num_redundant_experts=104)
    assert more.experts_per_rank(256) == 5


def test_the_busiest_experts_are_repeated_and_every_rank_gets_as_many() -> None:
    physical, replicas = replicate(np.array([8.0, 1.0, 1.0, 2.0]), 2)
    assert physical.tolist() == [0, 1, 2, 3, 0, 0]
    assert replicas.tolist() == [3, 1, 1, 1]
    ranks = pack(np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.5]), 3)
    assert sorted(ranks.tolist()) == [0, 0, 1, 1, 2, 2]
    assert ranks[:3].tolist() == [0, 1, 2]


def test_what_was_not_measured_is_said() -> None:
    rows = {name: value for name, value, _ in model_of(data_parallel_size=16, all2all_backend="nixl_ep").assumptions}
    assert rows["all-to-all backend"] == "nixl_ep: not measured"
    assert "a 400 Gb/s card for each" in rows["all-to-all"]
    assert "all-to-all" not in {name for name, _, _ in model_of(data_parallel_size=8).assumptions}
    wide = model_of(data_parallel_size=16).tpot_log_error.half_width
    assert wide > model_of(data_parallel_size=8).tpot_log_error.half_width


def test_buffers_of_deepep_are_those_of_its_own_source() -> None:
    """16 + 2 · 7,168 bytes there, 4 · 56 more back, for 256 tokens and experts: twice each way, beside 1 GiB."""
    ways = Parallelism(data_parallel_size=32, enable_expert_parallel=True)
    found = buffers_bytes("low latency", MODEL, ways, find_gpu("h200"), max_num_batched_tokens=256)
    assert found == 2**30 + 2 * 2 * 256 * 256 * (2 * 7168 + 4 * 56)
    assert buffers_bytes("high throughput", MODEL, ways, find_gpu("h200"), max_num_batched_tokens=256) == 2**31
    assert buffers_bytes("high throughput", MODEL, ways, find_gpu("gb200"), max_num_batched_tokens=256) == 2**30
    assert buffers_bytes("", MODEL, ways, find_gpu("h200"), max_num_batched_tokens=256) == 0
