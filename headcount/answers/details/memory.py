"""Where one GPU's memory goes; in which formats, and from which tensor-parallel size on, a model fits."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headcount.questions.deployments import Subject
from headcount.text.units import GIB
from kvcache.memory.budget import MemoryBudget
from simulator.engines.vllm.comparison import (
    TENSOR_PARALLEL_SIZES,
    Candidate,
    compare,
    fewest_gpus,
    kv_cache_formats,
)

NEEDED: Final = "KV of one request"
NOWHERE: Final = "it fits in none of these ways: take a larger GPU"
_MEMORY = (
    "gpu", "tp", "fits", "total_bytes", "num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high", "block_size",
    "kv_cache_tokens", "max_concurrency", "max_model_len", "gpu_memory_utilization", "kv_bytes_per_token",
)  # fmt: skip


WORDS: Final = (
    ("TP", "GPUs that share the model: TP 4 are 4 GPUs."),
    ("16 bits, fp8, awq", "how the model's weights are stored; fewer bits take less memory."),
    ("KV cache", "what the model keeps in memory of each conversation; longer conversations take more."),
    ("GiB", "1.07 GB."),
)  # fmt: skip


def needed_text(budget: MemoryBudget) -> str:
    """What a GPU would have to hold for the engine to start, beside what it has."""
    needed = sum(max(size, 0) for _, size in _parts(budget))
    return f"{needed / GIB:,.1f} GiB of its {budget.total_bytes / GIB:,.1f}"


def memory_json(budget: MemoryBudget) -> dict[str, Any]:
    """Parts of one GPU's memory that add up to it, or to what starting takes where vLLM would not start."""
    found = {name: getattr(budget, name) for name in _MEMORY}
    found |= {"engine": budget.engine} if budget.engine != "vllm" else {}
    parts = [{"name": name, "bytes": size, "is_missing": name == NEEDED} for name, size in _parts(budget)]
    return found | {"parts": parts}


def waterfall(budget: MemoryBudget) -> list[tuple[str, int]]:
    """Parts of one GPU's memory, top to bottom; they add up to the total."""
    if budget.engine == "sglang":
        return [
            ("total", budget.total_bytes),
            ("activations, CUDA graphs", budget.total_bytes - budget.requested_bytes),
            ("CUDA and NCCL", budget.non_torch_bytes),
            ("weights", budget.weights_bytes),
            ("KV cache", budget.available_kv_bytes),
        ]
    return [
        ("total", budget.total_bytes),
        ("left to others", budget.total_bytes - budget.requested_bytes),
        ("weights", budget.weights_bytes),
        ("activation peak", budget.activation_peak_bytes),
        ("non-torch", budget.non_torch_bytes),
        ("CUDA graphs", budget.cuda_graph_bytes),
        ("KV cache", budget.available_kv_bytes),
    ]


def _parts(budget: MemoryBudget) -> list[tuple[str, int]]:
    """`unused` only where the number of blocks was given."""
    found = waterfall(budget)[1:]
    if not budget.fits:
        return [*found[:-1], (NEEDED, budget.required_kv_bytes)]
    rest = budget.total_bytes - sum(size for _, size in found)
    return [*found, ("unused", rest)] if rest else found


def candidates_of(asked: Subject) -> tuple[Candidate, ...]:
    """Every way to run the model that the question leaves open."""
    args = asked.args
    size, quantization = args.tensor_parallel_size, args.quantization
    return compare(
        asked.architecture,
        asked.gpu,
        args,
        tensor_parallel_sizes=TENSOR_PARALLEL_SIZES if size is None else (size,),
        quantizations=None if quantization is None else (quantization,),
        kv_cache_dtypes=kv_cache_formats(args) if args.kv_cache_dtype == "auto" else (args.kv_cache_dtype,),
    )


def fits_from(candidates: Sequence[Candidate]) -> str:
    """Such as `fits: 16 bits from TP 4, awq from TP 2 (from TP 1 with a KV cache in fp8)`."""
    fewest = fewest_gpus(candidates)
    found: dict[str, dict[str, int]] = {}
    for (quantization, kv_cache_dtype), size in fewest.items():
        if size is not None:
            found.setdefault(quantization, {})[kv_cache_dtype] = size
    usual = next((kv_cache_dtype for _, kv_cache_dtype in fewest), "auto")
    parts = [f"{format_name(name)} {_sizes_text(sizes, usual)}" for name, sizes in found.items()]
    return f"fits: {', '.join(parts)}" if parts else NOWHERE


def _sizes_text(sizes: Mapping[str, int], usual: str) -> str:
    """With the usual KV cache, and with another one where that takes fewer GPUs."""
    dtype = min(sizes, key=lambda each: (sizes[each], each != usual))
    other = f"from TP {sizes[dtype]} with a KV cache in {dtype}"
    if usual not in sizes:
        return other
    return f"from TP {sizes[usual]}" + (f" ({other})" if dtype != usual else "")


def format_name(quantization: str) -> str:
    """As a table names a weight format."""
    return "16 bits" if quantization == "none" else quantization
