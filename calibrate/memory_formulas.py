"""The formulas of the memory model, each with its source."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass

from kvcache.formats.quantization import find_quantization, quantization_names
from kvcache.layout.kv_layout import KV_CACHE_DTYPES, kv_bytes_per_token_per_layer
from kvcache.memory import terms as memory_terms
from kvcache.memory.budget import memory_budget
from kvcache.memory.engine_defaults import engine_defaults
from kvcache.models.catalog import find_gpu, load_model
from kvcache.releases import (
    COMPRESSED_TENSORS_KV_CACHE,
    DEFAULT_RELEASE,
    EXPLICIT_KV_CACHE_WINS,
    MODELOPT_KV_CACHE,
    MODELOPT_NVFP4_KV_CACHE,
)

# Formulas are lines of Python, so that a test can evaluate them beside the code that they describe.
BLOCKS: Mapping[str, str] = {
    "budget": (
        "requested = ceil(gpu_memory_utilization * total_memory)\n"
        "available = requested - weights - activation_peak - non_torch - cuda_graphs"
    ),
    "blocks": (
        "page            = block_size * bytes_per_token_per_layer\n"
        "block           = page * layers_of_largest_group\n"
        "num_gpu_blocks  = available // block\n"
        "max_concurrency = num_gpu_blocks / sum(blocks_per_request)\n"
        "kv_cache_tokens = int(max_concurrency * max_model_len)\n"
        "required        = (sum(blocks_per_request) + 1) * block\n"
        "starts          = available >= required"
    ),
    "kv_heads": (
        "kv_heads_per_rank         = max(1, num_key_value_heads // tensor_parallel_size)\n"
        "bytes_per_token_per_layer = 2 * kv_heads_per_rank * head_dim * element_bytes"
    ),
    "packed_heads": (
        "per_token_head = kv_heads_per_rank * (2 * head_dim * element_bytes + 2 * 4)\n"
        "nvfp4          = kv_heads_per_rank * 2 * (head_dim / 2 + head_dim / 16)"
    ),
    "latent": "bytes_per_token_per_layer = (kv_lora_rank + qk_rope_head_dim) * element_bytes",
    "packed_latent": "bytes_per_token_per_layer = 512 * 1 + 4 * 4 + 64 * 2",
    "groups": (
        "group_size = largest if largest < 1.5 * smallest else smallest\n"
        "num_groups = sum(ceil(layers / group_size) for layers in layers_of_each_kind)"
    ),
    "full": "blocks = ceil(max_model_len / block_size)",
    "sliding": "blocks = ceil(min(window - 1 + max_in_flight_tokens, max_model_len) / block_size) + 1",
    "chunked": "blocks = ceil(min(window + max_in_flight_tokens, max_model_len) / block_size)",
    "in_flight": "max_in_flight_tokens = max_num_batched_tokens * (pipeline_parallel_size + 1)",
    "packed": (
        "groups = ceil(rows / scale_rows) * ceil(cols / group_size)\n"
        "bits   = rows * cols * weight_bits + groups * (scale_bits + zero_bits) + tensor_bits + cols * index_bits\n"
        "bytes  = bits / 8"
    ),
    "vocabulary": "padded = ceil(vocab_size / 64) * 64\nrows   = ceil(padded / tensor_parallel_size)",
    "rotary": "bytes = num_rotary_tables * max_position_embeddings * rotary_width * 2",
    "states": (
        "mamba1          = (conv_kernel - 1) * width * b + width * state_size * s\n"
        "mamba2          = (conv_kernel - 1) * (width + 2 * num_groups * state_size) * b + width * state_size * s\n"
        "gated_delta_net = (conv_kernel - 1) * (2 * key_width + width) * b + width * key_head_dim * s\n"
        "kimi_delta      = (conv_kernel - 1) * 3 * width * b + width * head_dim * 4\n"
        "short_conv      = (conv_kernel - 1) * width * b"
    ),
    "state_block": (
        "unit       = max(kernel_block_size, block_size)\n"
        "block_size = unit * ceil(state_bytes / (unit * bytes_per_token_per_layer))"
    ),
    "activation": (
        "hidden  = tokens * hidden_size * 2\n"
        "logits  = min(max_num_seqs, tokens) * vocab_size\n"
        "sampler = forward_copies_of_hidden_states * hidden + logits * bytes_per_logit\n"
        "mlp     = intermediate_size / tensor_parallel_size * 2 * 3\n"
        "qkv     = (num_attention_heads + num_key_value_heads) * head_dim / tensor_parallel_size * 2 * 2\n"
        "widest  = tokens * max(mlp, qkv) + widest_copies_of_hidden_states * hidden\n"
        "peak    = forward_base_bytes + max(sampler, widest) + expert_workspace"
    ),
    "logits": "bytes_per_logit = 2 if tensor_parallel_size == 1 else 4 + 2 / tensor_parallel_size",
    "experts": (
        "width            = moe_intermediate_size / (tensor_parallel_size * data_parallel_size)\n"
        "expert_workspace = tokens * num_experts_per_tok * (max(2 * width, hidden_size) + width) * 2"
    ),
    "graphs": (
        "largest = min(2 * max_num_seqs, 512)\n"
        "first   = largest * num_attention_heads / tensor_parallel_size * head_dim * cuda_graph_splits * 4\n"
        "each    = cuda_graph_bytes_per_size_and_layer * num_layers + cuda_graph_bytes_per_size_of_experts * is_moe\n"
        "graphs  = max(first, cuda_graph_first_bytes) + (num_sizes - 1) * each"
    ),
    "interval": (
        "sd         = hypot(*(spread * term for spread, term in measured + beyond))\n"
        "half_width = half_width_sds * sd\n"
        "low, high  = (available - half_width) // block, (available + half_width) // block"
    ),
}


def formulas_section() -> str:
    """Markdown: from the GPU's memory to the number of requests."""
    sections = (_memory(), _kv_bytes_per_token(), _groups(), _states(), _weights(), _activation(), _rest())
    return "\n\n".join(part for section in sections for part in section) + "\n"


