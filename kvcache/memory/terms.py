"""What a running vLLM holds on a GPU beside weights or KV blocks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvcache.gpus.gpu import GPU
from kvcache.layout.state_content import convolution_channels
from kvcache.memory.sparse_attention import NONE, PADDED_HEADS, SparseAttentionMemory
from kvcache.parallelism import Parallelism
from kvcache.releases import (
    CUDA_GRAPHS_IN_BUDGET,
    GRAPH_ESTIMATE_TAKES_IN_A_PASS,
    NVLINK_BUFFERS,
    SAMPLER_WITHOUT_SORT,
    V2_RUNNER,
    V2_RUNNER_FOR_DENSE_MODELS,
    V2_RUNNER_PROFILES_SAMPLING,
    V2_RUNNER_ROUTES_DUMMY_TOKENS,
)
from kvcache.shape.architecture import Architecture

GIB = 2**30
FIT_SOURCE = (
    "fitted on public vLLM 0.19 start-up logs on H100 80GB published in llm-d-planner, Apache-2.0 "
    "(29 full logs, 8,192 batched tokens, 1,024 sequences)"
)
V2_RUNNER_SOURCE = "counted from the source of vLLM {} (Model Runner V2, `_dummy_sampler_run`: {}); not measured"


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the start-up logs say of the profiling run; `validation/constants/memory.py` repeats the fit."""

    # The sampler: bytes per sequence × vocabulary entry.
    sampler_bytes_per_logit: float = 14.70  # 16-bit logits, their fp32 copy, probabilities, noise
    # Sorted too: Qwen3-14B at 0.15, 0.16: 5.64 GiB; Llama-3.3-70B at 0.11: 4.84 GiB.
    sampler_bytes_per_logit_before_0_17: float = 38.07
    forward_base_bytes: float = 0.0437 * GIB
    forward_copies_of_hidden_states: float = 0.834  # kept while sampling; of batched tokens × hidden size × 2 bytes
    vision_activation_bytes: float = 0.1542 * GIB
    # The forward pass at its widest, where that exceeds the sampler: Granite-3.1-8B 0.85 GiB; with 8-bit activations
    # Llama-3.3-70B 2.25 GiB, Mistral-Small-3.1-24B 2.18 GiB (all TP 1). Beside the MLP's own buffers, in hidden states:
    widest_copies_of_hidden_states: float = 3.53
    widest_copies_of_8_bit_hidden_states: float = 1.15  # more of them, for scales with the quantized copies
    # Beside PyTorch's allocator, by ranks: CUDA context growth, NCCL, custom all-reduce buffers. Medians; 8 is a guess.
    non_torch_bytes: Mapping[int, float] = field(
        default_factory=lambda: {1: 0.25 * GIB, 2: 2.09 * GIB, 4: 2.21 * GIB, 8: 2.25 * GIB}
    )
    # The same before 0.18: Qwen3-14B at 0.15–0.17 (TP 1), Llama-3.3-70B at 0.11 (TP 2).
    non_torch_bytes_before_0_18: Mapping[int, float] = field(
        default_factory=lambda: {1: 0.13 * GIB, 2: 0.55 * GIB, 4: 0.60 * GIB, 8: 0.65 * GIB}
    )


FITTED = Constants()

# What vLLM sets aside for CUDA graphs: its own estimate, logged in those logs, there not yet subtracted.
# The first FULL graph brings FlashAttention 3's buffers, for 32 splits of the longest list of sequences in fp32
# (vLLM AttentionConfig.flash_attn_max_num_splits_for_cuda_graph): 262 MiB for 32 heads of 128, 522 MiB for latent 512.
CUDA_GRAPH_SPLITS = 32
CUDA_GRAPH_FIRST_BYTES = 0.13 * GIB  # the first graph where those buffers are smaller
# Each further size, both kinds of graph: mean absolute error 0.16 GiB, 15 %, over the 29 logs (51 sizes each).
CUDA_GRAPH_BYTES_PER_SIZE_AND_LAYER = 0.36 * 2**20
CUDA_GRAPH_BYTES_PER_SIZE_OF_EXPERTS = 5 * 2**20


