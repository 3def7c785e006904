"""What each part of a step costs on one rank, by the cause of its time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvcache.formats.kv_cache_dtype import resolve_kv_cache_dtype
from kvcache.formats.quantization import QuantizationScheme
from kvcache.gpus.gpu import GPU, Multiply
from kvcache.parallelism import Parallelism, pad_vocabulary
from kvcache.releases import FUSED_NORMS_OVER_ALL_HEADS, SUMS_IN_SWITCH
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import Experts, Layer
from kvcache.shape.parameters import layer_tensors
from kvcache.shape.tensors import Tensor
from simulator.engines.engines import AnyArgs
from simulator.engines.vllm.environment import peers_over_pcie
from simulator.latency.expert_balance import balanced_rank
from simulator.latency.expert_routing import ExpertLoad, assign_tokens, fullest_rank, tiles_at_least
from simulator.latency.fp32 import FP32_BYTES, fp32_column_s, fp32_flops_per_s
from simulator.latency.gpu_constants import Constants
from simulator.latency.model import ACTIVATIONS, COMMUNICATION, COMPUTE, FIXED_OVERHEAD, WEIGHTS_READ, ServedModel
from simulator.latency.step_time import FloatArray

_LONGEST_CONVOLUTION = 16  # columns: taps of a state's convolution (3 or 4), decay rates (16); no multiply is as narrow
_MULTIPLIES = 5  # of a layer with experts: two of attention, the router, two of the experts
# What sums of 256 KiB to 4 MiB take longer where the switch does not make them: kernel tables of eight H100, of vLLM
# 0.14 without symmetric memory beside 0.19. Up to four GPUs vLLM's own kernel makes them, with or without it.
_BESIDE_SWITCH_S, _WITHOUT_SWITCH = 4e-6, 4
NORMS_EACH_HEAD = ("cohere",)  # with weights of their own (vLLM commandr.py): no rank asks another
NVLINK, PCIE, MIB = "nvlink", "pcie", 2**20
# Sums over PCIe where the server says whether cards read each other's memory: seconds to start, bytes per second, power
# of a ring's messages. Two L40S reach 0.59 of a direction so; through host memory, two A100 took what follows, and four
# L40S as much (docs/measurements/intervals.md).
_PEERS_START_S, _PEERS_SHARE, _PEERS_EXPONENT = 7e-6, 0.59, 1.0
_HOST_START_S, _HOST_BYTES_PER_S, _HOST_EXPONENT = 20e-6, 6e9, 2.2
# By ranks, as in vLLM 0.32 (allreduce_rms_fusion.py).
FUSED_ONE_STAGE_MIB: Mapping[str, Mapping[int, float]] = {
    "hopper": {2: 32, 4: 2, 8: 0.5},
    "blackwell": {2: 32, 4: 4, 8: 1},
    "b300-sxm": {2: 32, 4: 4, 8: 2},
    "gb300": {2: 32, 4: 4, 8: 2},
}

Causes = Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One tensor-parallel rank of a deployment, with what its GPU reaches."""

    served: ServedModel
    scheme: QuantizationScheme
    parallelism: Parallelism
    constants: Constants

    @property
    def args(self) -> AnyArgs:
        return self.served.args

    @property
    def arch(self) -> Architecture:
        return self.served.architecture

    @property
    def gpu(self) -> GPU:
        return self.served.gpu

    @property
    def stages(self) -> int:
        """Of the pipeline."""
        return self.parallelism.pipeline_parallel_size

    @property
    def layer_weight(self) -> float:
        """What a layer counts: a pipeline goes at the pace of its longest stage, so each is taken to be as long."""
        layers = self.arch.num_hidden_layers
        longest = max(len(self.parallelism.stage_layers(layers, stage)) for stage in range(self.stages))
        return self.stages * longest / layers

    @property
    def bandwidth(self) -> float:
        """Peak bytes per second."""
        return self.gpu.memory_bandwidth_bytes_per_s

    @property
    def bf16_flops(self) -> float:
        """Peak 16-bit flops per second."""
        return self.gpu.flops_per_s.get("bf16") or self.gpu.flops_per_s["fp16"]

    @property
    def kv_cache_dtype(self) -> str:
        """The deployment's, as vLLM runs it."""
        asked, version = self.served.args.kv_cache_dtype, self.served.args.vllm_version
        return resolve_kv_cache_dtype(asked, self.arch, self.scheme, version, self.gpu).name

    @property
    def fuses_all_reduces(self) -> bool:
        """Whether all-reduces are fused with the norms after them."""
        return self.served.args.fuses_all_reduces(self.gpu)

    @property
    def plain_bytes(self) -> int:
        """Of one element that no scheme packs."""
        return 4 if self.arch.dtype == "float32" else 2

    def flops_per_s(self, gemm_dtype: Multiply) -> float:
        """What matrix multiplies of this type reach."""
        if gemm_dtype == "fp32":
            return fp32_flops_per_s(self.gpu, self.bf16_flops, tf32=self.args.allows_tf32)
        shares = self.constants.gemm_compute_share
        known = gemm_dtype in self.gpu.flops_per_s and gemm_dtype in shares
        return self.gpu.flops_per_s[gemm_dtype] * shares[gemm_dtype] if known else self.bf16_flops * shares["bf16"]

    def gemm_bandwidth(self, gemm_dtype: Multiply) -> float:
        """Bytes per second that matrix multiplies of this type read."""
        shares = self.constants.gemm_bandwidth_share
        return shares.get(gemm_dtype, shares["bf16"]) * self.bandwidth


