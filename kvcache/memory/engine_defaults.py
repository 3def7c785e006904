"""What vLLM's server chooses where no flag is given."""

from dataclasses import dataclass

from kvcache.gpus.gpu import GPU
from kvcache.memory.terms import GIB
from kvcache.releases import (
    DEFAULT_RELEASE,
    ENGINE_V1,
    LARGER_BATCHES_FROM_160_GIB,
    LARGER_MEMORY_SHARE,
    V0_CHUNKS_LONG_PROMPTS,
)


@dataclass(frozen=True, kw_only=True)
class EngineDefaults:
    """The OpenAI server's defaults on one GPU."""

    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    block_size: int


def engine_defaults(gpu: GPU, vllm_version: str = DEFAULT_RELEASE, max_model_len: int | None = None) -> EngineDefaults:
    """Defaults by GPU memory (vLLM engine/arg_utils.py, `get_batch_defaults`, usage context OPENAI_API_SERVER).

    Engine V0 batched whole prompts: at least `max_model_len` tokens, 256 sequences, on every GPU.
    """
    if not ENGINE_V1.holds_in(vllm_version):
        length = max_model_len or 0
        is_whole = length <= 32768 or not V0_CHUNKS_LONG_PROMPTS.holds_in(vllm_version)
        return EngineDefaults(
            max_num_batched_tokens=max(2048, length if is_whole else 0),
            max_num_seqs=256,
            gpu_memory_utilization=0.9,
            block_size=16,
        )
    utilization = 0.92 if LARGER_MEMORY_SHARE.holds_in(vllm_version) else 0.9
    if gpu.memory_bytes >= 160 * GIB and LARGER_BATCHES_FROM_160_GIB.holds_in(vllm_version):
        tokens, seqs = 16384, 1024
    elif gpu.memory_bytes >= 70 * GIB and "a100" not in gpu.name:
        tokens, seqs = 8192, 1024
    else:
        tokens, seqs = 2048, 256
    return EngineDefaults(
        max_num_batched_tokens=tokens, max_num_seqs=seqs, gpu_memory_utilization=utilization, block_size=16
    )
