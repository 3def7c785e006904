"""Which attention kernels SGLang takes for a model on a GPU, and what they ask of pages and of the KV cache's format.

Read from SGLang 0.5.23: `srt/arg_groups/model_override_base.py` (`get_default_attn_backend`), `model_overrides/`,
`overrides.py` (`_mla_backend_page_constraints`, `_fa4_page_constraint`, `_dsa_kv_cache_dtype_default`).
"""

from typing import TYPE_CHECKING, Final

from files.errors import HeadcountError
from kvcache.memory.state_pools import EXTRA_BUFFER, NO_BUFFER, default_strategy

if TYPE_CHECKING:
    from kvcache.gpus.gpu import GPU
    from kvcache.shape.architecture import Architecture
    from simulator.engines.sglang.arguments import SGLangArgs

# Models by the `model_type` of their whole config.
_TRTLLM_MLA: Final = ("deepseek_v3", "kimi_k2", "kimi_k25", "kimi_k3")
_FLASH_ATTENTION_4: Final = ("mimo_v2", "mimo_v2_flash")
_PLAIN: Final = ("falcon_h1", "minicpmv4_6", "granitemoehybrid", "deepseek_vl_v2")  # kernels that take any page
_PLAIN_BESIDE_TREE: Final = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "intern_s2_preview")  # with a radix tree
_CHAINS: Final = ("olmo2", "gpt_oss", "llama4", "gemma4", "gemma4_unified", "gemma4_text", "nemotron_h")
_WITHOUT_GROUPS: Final = ("ernie4_5_vl_moe", "ernie4_5_moe_vl")

ATTENTION_BACKENDS: Final = (
    "triton", "torch_native", "flex_attention", "fa3", "fa4", "flashinfer", "flashmla", "trtllm_mla", "trtllm_mha",
    "cutedsl_mla", "tokenspeed_mla", "hpc_ops", "dsa", "nsa", "qsa", "aiter", "wave", "minicpm_flashattn",
    "minicpm_flashinfer", "cutlass_mla",
)  # fmt: skip
"""Of `arg_groups/choices.py`, for the GPUs that are known here; the last one of earlier releases."""
_PAGES: Final = {
    "trtllm_mla": (64, 32), "cutedsl_mla": (64, 32), "trtllm_mha": (64, 16, 32, 128), "fa4": (128,), "dsa": (64,),
    "flashmla": (64,), "hpc_ops": (64,),
}  # fmt: skip
"""Tokens of a page that kernels take; the first where another number, or none, is given."""
_OF_BLOCKS: Final = 128  # a page where MiniMax-M3's sparse kernels run
_FORMATS: Final = ("auto", "fp8_e4m3", "bf16", "bfloat16")  # of latents, where kernels take no others


