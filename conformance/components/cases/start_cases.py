"""Deployments that vLLM starts, and that it refuses, each for a reason of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from files.documents import Json
from kvcache.gpus.gpu import find_gpu
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import named_config

_CAPABILITIES = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0)}


@dataclass(frozen=True, kw_only=True)
class StartCase:
    """A model on a GPU with vLLM's arguments under its own names."""

    name: str
    model: str = "llama-3.1-8b"
    gpu: str = "h100-sxm"
    args: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, budget: MemoryBudget | None) -> Json:
        """What the probe reads; without a budget memory is no reason."""
        gpu = find_gpu(self.gpu)
        on_board = (12, 0) if gpu.interconnect == "pcie" else (10, 0)
        return {
            "name": self.name,
            "config": named_config(self.model)[1],
            "args": dict(self.args),
            "gpu": {
                "title": gpu.title,
                "memory_bytes": gpu.memory_bytes,
                "capability": (12, 1) if gpu.name == "gb10" else _CAPABILITIES.get(gpu.family, on_board),
            },
            "num_gpu_blocks": budget.num_gpu_blocks if budget else 2**30,
            "available_bytes": budget.available_kv_bytes if budget else None,
        }


_HYBRID = "qwen3-next-80b"
_STATES = {"tensor_parallel_size": 4, "max_model_len": 32_768, "kv_cache_memory_bytes": 2 * 2**30}
_LATENT = "deepseek-v2-lite"
_OVER_EIGHT = {"tensor_parallel_size": 8, "max_model_len": 32_768}
_NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
START_CASES = tuple(
    StartCase(name=name, model=model, gpu=gpu, args=args)
    for name, model, gpu, args in (
        ("all defaults", "llama-3.1-8b", "h100-sxm", {}),
        ("on GB10", "qwen3-8b", "gb10", {}),
        ("on A100", "qwen3-8b", "a100-80gb", {}),
        ("on B200 with fp8 KV", "qwen3-8b", "b200-sxm", {"kv_cache_dtype": "fp8"}),
        ("heads over three GPUs", "llama-3.1-8b", "h100-sxm", {"tensor_parallel_size": 3}),
        ("heads over four GPUs", "llama-3.1-8b", "h100-sxm", {"tensor_parallel_size": 4}),
        ("longer than memory holds", "llama-3.1-8b", "l4", {}),
        ("as long as memory holds", "llama-3.1-8b", "l4", {"max_model_len": 16_384}),
        ("another float in the cache", "llama-3.1-8b", "h100-sxm", {"kv_cache_dtype": "float16"}),
        ("its own float in the cache", "llama-3.1-8b", "h100-sxm", {"kv_cache_dtype": "bfloat16"}),
        ("fewer tokens than sequences", "qwen3-8b", "h100-sxm", {"max_num_batched_tokens": 512, "max_num_seqs": 1024}),
        ("whole prompts in too small steps", "qwen3-8b", "h100-sxm", {
            "enable_chunked_prefill": False, "max_num_batched_tokens": 2048,
        }),
        ("whole prompts in steps that hold them", "qwen3-8b", "h100-sxm", {
            "enable_chunked_prefill": False, "max_num_batched_tokens": 8192, "max_model_len": 8192,
        }),
        ("more memory than there is", "qwen3-8b", "h100-sxm", {"gpu_memory_utilization": 1.2}),
        ("more sequences than blocks of state", _HYBRID, "h100-sxm", _STATES),
        ("as many sequences as blocks of state", _HYBRID, "h100-sxm", _STATES | {"max_num_seqs": 64}),
        ("states without full graphs", _HYBRID, "h100-sxm", _STATES | {"enforce_eager": True}),
        ("states cached without chunks", _HYBRID, "h100-sxm", _STATES | {
            "enable_chunked_prefill": False, "max_num_batched_tokens": 32_768, "max_num_seqs": 64,
        }),
        ("fp8 weights made on A100", "qwen3-8b", "a100-80gb", {"quantization": "fp8"}),
        ("bfloat16 on T4", "qwen3-0.6b", "t4", {"dtype": "bfloat16", "max_model_len": 8192}),
        ("16 bits on T4", "qwen3-0.6b", "t4", {"dtype": "float16", "max_model_len": 8192}),
        ("n-gram draft tokens", "qwen3-8b", "h100-sxm", {"speculative_config": _NGRAM}),
        ("n-gram draft tokens, in order", "qwen3-8b", "h100-sxm", {
            "speculative_config": _NGRAM, "async_scheduling": False,
        }),
        ("experts in parallel", "gpt-oss-20b", "h100-sxm", {"tensor_parallel_size": 4, "enable_expert_parallel": True}),
        ("context over copies of KV heads", "qwen3-30b-a3b", "h100-sxm", _OVER_EIGHT | {
            "decode_context_parallel_size": 2,
        }),
        ("context over more GPUs than copies", "qwen3-30b-a3b", "h100-sxm", _OVER_EIGHT | {
            "decode_context_parallel_size": 4,
        }),
        ("context where no KV head is copied", "llama-3.1-8b", "h100-sxm", {
            "tensor_parallel_size": 4, "decode_context_parallel_size": 2,
        }),
        ("context of latents", _LATENT, "h100-sxm", _OVER_EIGHT | {"decode_context_parallel_size": 8}),
        ("context over three of eight", _LATENT, "h100-sxm", _OVER_EIGHT | {"decode_context_parallel_size": 3}),
        ("three stages", "qwen3-8b", "h100-sxm", {"pipeline_parallel_size": 3}),
    )
)  # fmt: skip
LONGER_THAN_THE_MODEL = StartCase(name="longer than the model", model="qwen3-8b", args={"max_model_len": 200_000})
"""Ours answers, and warns that vLLM refuses: hf_overrides may raise the limit."""
