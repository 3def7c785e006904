"""Where one GPU's memory goes."""

from typing import Any, Final

from kvcache.memory.budget import MemoryBudget

NEEDED: Final = "KV of one request"
_MEMORY = (
    "gpu", "tp", "fits", "total_bytes", "num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high", "block_size",
    "kv_cache_tokens", "max_concurrency", "max_model_len", "gpu_memory_utilization", "kv_bytes_per_token",
)  # fmt: skip


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
