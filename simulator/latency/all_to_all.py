"""How long ranks take to send tokens to their experts, and to bring back what these make of them."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from files.documents import Json
from kvcache.gpus.gpu import GPU
from kvcache.memory.kv_store import NIC_BYTES_PER_S
from kvcache.parallelism import Parallelism
from kvcache.shape.layer import Experts
from simulator.engines.vllm.expert_args import DEEPEP_AUTO, DEEPEP_HIGH_THROUGHPUT, DEEPEP_LOW_LATENCY
from simulator.latency.step_time import FloatArray

FP8_BYTES = 1 + 4 / 128  # of an element: with a scale in fp32 for 128 of them
_FAMILIES = ("hopper", "blackwell")


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a layer's tokens are to the kernels: their width, and bytes of an element on the way there and back."""

    width: int
    there_bytes: float
    back_bytes: float = 2.0


@cache
def _constants() -> Json:
    found: Json = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return found


def is_measured_on(gpu: GPU, backend: str) -> bool:
    """Whether DeepEP's kernels were timed on such a GPU."""
    known = backend in (DEEPEP_LOW_LATENCY, DEEPEP_HIGH_THROUGHPUT, DEEPEP_AUTO)
    return known and gpu.interconnect == "nvlink" and gpu.family in _FAMILIES


def moved(hidden_size: int, expert_dtype: str) -> Moved:
    """Tokens of experts in 8 bits travel in 8 bits, others in 16; they come back in 16 (vLLM, deepep prepare_finalize).

    `expert_dtype`: what the experts' multiplies compute in.
    """
    return Moved(width=hidden_size, there_bytes=FP8_BYTES if expert_dtype == "fp8" else 2.0)


def deepep_s(
    gpu: GPU, parallelism: Parallelism, mixture: Experts, tokens: FloatArray, *, of: Moved, backend: str
) -> FloatArray:
    """One layer's dispatch and combine by DeepEP, `tokens` those of all ranks.

    Low latency: a token goes to each of its experts by itself, over NVLink or the network, both at once. High
    throughput: once to each GPU of a node, and to each node, from where NVLink brings it on.
    """
    ways, within = parallelism.expert_ways, min(gpu.gpus_joined, parallelism.expert_ways)
    own, chosen = tokens / ways, mixture.num_experts_per_tok
    copies = float(chosen)
    near, far = copies * (within - 1) / ways, copies * (ways - within) / ways
    if backend == DEEPEP_HIGH_THROUGHPUT:
        nodes = ways / within
        near = reached(ways, chosen) * (within - 1) / within
        far = reached(nodes, chosen) if nodes > 1 else 0.0
    known, network = _constants()[gpu.family][backend], _constants()["network"][backend]
    total = np.zeros_like(tokens)
    for way, element in (("dispatch", of.there_bytes), ("combine", of.back_bytes)):
        message, kernel = own * of.width * element, known[way]
        near_s = np.maximum(kernel["floor_s"], kernel["start_s"] + near * message / kernel["bytes_per_s"])
        far_s = network["start_s"] + far * message / (network["share"] * NIC_BYTES_PER_S) if far else 0.0
        total = total + np.maximum(near_s, far_s)
    return np.where(tokens > 0, total, 0.0)


def gathered_far_s(gpu: GPU, ways: int, message: FloatArray) -> FloatArray:
    """What an all-gather with a reduce-scatter of a message takes on the network between nodes: 0 within one.

    Each byte enters each node once, over all of the node's cards, and as much leaves it.
    """
    if ways <= gpu.gpus_joined:
        return np.zeros_like(message)
    share: float = _constants()["network"]["allgather_reducescatter"]["share"]
    return 2 * message * (1 - gpu.gpus_joined / ways) / (gpu.gpus_joined * share * NIC_BYTES_PER_S)


def reached(places: float, chosen: int) -> float:
    """How many places out of so many hold at least one of a token's experts, which are drawn at random."""
    return float(places * (1 - (1 - 1 / places) ** chosen))