def uses_v2_runner(arch: Architecture, vllm_version: str) -> bool:
    """Whether vLLM takes Model Runner V2."""
    if arch.is_moe or arch.modalities:
        return V2_RUNNER.holds_in(vllm_version)
    return V2_RUNNER_FOR_DENSE_MODELS.holds_in(vllm_version)


def profile_source(arch: Architecture, vllm_version: str) -> str:
    """Where the profiling run's peak is known from."""
    if not uses_v2_runner(arch, vllm_version):
        return FIT_SOURCE
    samples = V2_RUNNER_PROFILES_SAMPLING.holds_in(vllm_version)
    return V2_RUNNER_SOURCE.format(*(("0.33", "top-k and top-p") if samples else ("0.32", "logits alone")))


def buffers_bytes(arch: Architecture, parallelism: Parallelism, num_layers: int) -> int:
    """Tables that vLLM computes at load and counts as weights.

    Rotary embeddings: one row per position of the model's own limit, whatever `max_model_len` is; in fp32 under
    latent attention (vLLM DeepseekScalingRotaryEmbedding). For latent attention also the per-head up-projections, kept
    a second time for the absorbed form (vLLM MLA `process_weights_after_loading`). Checked against the logs: within
    0.01 GiB on dense 16-bit models.
    """
    latent = arch.attention.latent if arch.attention else None
    width = 2 * latent.qk_rope_head_dim if latent else arch.rotary_width or arch.head_dim
    tables = arch.num_rotary_tables + arch.longer_rotary_tables
    rotary = tables * arch.max_position_embeddings * width * 2
    if latent is None:
        return rotary
    heads = arch.num_attention_heads // parallelism.tensor_parallel_size
    per_head = latent.kv_lora_rank * (latent.qk_nope_head_dim + latent.v_head_dim)
    return rotary + num_layers * heads * per_head * 2


def activation_peak_bytes(
    arch: Architecture,
    parallelism: Parallelism,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    samples: bool,
    vllm_version: str,
    eight_bit: bool = False,
    sparse: SparseAttentionMemory = NONE,
    constants: Constants = FITTED,
) -> int:
    """The profiling run's peak on one rank: the sampler or the widest layer, the experts' workspace, the encoder.

    Logits are gathered whole on every rank, so the sampler's part ignores tensor parallelism; only the last pipeline
    stage `samples`. `eight_bit`: activations are quantized on their way into a matrix multiply.
    """
    tokens, sees = max_num_batched_tokens, bool(arch.vision_parameters)
    hidden = tokens * arch.hidden_size * 2
    logits = min(max_num_seqs, tokens) * arch.vocab_size
    sampler = constants.forward_copies_of_hidden_states * hidden
    sampler += logits * bytes_per_logit(arch, parallelism, vllm_version, constants)
    sampler += constants.vision_activation_bytes * sees
    widest = max(tokens * widest_layer_bytes_per_token(arch, parallelism, eight_bit=eight_bit), sparse.transient)
    more_streams = 2 * (arch.residual_streams - 1)  # hyper-connections: the residual as it comes, and as it goes on
    widest += hidden * (constants.widest_copies_of_hidden_states + more_streams)
    widest += hidden * constants.widest_copies_of_8_bit_hidden_states * eight_bit
    # What stays of the encoder's pass beside the text model's: of an encoder that is not read, its output.
    widest += (encoder_pass_bytes(arch, parallelism) or hidden) * sees
    peak = max(sampler * samples, widest)
    workspace = max(expert_workspace_bytes(arch, parallelism, tokens, vllm_version), sparse.workspace)
    return round(constants.forward_base_bytes + peak + workspace)