def add(*parts: Causes) -> dict[str, FloatArray]:
    """The sum over parts, cause by cause."""
    total: dict[str, FloatArray] = {}
    for part in parts:
        for cause, seconds in part.items():
            total[cause] = total[cause] + seconds if cause in total else seconds
    return total


def times(count: float, part: Causes) -> dict[str, FloatArray]:
    return {cause: count * seconds for cause, seconds in part.items()}


def gemm(rank: Rank, tokens: FloatArray, tensor: Tensor) -> dict[str, FloatArray]:
    """One matrix multiply over [0, len) tokens: compute joined with bytes, then the kernel's start and way through k.

    No tokens take no time.
    """
    packed = rank.scheme.of(tensor)
    element = rank.plain_bytes if packed else tensor.element_bytes or rank.plain_bytes
    plain_dtype: Multiply = "fp32" if element == FP32_BYTES else "bf16"
    dtype = packed.gemm_dtype_on(rank.gpu) if packed else plain_dtype
    plain = tensor.rows * tensor.cols * element
    weight_bytes = packed.linear_weight_bytes(tensor.rows, tensor.cols) if packed else plain
    moved = weight_bytes + tokens * (tensor.rows + tensor.cols) * element
    bytes_s = moved / rank.gemm_bandwidth(dtype)
    compute_s = 2 * tokens * tensor.rows * tensor.cols / rank.flops_per_s(dtype)
    factor = 1.0
    if packed and dtype in ("fp8", "fp4"):  # scales of groups are found in a kernel beside the norm or activation
        constants = rank.constants
        factor = constants.grouped_gemm_start_factor if packed.group_size else constants.quantized_gemm_start_factor
        if dtype == "fp8" and not packed.group_size:
            bytes_s = bytes_s * _tile_factor(constants.row_wise_tile_factor, tokens)
    # However few the rows, each tile of the product sums over all columns, one after the other.
    column_s = fp32_column_s(rank.args, rank.gpu, tokens, tensor) if dtype == "fp32" else rank.constants.gemm_depth_s
    start_s = factor * rank.constants.gemm_start_s + tensor.cols * column_s
    return _joined(tokens, bytes_s, compute_s, start_s, rank.constants.gemm_overlap_power)


def _tile_factor(by_tokens: Mapping[str, float], tokens: FloatArray) -> FloatArray:
    """By what multiplies of so many tokens take longer because their last tile is hardly filled."""
    if not by_tokens:
        return np.ones_like(tokens)
    known = sorted((float(name), value) for name, value in by_tokens.items())
    return np.interp(tokens, [at for at, _ in known], [factor for _, factor in known], left=1.0, right=1.0)


def _joined(
    tokens: FloatArray, bytes_s: FloatArray, compute_s: FloatArray, start_s: float | FloatArray, power: float
) -> dict[str, FloatArray]:
    """Both at once: their norm of this power, shared out by their powers."""
    longer_s = np.maximum(bytes_s, compute_s)  # above 0: there are always bytes
    bytes_part, compute_part = (bytes_s / longer_s) ** power, (compute_s / longer_s) ** power
    unit_s = longer_s * (bytes_part + compute_part) ** (1 / power - 1)
    return {
        WEIGHTS_READ: np.where(tokens > 0, unit_s * bytes_part, 0.0),
        COMPUTE: np.where(tokens > 0, unit_s * compute_part, 0.0),
        FIXED_OVERHEAD: np.where(tokens > 0, start_s, 0.0),
    }


