"""vLLM's defaults that depend on the release, the GPU or other arguments, and the names that some arguments take."""

from typing import TYPE_CHECKING

from files.errors import HeadcountError
from kvcache.releases import (
    API_SERVER_PER_RANK,
    ASYNC_SCHEDULING,
    ASYNC_SCHEDULING_WITH_DRAFT_MODEL,
    ASYNC_SCHEDULING_WITH_NGRAM,
    BATCHES_HOLD_AN_ITEM,
    ENGINE_V1,
    LARGER_BATCHES_FROM_160_GIB,
    LARGER_MEMORY_SHARE,
    NO_RETENTION_INTERVAL,
    SMALL_BATCHES_ON_GB10,
    V0_CHUNKS_LONG_PROMPTS,
)
from simulator.engines.vllm.expert_args import BATCHED_TOKENS
from simulator.engines.vllm.speculation import Speculation

if TYPE_CHECKING:
    from kvcache.gpus.gpu import GPU
    from kvcache.shape.architecture import Architecture
    from simulator.engines.vllm.arguments import EngineArgs

GIB = 2**30
AUTO = "auto"
MOST_API_SERVERS = 64  # processes of one server
ENCODER_MODES = ("weights", "data")
# vLLM's MoEBackend, config/kernel.py, of 0.17 to 0.33.
MOE_BACKENDS = (
    AUTO, "triton", "batched_triton", "triton_unfused", "deep_gemm", "deep_gemm_mega_moe", "cutlass",
    "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_b12x", "b12x", "marlin", "humming",
    "aiter", "flydsl", "hpc", "emulation",
)  # fmt: skip


def check_whole_prompts(max_num_batched_tokens: int, max_model_len: int, budget: int | None = None) -> None:
    """Raise HeadcountError where a step does not hold the longest prompt; `budget`: what drafting slots leave of it."""
    budget = max_num_batched_tokens if budget is None else budget
    if budget < max_model_len:
        drafting = f", less drafting slots {budget:,}," if budget < max_num_batched_tokens else ""
        raise HeadcountError(
            f"without chunked prefill max_num_batched_tokens ({max_num_batched_tokens:,}{drafting}) must be at least "
            f"max_model_len ({max_model_len:,}); raise it or lower --max-model-len"
        )


def default_batched_tokens(args: "EngineArgs", model: "Architecture", gpu: "GPU") -> int:
    """By GPU memory (vLLM engine/arg_utils.py, `get_batch_defaults`, usage context OPENAI_API_SERVER).

    At least what one step must compute: without chunked prefill the longest prompt, of some models an image or video.
    Where ranks keep room for each other's tokens: few. Engine V0 batched whole prompts: at least `max_model_len` tokens
    on every GPU.
    """
    longest, version = args.max_model_len, args.vllm_version
    if args.dispatches_in_batches:
        return max(BATCHED_TOKENS, 0 if args.enable_chunked_prefill else longest)
    if not ENGINE_V1.holds_in(version):
        is_whole = longest <= 32768 or not V0_CHUNKS_LONG_PROMPTS.holds_in(version)
        return max(2048, longest if is_whole else 0)
    least = 0 if args.enable_chunked_prefill else longest
    if BATCHES_HOLD_AN_ITEM.holds_in(version) and not args.is_text_only(model):
        least = max(least, *dict(model.undivided_items).values(), 0)
    if gpu.memory_bytes >= 160 * GIB and LARGER_BATCHES_FROM_160_GIB.holds_in(version):
        return max(least, 16384)
    return max(least, 8192 if _is_large(version, gpu) else 2048)


def default_sequences(vllm_version: str, max_num_batched_tokens: int, gpu: "GPU") -> int:
    """From the same place; vLLM lowers its default to the token budget."""
    takes_more = ENGINE_V1.holds_in(vllm_version) and _is_large(vllm_version, gpu)
    return min(1024 if takes_more else 256, max_num_batched_tokens)


def _is_large(vllm_version: str, gpu: "GPU") -> bool:
    is_small = "a100" in gpu.name or (gpu.name == "gb10" and SMALL_BATCHES_ON_GB10.holds_in(vllm_version))
    return gpu.memory_bytes >= 70 * GIB and not is_small


def default_async_scheduling(vllm_version: str, speculation: Speculation | None = None) -> bool:
    """`async_scheduling` where the user gives none."""
    by_method = {"draft_model": ASYNC_SCHEDULING_WITH_DRAFT_MODEL, "ngram": ASYNC_SCHEDULING_WITH_NGRAM}
    return by_method.get(speculation.method if speculation else "", ASYNC_SCHEDULING).holds_in(vllm_version)


def default_api_servers(vllm_version: str, data_parallel_size: int) -> int:
    """`api_server_count` where the user gives none; of more than MOST_API_SERVERS no more are simulated."""
    return min(data_parallel_size, MOST_API_SERVERS) if API_SERVER_PER_RANK.holds_in(vllm_version) else 1


def default_retention_interval(vllm_version: str) -> int | None:
    """`prefix_cache_retention_interval` where the user gives none."""
    return 0 if NO_RETENTION_INTERVAL.holds_in(vllm_version) else None


def default_memory_share(vllm_version: str) -> float:
    """`gpu_memory_utilization` where the user gives none."""
    return 0.92 if LARGER_MEMORY_SHARE.holds_in(vllm_version) else 0.9