def _memory() -> tuple[str, ...]:
    h100 = find_gpu("h100-sxm").memory_bytes
    return (
        "## From memory to blocks",
        "Per GPU, on each pipeline stage; the stage with the fewest blocks decides.",
        _block("budget"),
        "vLLM `request_memory` (v1/worker/utils.py), `determine_available_memory` (v1/worker/gpu_worker.py). "
        f"`total_memory` is what the driver reports: {h100 / 2**30:.2f} GiB, {h100 / 1e9:.1f} decimal GB, on an H100 "
        "sold with 80. CUDA graphs are subtracted since 0.21; before, they came on top.",
        _block("blocks"),
        "vLLM `get_kv_cache_capacity`, `get_max_concurrency_for_kv_cache_config`, `check_enough_kv_cache_memory` "
        "(v1/core/kv_cache_utils.py). Until 0.20 `kv_cache_tokens` was `num_gpu_blocks // num_groups * block_size`, "
        "and the null block, which no request gets, was not asked for at start. `--num-gpu-blocks-override` replaces "
        "`num_gpu_blocks`.",
        "What one such budget looks like, with every default:",
        _example(),
    )


def _kv_bytes_per_token() -> tuple[str, ...]:
    return (
        "## KV bytes per token",
        "Keys and values, grouped or not; where there are more ranks than KV heads, they repeat:",
        _block("kv_heads"),
        "Formats with scales of their own, an fp32 one per token and head or an FP8 one per 16 elements:",
        _block("packed_heads"),
        "Latent attention (MLA) keeps one latent, whole on every rank:",
        _block("latent"),
        "`fp8_ds_mla` packs it: 512 FP8 values, 4 fp32 scales, 64 rotary values in 16 bits:",
        _block("packed_latent"),
        "vLLM v1/kv_cache_interface.py, config/cache.py. Bytes per token and layer by `--kv-cache-dtype`:",
        _kv_formats(),
        "`auto` is what the checkpoint declares, else the model's dtype. vLLM heeds `kv_cache_scheme` or "
        f"`kv_cache_quant_algo` of NVIDIA Model Optimizer's checkpoints from {MODELOPT_KV_CACHE.first} on (NVFP4 from "
        f"{MODELOPT_NVFP4_KV_CACHE.first}), `kv_cache_scheme` of compressed-tensors from "
        f"{COMPRESSED_TENSORS_KV_CACHE.first} on, there not with latent attention, and until "
        f"{EXPLICIT_KV_CACHE_WINS.first} over any `--kv-cache-dtype` (utils/torch_utils.py, "
        "model_executor/layers/attention). No other method's checkpoints declare one. `--quantization nvfp4` for a "
        "model whose config is in another format stands for NVIDIA's checkpoint, which declares FP8.",
        "Layers that read another layer's cache (Gemma 3n) add nothing; where layers "
        "without a window have other heads (Gemma 4), each counts with its own.",
    )