def layer(rank: Rank, tokens: FloatArray, held: Layer) -> dict[str, FloatArray]:
    """One layer without what it reads of the cache: its matrix multiplies, experts, glue, all-reduces.

    Glue was measured on layers of two parts, attention with an MLP; each part ends in an all-reduce.

    What attention-parallel ranks share is in `shared_experts` instead.
    """
    constants, arch = rank.constants, rank.arch
    shares_experts = held.experts is not None and rank.parallelism.data_parallel_size > 1
    shares_part = shares_experts or (rank.parallelism.pools_dense and bool(held.intermediate_size))
    tensors = [tensor for tensor in layer_tensors(arch, rank.parallelism, held) if is_multiply(tensor)]
    tensors = [tensor for tensor in tensors if not is_pooled(rank, tensor)]
    parts: list[Causes] = [
        times(tensor.count, gemm(rank, tokens, tensor)) for tensor in tensors if tensor.component != "experts"
    ]
    if held.experts is not None and not shares_experts:
        routed = [tensor for tensor in tensors if tensor.component == "experts"]
        parts.append(experts(rank, tokens, held.experts, routed))
    num_parts = held.num_parts
    glue_s = num_parts / 2 * constants.glue_s + (constants.state_start_s if held.state else 0.0)
    reduced_s = all_reduce_s(rank, tokens, arch.hidden_size, fused=rank.fuses_all_reduces)
    # What its multiplies take and give; each part's norm reads and writes the residual, too.
    elements = sum(tensor.count * (tensor.rows + tensor.cols) for tensor in tensors if tensor.component != "experts")
    elements += 2 * num_parts * arch.hidden_size
    moved = tokens * elements * constants.activation_bytes_per_element
    parts.append(
        {
            FIXED_OVERHEAD: np.where(tokens > 0, glue_s, 0.0),
            ACTIVATIONS: moved / rank.gemm_bandwidth("bf16"),
            COMMUNICATION: (num_parts - shares_part) * reduced_s,
        }
    )
    if kernels := norm_kernels(rank, held):  # those beside the sum over the ranks; glue has four
        glue = {FIXED_OVERHEAD: np.where(tokens > 0, (kernels - 1) / 4 * constants.glue_s, 0.0)}
        parts += [glue, {COMMUNICATION: all_reduce_s(rank, tokens, width=2)}]
    return add(*parts)


def norm_kernels(rank: Rank, held: Layer) -> int:
    """Kernels of a layer that norms queries, keys over all heads, for which ranks must ask each other; 0 for others.

    Squares, their sum over the ranks, scaling (sglang pull request 14416 counts them for the same model); later one.
    """
    arch = rank.arch
    if not (arch.qk_norm_whole_projection and held.attention) or arch.model_type in NORMS_EACH_HEAD:
        return 0
    is_new = FUSED_NORMS_OVER_ALL_HEADS.holds_in(rank.args.vllm_version)
    is_fused = is_new and arch.model_type == "minimax_m2" and rank.parallelism.tensor_parallel_size > 1
    return 1 if is_fused else 3


def is_pooled(rank: Rank, tensor: Tensor) -> bool:
    """Whether it multiplies the tokens of all attention-parallel ranks though it is no expert chosen by tokens."""
    pools = {"mlp": rank.parallelism.pools_dense, "shared_experts": rank.parallelism.pools_shared}
    return pools.get(tensor.component, False)


def is_multiply(tensor: Tensor) -> bool:
    """Whether tokens are multiplied by it, rather than scaled, biased or convolved with it.

    What mixes streams of the residual, in fp32, is a part of kernels of its own (`hyper_connections`).
    """
    if tensor.component == "residual" and tensor.element_bytes == FP32_BYTES:
        return False
    return tensor.cols > (_LONGEST_CONVOLUTION if tensor.component == "state_space" else 1)


def launches(rank: Rank, held: Layer) -> float:
    """What launching a layer's kernels takes, in those of one with attention and experts; half of it by its multiplies.

    Source: runs on B200 that launching bounds ask for 0.7 – 0.9 ms a layer, with latent attention for 1.0 – 1.4 ms.
    """
    tensors = [tensor for tensor in layer_tensors(rank.arch, rank.parallelism, held) if is_multiply(tensor)]
    kernels = sum(1 if tensor.component == "experts" else tensor.count for tensor in tensors)
    kernels += norm_kernels(rank, held)
    return held.num_parts / 4 + kernels / (2 * _MULTIPLIES)


def layer_kind(rank: Rank, held: Layer) -> tuple[object, ...]:
    """What layers must have in common to take the same time without the cache."""
    tensors = tuple(layer_tensors(rank.arch, rank.parallelism, held))
    return held.experts, held.state, held.num_parts, norm_kernels(rank, held), tensors


