"""What data-parallel ranks share: experts, with SGLang MLPs too, and how tokens come to them and back."""

from collections.abc import Iterator

import numpy as np

from kvcache.gpus.gpu import Multiply
from kvcache.shape.layer import Experts, Layer
from kvcache.shape.parameters import layer_tensors
from kvcache.shape.tensors import Tensor
from simulator.engines.vllm.environment import dispatched_at_once
from simulator.engines.vllm.expert_args import DEEPEP_AUTO, DEEPEP_HIGH_THROUGHPUT, DEEPEP_LOW_LATENCY, GATHER
from simulator.latency.all_to_all import deepep_s, gathered_far_s, is_measured_on, moved
from simulator.latency.model import COMMUNICATION
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Causes, Rank, add, all_reduce_s, experts, gemm, is_multiply, is_pooled, times


def shared_experts(rank: Rank, tokens: FloatArray, held: Layer, mixture: Experts) -> dict[str, FloatArray]:
    """One layer's experts over the tokens of all attention-parallel ranks.

    By vLLM's default all2all_backend, allgather_reducescatter, every rank gathers all tokens, computes them in its part
    of the experts, then the sums are scattered back: what an all-reduce over the ranks moves.
    """
    tensors = [tensor for tensor in layer_tensors(rank.arch, rank.parallelism, held) if tensor.component == "experts"]
    tensors = [tensor for tensor in tensors if tensor.cols > 1]
    routed = experts(rank, tokens, mixture, tensors)
    exchanged = {COMMUNICATION: exchange_s(rank, tokens, mixture, expert_dtype(rank, tensors))}
    return add(routed, exchanged, *pooled(rank, tokens, held))


def pooled(rank: Rank, tokens: FloatArray, held: Layer) -> Iterator[Causes]:
    """The multiplies of one layer without chosen experts that SGLang's ranks share, each."""
    for tensor in layer_tensors(rank.arch, rank.parallelism, held):
        if is_pooled(rank, tensor) and is_multiply(tensor):
            yield times(tensor.count, gemm(rank, tokens, tensor))


def shared_mlp(rank: Rank, tokens: FloatArray, held: Layer) -> dict[str, FloatArray]:
    """One layer's MLP without experts over the tokens of all ranks, gathered before it and scattered after."""
    return add({COMMUNICATION: gathered_s(rank, tokens)}, *pooled(rank, tokens, held))


def exchange_s(rank: Rank, tokens: FloatArray, mixture: Experts, dtype: Multiply) -> FloatArray:
    """What ranks take to send one layer's tokens to their experts and back, by the all-to-all backend asked for."""
    backend = rank.args.all2all_backend
    if rank.parallelism.enable_expert_parallel and is_measured_on(rank.gpu, backend):
        sent = moved(rank.arch.hidden_size, dtype)
        if backend != DEEPEP_AUTO:
            return deepep_s(rank.gpu, rank.parallelism, mixture, tokens, of=sent, backend=backend)
        few, many = (
            deepep_s(rank.gpu, rank.parallelism, mixture, tokens, of=sent, backend=each)
            for each in (DEEPEP_LOW_LATENCY, DEEPEP_HIGH_THROUGHPUT)
        )
        at_once = dispatched_at_once(rank.args.environment) * rank.parallelism.expert_ways
        return np.where(tokens <= at_once, few, many)
    return gathered_s(rank, tokens)


def gathered_s(rank: Rank, tokens: FloatArray) -> FloatArray:
    """What ranks take to gather all tokens and to scatter their sums back."""
    ways = rank.parallelism.expert_ways
    gathered = all_reduce_s(rank, tokens, rank.arch.hidden_size, ranks=ways)
    message = tokens * rank.arch.hidden_size * rank.plain_bytes
    return np.maximum(gathered, gathered_far_s(rank.gpu, ways, message))


def expert_dtype(rank: Rank, tensors: list[Tensor]) -> Multiply:
    """What the experts' multiplies compute in."""
    packed = rank.scheme.of(tensors[0])
    return packed.gemm_dtype_on(rank.gpu) if packed else "bf16"


def is_wide(rank: Rank) -> bool:
    """Whether its experts are shared in a way that no measured run of the fit had."""
    parallelism = rank.parallelism
    if not rank.arch.is_moe or parallelism.data_parallel_size == 1:
        return False
    is_gathered = rank.args.all2all_backend == GATHER
    return parallelism.expert_ways > rank.gpu.gpus_joined or not is_gathered or rank.args.enable_eplb


def assumptions(rank: Rank) -> list[tuple[str, str, str]]:
    """What wide expert parallelism rests on."""
    if not is_wide(rank):
        return []
    backend, joined, page = rank.args.all2all_backend, rank.gpu.gpus_joined, "docs/measurements/expert-parallelism.md"
    found = f"{backend}, {joined} GPUs on {rank.gpu.interconnect_title}"
    found += ", a 400 Gb/s card for each between them and others" if rank.parallelism.expert_ways > joined else ""
    rows = [("all-to-all", found, f"kernel times of eight GPUs, DeepEP's own table between nodes: {page}")]
    if backend != GATHER and not is_measured_on(rank.gpu, backend):
        why = "no kernel times of it on this GPU; timed as allgather_reducescatter"
        rows.append(("all-to-all backend", f"{backend}: not measured", why))
    if rank.args.enable_eplb:
        why = "placed by vLLM's own rule, for experts that are chosen as often as before"
        rows.append(("EPLB", f"{rank.parallelism.num_redundant_experts} redundant experts", why))
    return rows