def _groups() -> tuple[str, ...]:
    return (
        "## Groups and blocks of a request",
        "Layers that attend alike share a block table; all groups draw on one pool, so that a block has room for the "
        "layers of the largest group. Kinds of layers are cut into groups of about equal size, layers dealt out in "
        "turn:",
        _block("groups"),
        "vLLM `_get_kv_cache_groups_uniform_page_size` (v1/core/kv_cache_utils.py). The most blocks that one request "
        "of `max_model_len` takes in a group, by what its layers attend to. Everything:",
        _block("full"),
        "A sliding window; one more block, since it need not start at a block's first token:",
        _block("sliding"),
        "Fixed chunks (Llama 4), `window` tokens each:",
        _block("chunked"),
        "Tokens in flight are a batch per pipeline stage, with one more under asynchronous scheduling:",
        _block("in_flight"),
        "vLLM `max_memory_usage_bytes` of FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec, MambaSpec; "
        "`VllmConfig.max_in_flight_tokens`. Releases before 0.24 counted one batch; that 0.24 changed it is an "
        "assumption.",
    )


def _states() -> tuple[str, ...]:
    return (
        "## States",
        "A state-space or linear-attention layer keeps, per sequence, the last inputs of its convolution and a "
        "recurrent state. On one rank, with `width` its heads times their width, `key_width` the same of its keys, b "
        "the bytes of the model's dtype, s those of the state's (`mamba_ssm_cache_dtype`):",
        _block("states"),
        "vLLM model_executor/layers/mamba/mamba_utils.py. Heads split over tensor-parallel ranks; groups of mamba2 "
        "repeat where ranks do not divide them. A drafting model adds a row per drafted token to the convolution, but "
        "for mamba1. With prefix caching (mode `align`) a request holds two states and one per drafted token, of "
        "mamba2 one more; without it (`none`), one and the drafts'.",
        "A state must fit into a block of attention, whose size grows until it does, and is then padded to it:",
        _block("state_block"),
        "vLLM platforms/interface.py (`_align_hybrid_block_size`); `kernel_block_size` is the smallest that the "
        "attention kernels of that GPU take; under latent attention `unit` is at least 128. Pages of layers that still "
        "differ become as large as the largest: by more tokens in a block where that comes out even, else by padding "
        "(`unify_kv_cache_spec_page_size`).",
    )


def _weights() -> tuple[str, ...]:
    return (
        "## Weights",
        "Counted tensor by tensor ([kvcache/models/parameters.py](../kvcache/models/parameters.py)), "
        "as one rank holds them:",
        _table(("tensors", "over tensor-parallel ranks", "over pipeline stages"), _SHARDING),
        "vLLM model_executor/layers, models. Vocabularies are padded (`DEFAULT_VOCAB_PADDING_SIZE`):",
        _block("vocabulary"),
        "Parameters equal transformers' models: `headcount calibrate check-parameters`. What is not packed keeps the "
        "checkpoint's dtype. A packed matrix, `rows` outputs by `cols` inputs:",
        _block("packed"),
        "Scales and zero points are paid per group of `group_size` columns (none: all) by `scale_rows` rows (one, "
        "unless a format has blocks); some formats add bits per matrix, or an index per column (act-order). "
        "Embeddings, norms, routers, encoders stay as they are, unless a format says otherwise.",
        _weight_formats(),
        "Each allocation of 10 MiB and more takes whole steps of 2 MiB where at most 1 MiB is left over, as PyTorch's "
        "caching allocator hands memory out (c10/cuda/CUDACachingAllocator). Some kernels pad experts, which the "
        "format's file says ([kvcache/formats/weights](../kvcache/formats/weights)). Tables that vLLM computes at load "
        "count as weights, rotary ones over the model's own limit, whatever `max_model_len` is, and as wide as what "
        "turns of a head:",
        _block("rotary"),
        "Latent attention has them in fp32, and keeps its per-head up-projections a second time "
        "(`process_weights_after_loading`).",
    )