def all_reduce_s(
    rank: Rank, tokens: FloatArray, width: int, *, ranks: int | None = None, fused: bool = False
) -> FloatArray:
    """One all-reduce of `width` elements per token over the tensor-parallel ranks, or so many.

    Small messages take one stage, in which each rank reads those of all others whole. Larger ones take two, or are
    added up in the switch: more to start, less to move. `fused`: with the norm after it.
    """
    ranks = ranks or rank.parallelism.tensor_parallel_size
    if ranks == 1:
        return np.zeros_like(tokens)
    constants, link = rank.constants, rank.gpu.interconnect
    message, speed = tokens * width * rank.plain_bytes, rank.gpu.interconnect_bytes_per_s
    alone_s, reached, exponent = link_of(rank)
    start_s = alone_s * (1 + constants.all_reduce_start_growth * np.log2(ranks))
    # A ring moves 2 (ranks - 1) / ranks of the message; switches grow less with the ranks, buses more.
    bulk_s = (2 * (ranks - 1) / ranks) ** exponent * message / reached
    moving_s = constants.all_reduce_second_stage_s[link] + bulk_s
    if link == NVLINK:
        is_older = rank.gpu.family == "hopper" and not SUMS_IN_SWITCH.holds_in(rank.args.vllm_version)
        if is_older and ranks > _WITHOUT_SWITCH:
            moving_s = moving_s + _BESIDE_SWITCH_S
        most = one_stage_bytes(rank.gpu, ranks, fused=fused)
        whole_s = bulk_s  # of two ranks, both ways move as much
        if ranks > 2:
            share = constants.all_reduce_one_stage_share[link]
            whole_s = (ranks - 1) * np.minimum(message, most) / (share * speed)
        moving_s = np.where(message <= most, whole_s, np.maximum(moving_s, whole_s))  # more never takes less
    return np.where(tokens > 0, start_s + moving_s, 0.0)


def link_of(rank: Rank) -> tuple[float, float, float]:
    """Of a sum: seconds to start, bytes per second of one link, power of a ring's messages by which ranks add to it."""
    constants, link, told = rank.constants, rank.gpu.interconnect, rank.args.pcie_link
    peers = peers_over_pcie(rank.args.environment) if told is None or told.has_peers is None else told.has_peers
    speed = rank.gpu.interconnect_bytes_per_s
    through_host = min(_HOST_BYTES_PER_S, _PEERS_SHARE * speed)
    if link == PCIE and peers is not None:
        host = _HOST_START_S, through_host, _HOST_EXPONENT
        return (_PEERS_START_S, _PEERS_SHARE * speed, _PEERS_EXPONENT) if peers else host
    reached = constants.all_reduce_link_share[link] * speed
    reached = reached if told is None else max(reached, through_host)  # fewer lanes slow host memory only at the end
    return constants.all_reduce_start_s[link], reached, constants.all_reduce_rank_exponent[link]


def one_stage_bytes(gpu: GPU, ranks: int, *, fused: bool) -> float:
    """The largest message that an all-reduce over NVLink does in one stage.

    vLLM's own kernel: csrc/custom_all_reduce.cuh, up to the sizes of distributed/device_communicators/
    all_reduce_utils.py; FlashInfer's, fused with the norm: compilation/passes/fusion/allreduce_rms_fusion.py.
    """
    if fused:
        sizes = FUSED_ONE_STAGE_MIB.get(gpu.name, FUSED_ONE_STAGE_MIB.get(gpu.family, {}))
        return sizes.get(ranks, 0.0) * MIB
    if ranks == 2:  # at any size that the kernel takes
        return (2 if gpu.family == "blackwell" else 8) * MIB
    return MIB / 2 - 1 if ranks <= 4 else MIB / 4 - 1 if ranks <= 8 else 0.0


def handover_s(rank: Rank, tokens: FloatArray) -> FloatArray:
    """What stages take to hand the hidden states and their residuals on to the next, all of them together.

    A message of both over one link, started as an all-reduce is; nothing was measured. Under tensor parallelism vLLM
    sends each rank's part and gathers the parts again (GroupCoordinator.send_tensor_dict), which is no more.
    """
    if rank.stages == 1:
        return np.zeros_like(tokens)
    constants, link = rank.constants, rank.gpu.interconnect
    moved = 2 * tokens * rank.arch.hidden_size * rank.plain_bytes
    bulk_s = moved / link_of(rank)[1]
    return np.where(tokens > 0, (rank.stages - 1) * (constants.all_reduce_start_s[link] + bulk_s), 0.0)


