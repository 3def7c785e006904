"""SGLang's defaults that depend on the GPU, the model or other arguments.

Read from SGLang 0.5.23: `srt/arg_groups/memory_hook.py`, `cuda_graph_hook.py`, `overrides.py`.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from files.errors import HeadcountError
from kvcache.memory import state_pools
from kvcache.memory.static_budget import default_static_share, static_budget_of
from simulator.engines.sglang import kernels
from simulator.engines.sglang.drafts import MOST_REQUESTS

if TYPE_CHECKING:
    from kvcache.gpus.gpu import GPU
    from kvcache.shape.architecture import Architecture
    from simulator.engines.sglang.arguments import SGLangArgs

GIB = 2**30
NO_EXCHANGE = "none"  # of moe_a2a_backend: every GPU gathers all tokens
NO_CHUNKS = -1  # of chunked_prefill_size: a prompt is never cut
# Models that see images, and have prefill graphs even so (`configs/model_config.py`).
_GRAPHS_BESIDE_IMAGES = (
    "paddleocr_vl", "qwen3_5", "qwen3_5_moe", "muse_glimmer", "kimi_k25", "kimi_k3", "minimax_m3",
)  # fmt: skip
_SEES_ON_REQUEST = ("gemma3", "llama4", "step3_vl")  # with --enable-multimodal; without, as if of text alone


def model_s_length(_: "SGLangArgs", model: "Architecture", __: "GPU") -> int:
    return model.max_position_embeddings


def default_chunk(_: "SGLangArgs", __: "Architecture", gpu: "GPU") -> int:
    for below_gib, tokens in ((20, 2048), (60, 4096), (160, 8192)):
        if gpu.memory_bytes < below_gib * GIB:
            return tokens
    return 16384


def default_graph_batch(args: "SGLangArgs", _: "Architecture", gpu: "GPU") -> int:
    most = 512
    for below_gib, of_few_ranks, of_many in ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512)):
        if gpu.memory_bytes < below_gib * GIB:
            most = of_few_ranks if args.tensor_parallel_size < 4 else of_many
            break
    return most if args.max_running_requests is None else min(most, args.max_running_requests)


def default_share(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> float:
    is_cut = args.chunked_prefill_size != NO_CHUNKS
    share = default_static_share(
        gpu,
        activation_tokens=args.chunked_prefill_size if is_cut else args.max_prefill_tokens,
        tensor_parallel_size=args.tensor_parallel_size,
        graph_mib=_graph_mib(args, model),
        exchange_mib=0.0 if args.moe_a2a_backend == NO_EXCHANGE or args.disable_cuda_graph else 2048.0,
    )
    if share <= 0:
        raise HeadcountError(
            f"activations and CUDA graphs leave nothing of {gpu.name} by SGLang's rule; lower --chunked-prefill-size "
            "or --cuda-graph-max-bs-decode, or give --mem-fraction-static"
        )
    return share * _beside_encoder(model) if _sees(args, model) else share


def _beside_encoder(model: "Architecture") -> float:
    """What of the share is left where an encoder computes, by its size (`adjust_mem_fraction_for_vlm`)."""
    if model.vision_size is None:
        return 1.0
    layers, width = model.vision_size
    larger = layers * width**2 / (24 * 1024**2) - 1.0
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * larger))


def _graph_mib(args: "SGLangArgs", model: "Architecture") -> float:
    """What SGLang sets aside for CUDA graphs, and for what attention groups pad (`reserve_for_graph_mb`)."""
    batch = args.cuda_graph_max_bs_decode
    of_groups = (3.0 + 1.5 * (batch > 300)) * batch * args.attn_dp_size if args.attn_dp_size > 1 else 0.0
    if args.disable_cuda_graph:  # DeepEP's mode `normal` rules graphs out later
        return of_groups
    if not has_prefill_graphs(args, model):
        return 2.0 * batch + of_groups
    exchanged = 0.0 if args.moe_a2a_backend == NO_EXCHANGE else 1024.0
    prefill = 1.5 * 1024 if model.is_mla else 8.0 * len(_captured(args))
    return 2.0 * batch + of_groups + prefill + exchanged


def _captured(args: "SGLangArgs") -> Collection[int]:
    """Sizes of prefill batches; with DeepEP, which wants multiples of 8, they are set before the chunk is known."""
    if args.moe_a2a_backend != NO_EXCHANGE:
        return {-(-size // 8) * 8 for size in prefill_graph_sizes(2048)}
    longest = args.chunked_prefill_size
    if args.max_total_tokens is not None:
        longest = min(longest, args.max_total_tokens)
    return prefill_graph_sizes(longest)


def has_prefill_graphs(args: "SGLangArgs", model: "Architecture") -> bool:
    """`disable_breakable_cudagraph_if_incompatible`."""
    is_kimi_s = model.state_space is not None and model.served_type in ("kimi_linear", "kimi_k3")
    return not is_kimi_s and (not _sees(args, model) or model.served_type in _GRAPHS_BESIDE_IMAGES)


def _sees(args: "SGLangArgs", model: "Architecture") -> bool:
    is_such = bool(model.modalities) and model.served_type not in _SEES_ON_REQUEST
    return is_such and not args.language_model_only


def prefill_graph_sizes(longest: int) -> list[int]:
    """Tokens of the prefill batches that SGLang captures (`generate_prefill_cuda_graph_batch_sizes`)."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, longest + 1, 512))
    return [size for step in steps for size in range(*step) if size <= longest]


def default_requests(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> int:
    if args.speculation is not None:
        args = replace(args, max_running_requests=MOST_REQUESTS)
    return static_budget_of(model, gpu, args).max_num_seqs * args.attn_dp_size


def default_state_strategy(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> str:
    has_overlap = not args.disable_overlap_schedule
    page = kernels.page_before_states(args, model, gpu)
    return state_pools.default_strategy(model, has_overlap=has_overlap, page_size=page)