def encoder_pass_bytes(arch: Architecture, parallelism: Parallelism) -> float:
    """What one rank's pass of the encoder over the largest image takes; 0 where it is not known.

    It adds to the text model's pass: of a hybrid with Qwen3-VL's encoder on RTX 5090 (vLLM issue 52872, 2026-08)
    2.21, 2.32, 2.42, 2.84 GiB were profiled at 2,048, 3,072, 4,096, 8,192 batched tokens.
    """
    ranks = parallelism.tensor_parallel_size if arch.vision_split else 1
    return arch.encoder_pass_bytes + arch.encoder_pass_split_bytes / ranks


def bytes_per_logit(
    arch: Architecture, parallelism: Parallelism, vllm_version: str, constants: Constants = FITTED
) -> float:
    """What the profiling run's sampler takes for one sequence's chance of one word."""
    if not SAMPLER_WITHOUT_SORT.holds_in(vllm_version):
        return constants.sampler_bytes_per_logit_before_0_17
    if not uses_v2_runner(arch, vllm_version):
        return constants.sampler_bytes_per_logit
    if V2_RUNNER_PROFILES_SAMPLING.holds_in(vllm_version):
        return 14.0  # 16-bit logits; in fp32 their copy, what top-k leaves of it (FlashInfer), probabilities
    # Its dummy requests ask for no processing: 16-bit logits, and with them what gathering takes (a rank's share, all
    # shares, the same in order).
    tp = parallelism.tensor_parallel_size
    return 2.0 if tp == 1 else 4.0 + 2.0 / tp


def widest_layer_bytes_per_token(arch: Architecture, parallelism: Parallelism, *, eight_bit: bool) -> float:
    """The MLP's input to its activation with the output, or queries, keys, values with attention's output."""
    tp = parallelism.tensor_parallel_size
    shared = arch.experts.shared_expert_intermediate_size if arch.experts else 0
    width = arch.intermediate_size or shared
    mlp = width / tp * (2 * (3 if arch.gated_mlp else 2) + eight_bit)
    heads = arch.num_attention_heads / tp
    if arch.is_compressed:  # FlashMLA's kernels take 64 heads or 128 (vLLM models/deepseek_v4/nvidia/flashmla.py)
        heads = PADDED_HEADS if heads <= PADDED_HEADS else 2 * PADDED_HEADS
    queries = heads * arch.head_dim
    keys = 0 if arch.is_mla else arch.num_key_value_heads * arch.head_dim / tp
    return max(mlp, 2 * (2 * queries + 2 * keys))


def expert_workspace_bytes(arch: Architecture, parallelism: Parallelism, tokens: int, vllm_version: str) -> float:
    """What routing tokens to experts keeps between layers."""
    # vLLM fused_moe: one buffer for the first product or the output, one for the activation, kept between layers.
    if arch.experts is None:
        return 0.0
    if uses_v2_runner(arch, vllm_version) and not V2_RUNNER_ROUTES_DUMMY_TOKENS.holds_in(vllm_version):
        return 0.0
    ways = 1 if parallelism.enable_expert_parallel else parallelism.expert_ways
    width = arch.experts.moe_intermediate_size / ways
    rows = tokens * arch.experts.num_experts_per_tok
    return rows * (max(2 * width, arch.hidden_size) + width) * 2


def non_torch_bytes(parallelism: Parallelism, vllm_version: str, gpu: GPU, constants: Constants = FITTED) -> int:
    """What CUDA libraries take on one rank outside PyTorch.

    Buffers of all-reduces belong to the ranks of a layer: pipeline stages that hand tokens on have none.
    """
    ranks = parallelism.tensor_parallel_size
    since = has_nvlink_buffers(ranks, vllm_version, gpu)
    table = constants.non_torch_bytes if since else constants.non_torch_bytes_before_0_18
    return round(table[max(size for size in table if size <= ranks)])


def has_nvlink_buffers(ranks: int, vllm_version: str, gpu: GPU) -> bool:
    """Whether the figures since 0.18 hold: all-reduces over NVLink on Hopper or later have buffers of their own.

    Elsewhere the older ones do: gpt-oss over eight RTX PRO 4500 at 0.28 left 0.8 GiB in all beside weights with KV
    cache (vLLM pull request 51590).
    """
    fused = gpu.interconnect == "nvlink" and gpu.family in ("hopper", "blackwell")
    return NVLINK_BUFFERS.holds_in(vllm_version) and (ranks == 1 or fused)