def experts(
    rank: Rank, tokens: FloatArray, mixture: Experts, tensors: list[Tensor], *, dealt: ExpertLoad | None = None
) -> dict[str, FloatArray]:
    """One layer's routed experts: the distinct ones are read, then computed tile by tile of the tokens that chose them.

    A tile takes the time of all its rows, however few of them are tokens, and of bringing the weights from the L2.
    `dealt`: where it is known how the tokens are dealt.
    """
    constants, packed = rank.constants, rank.scheme.of(tensors[0])
    weight_format = expert_format(packed) if packed else "bf16"
    dtype = packed.gemm_dtype_on(rank.gpu) if packed else "bf16"
    one = sum(
        packed.linear_weight_bytes(tensor.rows, tensor.cols) if packed else tensor.rows * tensor.cols * rank.plain_bytes
        for tensor in tensors
    )
    share = tensors[0].count / mixture.num_experts  # of the experts on this rank; 1 without expert parallelism
    # Of the tokens: redundant experts share theirs with those that they repeat.
    own = 1 / rank.parallelism.expert_ways if rank.args.enable_eplb else share
    # Kernels size tiles by the tokens of all ranks over the experts of their own, so by more than an expert's mean.
    exponent, tiles = constants.distinct_expert_exponent, share * tiles_at_least(rank.gpu, weight_format)
    evenly = rank.args.routes_evenly
    deals = [dealt] if dealt else assign_tokens(mixture, np.maximum(tokens, 1.0), tiles, exponent, evenly=evenly)
    one_s = one / (constants.expert_bandwidth_share[weight_format] * rank.bandwidth)
    read_s = share * deals[0].distinct * (one_s + constants.expert_read_s[weight_format])
    peak = rank.gpu.flops_per_s.get(dtype, rank.bf16_flops)
    flops = 2 * sum(tensor.rows * tensor.cols for tensor in tensors)
    row_s = flops / (constants.expert_compute_share[weight_format] * peak)
    tile_s = constants.expert_tile_reads[weight_format] * one_s
    compute_s = own * np.max([way.tiles * (way.rows * row_s + tile_s) for way in deals], axis=0)
    chosen = own * tokens * mixture.num_experts_per_tok
    more_experts = more_tokens = np.ones_like(tokens)
    if rank.parallelism.enable_expert_parallel and share < 1:
        more_experts, more_tokens = fullest_rank(mixture, tokens, deals[0].distinct, share, evenly=evenly)
        if rank.args.enable_eplb and not evenly:
            more_tokens = balanced_rank(mixture, tokens, own, rank.parallelism.num_redundant_experts)
    # Gathering a token's copies, writing what the experts make of them: not less under tensor parallelism.
    moved = chosen * tensors[0].cols * constants.expert_activation_bytes_per_element[weight_format]
    power, start_s = constants.expert_overlap_power[weight_format], constants.expert_start_s[weight_format]
    joined = _joined(tokens, more_experts * read_s, more_tokens * compute_s, start_s, power)
    return {**joined, ACTIVATIONS: more_tokens * moved / rank.bandwidth}


def expert_format(scheme: QuantizationScheme) -> str:
    """Which of the experts' constants a weight format goes by."""
    if scheme.weight_bits >= 16:
        return "bf16"
    if scheme.gemm_dtype in ("int8", "fp8"):
        return scheme.gemm_dtype
    # Integers that are unpacked on the way to 16 bits (Marlin) go as those of 4 bits do.
    return {"mxfp4": "mxfp4", "mxfp4-all": "mxfp4", "nvfp4": "fp4"}.get(scheme.name, "int4")


def sampling(rank: Rank, sampled: FloatArray) -> dict[str, FloatArray]:
    """The language-model head, logits gathered over the ranks, the sampler's passes over them."""
    arch, constants = rank.arch, rank.constants
    vocabulary = pad_vocabulary(arch.vocab_size, rank.parallelism)
    width = vocabulary // rank.parallelism.tensor_parallel_size
    head = Tensor("lm_head", width, arch.hidden_size, format=arch.lm_head_format)
    per_logit = constants.sampling_bytes_per_logit + rank.args.sorts_to_sample * constants.sorting_bytes_per_logit
    passes_s = sampled * vocabulary * per_logit / rank.bandwidth
    start_s = constants.sampling_start_s + rank.args.sorts_to_sample * constants.sorting_start_s
    own = {ACTIVATIONS: passes_s, FIXED_OVERHEAD: np.where(sampled > 0, start_s, 0.0)}
    return add(gemm(rank, sampled, head), own)
