"""What requests wait for under vLLM, and which of its arguments may help."""

from collections.abc import Iterator
from typing import Final

from kvcache.memory.budget import MemoryBudget
from simulator.engines.tuning import ADAPTER_KERNELS, API_SERVER, MAX_LORAS, Change, Tuning, Words
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.defaults import MOST_API_SERVERS

MOST_MEMORY: Final = 0.95  # of a GPU; beyond it vLLM often runs out of memory
WORDS: Final = Words(
    kv="KV blocks",
    running="max_num_seqs",
    prefill="max_num_batched_tokens",
    longest="max_model_len",
    preempted="preemptions",
)


def changes(args: EngineArgs, budget: MemoryBudget, binding: str) -> Iterator[Change]:
    if not budget.kv_cache_dtype.startswith("fp8"):
        yield "kv_cache_dtype", "fp8"
    if budget.quantization == "none":
        yield "quantization", "fp8"
    if args.adapters is not None and MAX_LORAS in binding and args.max_loras < args.adapters:
        yield from (("max_loras", slots) for slots in sorted({min(2 * args.max_loras, args.adapters), args.adapters}))
    if args.adapters is not None and ADAPTER_KERNELS in binding and not args.specialize_active_lora:
        yield "specialize_active_lora", True
    if API_SERVER in binding and args.api_server_count < MOST_API_SERVERS:
        yield "api_server_count", min(4 * args.api_server_count, MOST_API_SERVERS)
    yield "max_num_batched_tokens", 2 * args.max_num_batched_tokens
    yield "max_num_batched_tokens", args.max_num_batched_tokens // 2
    if WORDS.kv in binding and args.gpu_memory_utilization < MOST_MEMORY:
        yield "gpu_memory_utilization", MOST_MEMORY
    if WORDS.running in binding:
        yield "max_num_seqs", 2 * args.max_num_seqs


TUNING: Final = Tuning(
    words=lambda _: WORDS,
    changes=changes,
    searched={
        "max_num_batched_tokens": (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768),
        "max_num_seqs": (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
        "kv_cache_dtype": ("fp8",),
        "quantization": ("fp8",),
        "gpu_memory_utilization": (MOST_MEMORY,),
    },
    tried={},
)