def cuda_graph_bytes(
    arch: Architecture,
    gpu: GPU,
    parallelism: Parallelism,
    *,
    num_layers: int,
    max_num_seqs: int,
    is_eager: bool,
    vllm_version: str,
    cases: int = 1,
) -> int:
    """What vLLM sets aside for CUDA graphs, `cases` of each size; the first Model Runner V2 estimated nothing."""
    is_first_v2 = uses_v2_runner(arch, vllm_version) and not V2_RUNNER.holds_in(vllm_version)
    if is_eager or is_first_v2 or not CUDA_GRAPHS_IN_BUDGET.holds_in(vllm_version):
        return 0
    sizes = num_cuda_graph_sizes(gpu, max_num_seqs)
    largest = largest_cuda_graph_size(gpu, max_num_seqs)
    latent = arch.attention.latent if arch.attention else None
    width = (
        arch.num_attention_heads * (latent.kv_lora_rank if latent else arch.head_dim) / parallelism.tensor_parallel_size
    )
    splits = largest * width * CUDA_GRAPH_SPLITS * 4 if gpu.family == "hopper" else 0.0
    each = CUDA_GRAPH_BYTES_PER_SIZE_AND_LAYER * num_layers + CUDA_GRAPH_BYTES_PER_SIZE_OF_EXPERTS * arch.is_moe
    return round(max(splits, CUDA_GRAPH_FIRST_BYTES) + (cases * sizes - 1) * each)


def graph_pass_bytes(
    arch: Architecture,
    gpu: GPU,
    parallelism: Parallelism,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    vllm_version: str,
) -> int:
    """What the estimate for gated delta nets' CUDA graphs has too much on Blackwell of compute capability 12.

    The convolution's channels of all batched tokens, once for each graph after the first. Three pools on RTX PRO 6000
    (51 graphs of 160 MiB: +0.7, +2.7, -4.2 %; vllm-project/recipes pull request 831), graphs of 0.89 and 0.52 GiB on
    RTX 5090 (five of 160 and 80 MiB: 0.85, 0.53; vLLM issue 52872). Elsewhere no log tells whether it is there.
    """
    space = arch.state_space
    if not GRAPH_ESTIMATE_TAKES_IN_A_PASS.holds_in(vllm_version) or not is_blackwell_12(gpu):
        return 0
    if space is None or space.kind != "gated_delta_net":
        return 0
    channels = convolution_channels(space, parallelism.tensor_parallel_size) // parallelism.tensor_parallel_size
    return (num_cuda_graph_sizes(gpu, max_num_seqs) - 1) * 2 * channels * max_num_batched_tokens


def is_blackwell_12(gpu: GPU) -> bool:
    """Whether it is an RTX of the Blackwell generation, or a GB10."""
    return gpu.family == "blackwell" and not gpu.is_data_center_blackwell


def largest_cuda_graph_size(gpu: GPU, max_num_seqs: int) -> int:
    """The longest list of sequences that vLLM captures a graph for."""
    return min(2 * max_num_seqs, 1024 if gpu.is_data_center_blackwell else 512)


def num_cuda_graph_sizes(gpu: GPU, max_num_seqs: int) -> int:
    """How many batch sizes vLLM captures: 1, 2, 4, then steps of 8 to 256, then steps of 16 to the largest."""
    largest = largest_cuda_graph_size(gpu, max_num_seqs)
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 256) // 8 - (largest >= 256) + max(0, (largest - 256) // 16 + 1) * (largest >= 256)


def gib_text(count: float) -> str:
    """Such as `1.2 GiB`, below 0.1 GiB in MiB: what is missing is never called 0."""
    return f"{count / GIB:,.1f} GiB" if count >= 0.1 * GIB or not count else f"{math.ceil(1024 * count / GIB)} MiB"