def _activation() -> tuple[str, ...]:
    return (
        "## Activation peak",
        "What vLLM's profiling run takes at its highest: `max_num_batched_tokens` (`tokens`) through the model, then "
        "`max_num_seqs` through the sampler. The sampler's logits are whole on every rank, and on the last stage "
        "alone; elsewhere, or where its widest layer is wider, the forward pass decides. With a gated MLP:",
        _block("activation"),
        "Model Runner V2 (dense models since 0.25.1, all since 0.29) samples nothing in the profiling run; what is "
        "left are the logits in 16 bits, and what gathering them takes:",
        _block("logits"),
        "An encoder for images adds its own activations to the sampler's side and its output to the other; activations "
        "in 8 bits add scales and copies to the widest layer. Routed experts keep a workspace between layers:",
        _block("experts"),
        f"vLLM fused_moe; under expert parallelism `width` is whole. The constants are {memory_terms.FIT_SOURCE}.",
    )


def _rest() -> tuple[str, ...]:
    return (
        "## Outside PyTorch",
        "CUDA context, NCCL, buffers of custom all-reduces, by the number of ranks that talk to each other: "
        "`non_torch_bytes` below, from the same logs. Releases before 0.18, and several ranks without NVLink of Hopper "
        "or later, go by the older figures. Beyond four ranks it is a guess.",
        "## CUDA graphs",
        "vLLM's own estimate, which it subtracts: the first graph brings the attention kernel's buffers, each further "
        "batch size a share per layer. Sizes are 1, 2, 4, then steps of 8 to 256, then of 16:",
        _block("graphs"),
        "Nothing is subtracted before 0.21, under Model Runner V2 before 0.29, or with `--enforce-eager`. On Blackwell "
        "the largest size is twice that. The buffers (`first`) are FlashAttention 3's, on Hopper; with latent "
        "attention they are as wide as the latent.",
        "## Constants",
        "As [kvcache/memory/terms.py](../kvcache/memory/terms.py) has them, where each has its source.",
        _constants(),
        "## Defaults",
        f"Of vLLM {DEFAULT_RELEASE}'s server where no flag is given (engine/arg_utils.py, `get_batch_defaults`).",
        _defaults(),
        "Older releases took 0.90 of the memory.",
        "## How far off",
        "Every term errs by a spread of its own. Where the start-up logs reach (H100 80GB, releases, ranks and batches "
        "as in them) it is measured; every condition beyond them widens it by judgement, named among the budget's "
        "`assumptions`. The 90 % interval of the blocks:",
        _block("interval"),
        "`measured` and `beyond` are spreads with the terms that they belong to "
        "(`kvcache/memory_residuals.toml`); "
        "[accuracy.md](accuracy.md#memory) has the measured errors.",
    )


_SHARDING = (
    ("embedding, head", "rows of the padded vocabulary", "first; last (tied: both)"),
    ("queries, output projection", "heads", "its layers"),
    ("keys, values", "KV heads, repeated beyond their number", "its layers"),
    ("latent attention: down-projections", "whole", "its layers"),
    ("latent attention: per-head matrices", "heads", "its layers"),
    ("MLP, shared experts", "width (shared experts whole where tokens are dealt out to ranks)", "its layers"),
    ("experts", "width, over TP × DP; whole experts under expert parallelism", "its layers"),
    ("state-space projections", "heads; groups repeated where ranks do not divide them", "its layers"),
    ("router, norms, biases of outputs", "whole", "its layers"),
    ("image encoder", "split, or whole where vLLM keeps it so", "first"),
)


