"""Where one GPU's memory goes, part by part."""

from typing import Final

from kvcache.memory.budget import MemoryBudget

NEEDED: Final = "KV of one request"


def waterfall(budget: MemoryBudget) -> list[tuple[str, int]]:
    """Parts of one GPU's memory, top to bottom; they add up to the total."""
    if budget.engine == "sglang":
        return [
            ("total", budget.total_bytes),
            ("activations, CUDA graphs", budget.total_bytes - budget.requested_bytes),
            ("CUDA and NCCL", budget.non_torch_bytes),
            ("weights", budget.weights_bytes),
            *([("SSM states", budget.state_pool_bytes)] if budget.state_pool_bytes else []),
            ("KV cache", budget.available_kv_bytes),
        ]
    return [
        ("total", budget.total_bytes),
        ("left to others", budget.total_bytes - budget.requested_bytes),
        ("weights", budget.weights_bytes),
        ("activation peak", budget.activation_peak_bytes),
        ("non-torch", budget.non_torch_bytes),
        ("CUDA graphs", budget.cuda_graph_bytes),
        *([("LoRA slots", budget.adapter_bytes)] if budget.adapter_bytes else []),
        ("KV cache", budget.available_kv_bytes),
    ]


def _parts(budget: MemoryBudget) -> list[tuple[str, int]]:
    """`unused` only where the number of blocks was given."""
    found = waterfall(budget)[1:]
    if not budget.fits:
        return [*found[:-1], (NEEDED, budget.required_kv_bytes)]
    rest = budget.total_bytes - sum(size for _, size in found)
    return [*found, ("unused", rest)] if rest else found
