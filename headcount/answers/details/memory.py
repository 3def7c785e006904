"""Where one GPU's memory goes."""

from typing import Any, Final

from headcount.text.units import GIB
from kvcache.memory.budget import MemoryBudget

NEEDED: Final = "KV of one request"
_MEMORY = (
    "gpu", "tp", "fits", "total_bytes", "num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high", "block_size",
    "kv_cache_tokens", "max_concurrency", "max_model_len", "gpu_memory_utilization", "kv_bytes_per_token",
)  # fmt: skip


WORDS: Final = (
    ("TP", "GPUs that share the model: TP 4 are 4 GPUs."),
    ("16 bits, fp8, awq", "how the model's weights are stored. Fewer bits take less memory, and may change its "
     "answers: test them on yours."),
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