def _block(name: str) -> str:
    return f"```text\n{BLOCKS[name]}\n```"


def _example() -> str:
    budget = memory_budget(load_model("llama-3.1-8b"), find_gpu("h100-sxm"), vllm_version=DEFAULT_RELEASE)
    gib = 2**30
    rows = [
        ("`requested`", f"{budget.requested_bytes / gib:.2f} GiB"),
        ("`weights`", f"{budget.weights_bytes / gib:.2f} GiB"),
        ("`activation_peak`", f"{budget.activation_peak_bytes / gib:.2f} GiB"),
        ("`non_torch`", f"{budget.non_torch_bytes / gib:.2f} GiB"),
        ("`cuda_graphs`", f"{budget.cuda_graph_bytes / gib:.2f} GiB"),
        ("`available`", f"{budget.available_kv_bytes / gib:.2f} GiB"),
        ("`num_gpu_blocks`", f"{budget.num_gpu_blocks:,} of {budget.block_size} tokens"),
        ("`max_concurrency`", f"{budget.max_concurrency:.2f} requests of {budget.max_model_len:,} tokens"),
    ]
    return _table((f"Llama-3.1-8B, one H100, vLLM {DEFAULT_RELEASE}", ""), rows)


def _kv_formats() -> str:
    models = {"Llama-3.1-8B": "llama-3.1-8b", "Llama-3.1-8B at TP 16": "llama-3.1-8b", "DeepSeek-V3": "deepseek-v3"}
    rows = []
    for dtype in KV_CACHE_DTYPES:
        cells = [_kv_bytes(name, 16 if "TP 16" in title else 1, dtype) for title, name in models.items()]
        rows.append((f"`{dtype}`", *cells))
    return _table(("format", *models), rows)


def _kv_bytes(model: str, tp: int, dtype: str) -> str:
    try:
        return f"{kv_bytes_per_token_per_layer(load_model(model), tp, dtype):,}"
    except ValueError:  # not for that kind of attention
        return "–"


def _weight_formats() -> str:
    schemes = [find_quantization(name) for name in quantization_names()]
    rows = [
        (f"`{scheme.name}`", f"{scheme.bits_per_weight:.4g}", str(scheme.group_size or "–"), scheme.source)
        for scheme in sorted(schemes, key=lambda scheme: (scheme.bits_per_weight, scheme.name))
    ]
    return _table(("format", "bits per weight, scales included", "group", "source"), rows)


def _constants() -> str:
    rows = []
    for name, value in _named_constants():
        if isinstance(value, Mapping):
            rows += [(f"`{name}`, ranks: {ranks}", _sized(name, each)) for ranks, each in value.items()]
        elif isinstance(value, int | float):
            rows.append((f"`{name}`", _sized(name, value)))
    return _table(("constant", "value"), rows)


def _named_constants() -> Iterable[tuple[str, object]]:
    """Numbers of `memory_terms`, whether they stand alone or in a record of fitted ones."""
    for name, value in vars(memory_terms).items():
        if not name.isupper() or name == "GIB" or isinstance(value, type):
            continue
        if is_dataclass(value):
            yield from ((field.name, getattr(value, field.name)) for field in fields(value))
        else:
            yield name.lower(), value


def _sized(name: str, value: float) -> str:
    if "bytes" not in name or value < 2**15:
        return f"{value:.4g}"
    return f"{value / 2**30:.4g} GiB" if value >= 2**25 else f"{value / 2**20:.4g} MiB"


def _defaults() -> str:
    heads = ("GPU", "`max_num_batched_tokens`", "`max_num_seqs`", "`gpu_memory_utilization`")
    rows = []
    for name in ("l4", "a100-80gb", "h100-sxm", "b200-sxm"):
        gpu = find_gpu(name)
        found = engine_defaults(gpu, DEFAULT_RELEASE)
        label = f"{name}, {gpu.memory_bytes / 2**30:.1f} GiB"
        rows.append((label, f"{found.max_num_batched_tokens:,}", f"{found.max_num_seqs:,}",
                     f"{found.gpu_memory_utilization:.2f}"))  # fmt: skip
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