def attention_kernels(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> str:
    """SGLang's `--attention-backend` where pages or formats depend on it; "" for others, which take any page."""
    if model.is_sparse and model.is_mla:
        return "dsa"
    if args.attention_backend is not None:
        return args.attention_backend if _asks_for_pages(args, model, gpu) else ""
    return _own_choice(args, model) if gpu.is_data_center_blackwell else ""


def _own_choice(args: "SGLangArgs", model: "Architecture") -> str:
    """On B200 and the like."""
    if model.is_mla:
        return "trtllm_mla" if model.served_type in _TRTLLM_MLA else ""
    if model.is_sparse:
        return "trtllm_mha" if args.kv_cache_dtype == "fp8_e4m3" else "fa4"
    if model.served_type in _FLASH_ATTENTION_4:
        return "" if _is_tree(args) else "fa4"
    is_plain = model.served_type in _PLAIN or _keeps_no_copies(model) or _is_tree(args)
    is_plain |= model.served_type in _PLAIN_BESIDE_TREE and not _leaves_plain(args)
    return "" if is_plain else "trtllm_mha"


def _asks_for_pages(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> bool:
    """Whether kernels that are given do; FlashAttention 4 on B200 and the like alone, but not of latents or a tree."""
    if args.attention_backend == "fa4":
        return gpu.is_data_center_blackwell and not (model.is_mla or _is_tree(args))
    return args.attention_backend in _PAGES


def _leaves_plain(args: "SGLangArgs") -> bool:
    """Whether such a model has the usual kernels even so; what `filled` put in for it is not taken as asked for."""
    if args.mamba_radix_cache_strategy == EXTRA_BUFFER:
        return args.page_size != 1
    return args.disable_radix_cache or (args.speculation is not None and args.page_size in (None, 1))


def _is_tree(args: "SGLangArgs") -> bool:
    return args.speculation is not None and args.speculation.topk > 1


def page_size(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> int:
    """Tokens of a page: as given, unless the kernels take other pages, which SGLang then puts in its place."""
    is_family_s = model.served_type in _PLAIN_BESIDE_TREE and args.attention_backend is None
    if is_family_s and gpu.is_data_center_blackwell:
        return 64 if attention_kernels(args, model, gpu) else 1
    is_of_blocks = model.is_sparse and not model.is_mla and _is_served_sparse(gpu)
    asked = _OF_BLOCKS if args.page_size is None and is_of_blocks else args.page_size
    if allowed := _PAGES.get(attention_kernels(args, model, gpu)):
        return asked if asked in allowed else allowed[0]
    return asked or 1


def page_before_states(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> int:
    """Tokens of a page as far as they are known when SGLang decides how states are kept."""
    if model.served_type in _PLAIN_BESIDE_TREE and gpu.is_data_center_blackwell and args.attention_backend is None:
        return 1
    return args.page_size or 1


def kv_cache_dtype(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> str:
    """`--kv-cache-dtype` in one spelling; sparse attention over latents does not take it from the checkpoint."""
    asked = args.kv_cache_dtype
    if asked == "auto" and attention_kernels(args, model, gpu) == "dsa":
        asked = "fp8_e4m3" if gpu.family == "blackwell" else "bfloat16"
    if asked not in ("bf16", "bfloat16"):
        return asked
    return "bfloat16" if _float_of(args, model) == "bfloat16" else "auto"  # float16 takes as many bits


def _float_of(args: "SGLangArgs", model: "Architecture") -> str:
    return model.dtype if args.dtype == "auto" else args.dtype


def check_kernels(args: "SGLangArgs", model: "Architecture", gpu: "GPU") -> None:
    """Raise HeadcountError for pages, formats and drafts with which SGLang does not start, or that are not known."""
    kernels, asked = attention_kernels(args, model, gpu), args.kv_cache_dtype
    if kernels == "dsa":
        _check_sparse(model, gpu)
    is_latent = kernels in ("dsa", "trtllm_mla")
    if is_latent and asked not in _FORMATS:
        raise HeadcountError(
            f"SGLang refuses kv_cache_dtype {asked!r} for {model.name} on {gpu.name}; it takes {', '.join(_FORMATS)}"
        )
    is_blackwell = gpu.is_data_center_blackwell
    takes_chains = is_latent or (is_blackwell and (model.served_type in _CHAINS or model.is_sparse))
    if takes_chains and _is_tree(args):
        raise HeadcountError(
            f"SGLang refuses a tree of draft tokens with its attention kernels for {model.name} on {gpu.name}; "
            "give --speculative-eagle-topk 1"
        )
    if asked in ("bf16", "bfloat16") and _float_of(args, model) == "float32":
        raise HeadcountError(f"kv_cache_dtype {asked!r} beside weights in float32 is not simulated; leave it out")
    if model.state_space is not None and not args.disable_radix_cache:
        _check_states(args, model, gpu, kernels)


def _check_states(args: "SGLangArgs", model: "Architecture", gpu: "GPU", kernels: str) -> None:
    """`validate_mamba_no_buffer`; copies are decided on before the kernels set a page."""
    page, has_overlap = page_before_states(args, model, gpu), not args.disable_overlap_schedule
    usual = default_strategy(model, has_overlap=has_overlap, page_size=page)
    if (args.mamba_radix_cache_strategy or usual) != NO_BUFFER:
        return
    if page > 1:
        raise HeadcountError(f"SGLang takes pages of one token alone for {model.name} so; leave --page-size out")
    if kernels == "trtllm_mha":
        raise HeadcountError(
            f"SGLang refuses to keep {model.name}'s states without copies beside its attention kernels on such a GPU; "
            "leave --disable-overlap-schedule and --mamba-radix-cache-strategy out"
        )


def check_groups(args: "SGLangArgs", model: "Architecture") -> None:
    """Raise HeadcountError for attention that SGLang does not split so (`model_hook.py`, `model_overrides/ernie*`)."""
    if model.served_type in _WITHOUT_GROUPS and args.attn_dp_size > 1:
        raise HeadcountError(f"SGLang refuses --attn-dp-size for {model.name}; leave it out, or give --dp-size")
    if model.served_type == "mimo_v2" and (heads := _heads_of_whole_context(model)) % args.attention_ranks:
        raise HeadcountError(
            f"SGLang splits the attention of {model.name} over {heads} GPUs or a divisor, and --tp-size with "
            f"--attn-dp-size make it {args.attention_ranks}; take another"
        )


def _heads_of_whole_context(model: "Architecture") -> int:
    layers = (layer.attention for layer in model.layers)
    return next((each.num_kv_heads for each in layers if each is not None and each.window is None), 1)


def _check_sparse(model: "Architecture", gpu: "GPU") -> None:
    if not _is_served_sparse(gpu):
        raise HeadcountError(
            f"SGLang's kernels of sparse attention, which {model.name} has, are not simulated on {gpu.name}; choose a "
            "GPU like H100, H200 or B200, or leave --engine sglang out to ask about vLLM"
        )


def _is_served_sparse(gpu: "GPU") -> bool:
    return gpu.family == "hopper" or gpu.is_data_center_blackwell


def _keeps_no_copies(model: "Architecture") -> bool:
    """Whether states are kept for the radix tree without slots to copy them into."""
    return model.state_space is not None and default_strategy(model, has_overlap=True, page_size=1) == NO_BUFFER
