"""What vLLM's server chooses where no flag is given."""

from dataclasses import dataclass

from kvcache.gpus.gpu import GPU
from kvcache.memory.terms import GIB, parse_version


@dataclass(frozen=True, kw_only=True)
class EngineDefaults:
    """The OpenAI server's defaults on one GPU."""

    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    block_size: int


def engine_defaults(gpu: GPU, vllm_version: str = "0.32.0", max_model_len: int | None = None) -> EngineDefaults:
    """Defaults by GPU memory (vLLM engine/arg_utils.py, `get_batch_defaults`, usage context OPENAI_API_SERVER).

    The class for 160 GiB came with 0.27. 0.32 takes 0.92 of the memory, 0.15 took 0.90; that the change came with the
    CUDA-graph estimate of 0.21 is an assumption. Engine V0, before 0.8, batched whole prompts: at least
    `max_model_len` tokens, 256 sequences, on every GPU; beyond 32,768 tokens it chunked them, as best known.
    """
    version = parse_version(vllm_version)
    if version < (0, 8, 0):
        length = max_model_len or 0
        return EngineDefaults(
            max_num_batched_tokens=max(2048, length if length <= 32768 or version < (0, 5, 1) else 0),
            max_num_seqs=256,
            gpu_memory_utilization=0.9,
            block_size=16,
        )
    utilization = 0.92 if version >= (0, 21, 0) else 0.9
    if gpu.memory_bytes >= 160 * GIB and version >= (0, 27, 0):
        tokens, seqs = 16384, 1024
    elif gpu.memory_bytes >= 70 * GIB and "a100" not in gpu.name:
        tokens, seqs = 8192, 1024
    else:
        tokens, seqs = 2048, 256
    return EngineDefaults(
        max_num_batched_tokens=tokens, max_num_seqs=seqs, gpu_memory_utilization=utilization, block_size=16
    )
