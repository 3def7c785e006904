"""What a running vLLM holds on a GPU beside weights or KV blocks."""

import re

from kvcache.architecture import Architecture
from kvcache.gpu import GPU
from kvcache.parallelism import Parallelism

GIB = 2**30
_RELEASE = re.compile(
    r"^v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:(?:\.?(?:a|b|rc|dev|post)|\+).*)?$", re.ASCII
)
FIT_SOURCE = (
    "fitted on public vLLM 0.19 start-up logs on H100 80GB published in llm-d-planner, Apache-2.0 "
    "(29 full logs, 8,192 batched tokens, 1,024 sequences)"
)

# Activation peak, mean absolute error 0.025 GiB, worst 0.08 GiB over those logs.
SAMPLER_BYTES_PER_LOGIT = 14.57  # logits, their fp32 copy, sorted probabilities: per sequence × vocabulary entry
SAMPLER_BYTES_PER_LOGIT_BEFORE_0_17 = 38.0  # Qwen3-14B at 0.15, 0.16: 5.64 GiB; Llama-3.3-70B at 0.11: 4.84 GiB
FORWARD_BASE_BYTES = 0.057 * GIB
FORWARD_COPIES_OF_HIDDEN_STATES = 0.93  # of batched tokens × hidden size × 2 bytes
VISION_ACTIVATION_BYTES = 0.164 * GIB

# Beside PyTorch's allocator: CUDA context growth, NCCL, custom all-reduce buffers. Means of those logs; 8 is a guess.
NON_TORCH_BYTES = {1: 0.25 * GIB, 2: 2.08 * GIB, 4: 2.19 * GIB, 8: 2.25 * GIB}
# The same before 0.18: Qwen3-14B at 0.15–0.17 (TP 1), Llama-3.3-70B at 0.11 (TP 2).
NON_TORCH_BYTES_BEFORE_0_18 = {1: 0.13 * GIB, 2: 0.55 * GIB, 4: 0.60 * GIB, 8: 0.65 * GIB}

# CUDA-graph estimate, mean absolute error 0.10 GiB over those logs; all captured 51 sizes.
CUDA_GRAPH_BASE_BYTES = 0.416 * GIB
CUDA_GRAPH_BYTES_PER_LAYER = 0.0152 * GIB
CUDA_GRAPH_MLA_BYTES = 0.507 * GIB
CUDA_GRAPH_MOE_BYTES = 0.110 * GIB
CUDA_GRAPH_SIZES_OF_FIT = 51


def parse_version(vllm_version: str) -> tuple[int, int, int]:
    """`0.19.1rc2` → (0, 19, 1). Raises `ValueError` on anything that is not a release number."""
    match = _RELEASE.match(vllm_version)
    if match is None:
        raise ValueError(f"vllm_version {vllm_version[:40]!r} is no release number; give one such as '0.32.0'")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def buffers_bytes(arch: Architecture, parallelism: Parallelism, num_layers: int) -> int:
    """Tables that vLLM computes at load and counts as weights.

    Rotary embeddings: one row per position of the model's own limit, whatever `max_model_len` is. For latent attention
    also the per-head up-projections, kept a second time for the absorbed form (vLLM MLA
    `process_weights_after_loading`). Checked against the logs: within 0.01 GiB on dense 16-bit models.
    """
    width = (arch.qk_rope_head_dim or 0) if arch.is_mla else arch.head_dim
    rotary = arch.num_rotary_tables * arch.max_position_embeddings * width * 2
    if not arch.is_mla:
        return rotary
    heads = arch.num_attention_heads // parallelism.tensor_parallel_size
    per_head = (arch.kv_lora_rank or 0) * ((arch.qk_nope_head_dim or 0) + (arch.v_head_dim or 0))
    return rotary + num_layers * heads * per_head * 2


def activation_peak_bytes(
    arch: Architecture,
    parallelism: Parallelism,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    samples: bool,
    version: tuple[int, int, int],
) -> int:
    """The profiling run's peak on one rank: sampler, hidden states, the experts' workspace, the vision encoder.

    Logits are gathered whole on every rank, so the sampler's part ignores tensor parallelism; only the last pipeline
    stage `samples`.
    """
    tokens = max_num_batched_tokens
    per_logit = SAMPLER_BYTES_PER_LOGIT if version >= (0, 17, 0) else SAMPLER_BYTES_PER_LOGIT_BEFORE_0_17
    sampler = per_logit * min(max_num_seqs, tokens) * arch.vocab_size if samples else 0.0
    hidden = FORWARD_COPIES_OF_HIDDEN_STATES * tokens * arch.hidden_size * 2
    vision = VISION_ACTIVATION_BYTES if arch.vision_parameters else 0.0
    return round(FORWARD_BASE_BYTES + sampler + hidden + vision + _expert_workspace_bytes(arch, parallelism, tokens))


def _expert_workspace_bytes(arch: Architecture, parallelism: Parallelism, tokens: int) -> float:
    # vLLM fused_moe: one buffer for the first product or the output, one for the activation, kept between layers.
    if not arch.is_moe:
        return 0.0
    ways = 1 if parallelism.enable_expert_parallel else parallelism.expert_ways
    width = arch.moe_intermediate_size / ways
    rows = tokens * arch.num_experts_per_tok
    return rows * (max(2 * width, arch.hidden_size) + width) * 2


def non_torch_bytes(parallelism: Parallelism, version: tuple[int, int, int]) -> int:
    """What CUDA libraries take on one rank outside PyTorch; pipeline neighbours talk through NCCL as well."""
    table = NON_TORCH_BYTES if version >= (0, 18, 0) else NON_TORCH_BYTES_BEFORE_0_18
    ranks = max(parallelism.tensor_parallel_size, min(2, parallelism.pipeline_parallel_size))
    return round(table[max(size for size in table if size <= ranks)])


def cuda_graph_bytes(
    arch: Architecture,
    gpu: GPU,
    *,
    num_layers: int,
    max_num_seqs: int,
    enforce_eager: bool,
    version: tuple[int, int, int],
) -> int:
    """What vLLM sets aside for CUDA graphs: nothing before 0.21, where they came on top of the budget."""
    if enforce_eager or version < (0, 21, 0):
        return 0
    sizes = num_cuda_graph_sizes(gpu, max_num_seqs)
    base = CUDA_GRAPH_BASE_BYTES + CUDA_GRAPH_MLA_BYTES * arch.is_mla + CUDA_GRAPH_MOE_BYTES * arch.is_moe
    return round(base + CUDA_GRAPH_BYTES_PER_LAYER * num_layers * sizes / CUDA_GRAPH_SIZES_OF_FIT)


def num_cuda_graph_sizes(gpu: GPU, max_num_seqs: int) -> int:
    """How many batch sizes vLLM captures: 1, 2, 4, then steps of 8 to 256, then steps of 16 to the largest."""
    largest = min(2 * max_num_seqs, 1024 if gpu.family == "blackwell" else 512)
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 256) // 8 - (largest >= 256) + max(0, (largest - 256) // 16 + 1) * (largest >= 256)
