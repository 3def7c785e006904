"""GPU memory of the buffers through which data-parallel ranks send tokens to each other's experts."""

from typing import Final

from kvcache.gpus.gpu import GPU
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture

LOW_LATENCY: Final = "low latency"
HIGH_THROUGHPUT: Final = "high throughput"
BUFFER_BYTES: Final = 2**30  # vLLM's VLLM_DEEPEP_BUFFER_SIZE_MB
_SCALED = 128  # channels with a scale
_CONTROL_BYTES = 16


def buffers_bytes(
    kind: str, arch: Architecture, parallelism: Parallelism, gpu: GPU, *, max_num_batched_tokens: int
) -> int:
    """Of one rank; `kind` "" without any.

    Read from vLLM 0.33, distributed/device_communicators/all2all.py, and from DeepEP, csrc/legacy/config.hpp: low
    latency keeps room for the tokens of every rank at each of its experts, twice to send and twice to receive.
    """
    if not kind or arch.experts is None:
        return 0
    if kind == HIGH_THROUGHPUT:
        return BUFFER_BYTES * (2 if parallelism.expert_ways > gpu.gpus_joined else 1)
    hidden, scales = arch.hidden_size, arch.hidden_size // _SCALED
    message = max(_CONTROL_BYTES + max(2 * hidden, hidden + 4 * scales), 4 * scales + 2 * hidden)
    back = 4 * scales + 2 * hidden
    experts = arch.experts.num_experts + parallelism.num_redundant_experts
    tokens = max_num_batched_tokens
    return BUFFER_BYTES + 2 * (experts * tokens * back + experts * tokens * message)
