"""Which settings of an engine decide its memory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from files.errors import HeadcountError
from kvcache.releases import BATCH_IN_FLIGHT_PER_STAGE

if TYPE_CHECKING:
    from kvcache.shape.architecture import Architecture

MOST_RANK_GIB = 16_384  # of any server's memory


@dataclass(frozen=True, kw_only=True)
class LMCacheMemory:
    """LMCache's settings of host memory, with its defaults (`v1/config.py` of 0.5.6). Raises ValueError for no size."""

    max_local_cpu_size: float = 5.0  # GiB of each rank
    chunk_size: int = 256  # tokens

    def __post_init__(self) -> None:
        if not 0 < self.max_local_cpu_size <= MOST_RANK_GIB:
            raise HeadcountError(
                f"lmcache.max_local_cpu_size is {self.max_local_cpu_size:g} GiB; give more than 0, at most "
                f"{MOST_RANK_GIB:,}"
            )


class DraftSettings(Protocol):
    """Speculative decoding, as far as memory depends on it."""

    @property
    def drafter(self) -> str | None: ...  # its kind, see `kvcache.models.drafters`; None: nothing is computed to draft
    @property
    def model(self) -> str | None: ...


class AdapterSettings(Protocol):
    """LoRA adapters, as far as memory depends on them."""

    @property
    def max_loras(self) -> int: ...
    @property
    def max_lora_rank(self) -> int: ...
    @property
    def lora_dtype(self) -> str: ...
    @property
    def fully_sharded_loras(self) -> bool: ...
    @property
    def specialize_active_lora(self) -> bool: ...


class MemorySettings(Protocol):
    """An engine's arguments with a value for each, as far as its memory depends on them."""

    @property
    def tensor_parallel_size(self) -> int: ...
    @property
    def attention_ranks(self) -> int: ...  # those of it that share a layer's attention
    @property
    def splits_dense_over_groups(self) -> bool: ...  # of such ranks, MLPs without experts, too
    @property
    def splits_shared_over_groups(self) -> bool: ...  # and shared experts
    @property
    def splits_head_over_groups(self) -> bool: ...
    @property
    def pipeline_parallel_size(self) -> int: ...
    @property
    def decode_context_parallel_size(self) -> int: ...
    @property
    def data_parallel_size(self) -> int: ...
    @property
    def enable_expert_parallel(self) -> bool: ...
    @property
    def num_redundant_experts(self) -> int: ...  # of each layer, over all ranks
    @property
    def all_to_all_buffers(self) -> str: ...  # see `kvcache.memory.all_to_all`
    @property
    def dtype(self) -> str: ...
    @property
    def mamba_ssm_cache_dtype(self) -> str: ...  # of recurrent states
    @property
    def quantization(self) -> str | None: ...  # None: the checkpoint's own
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def gpu_memory_utilization(self) -> float: ...
    @property
    def block_size(self) -> int | None: ...  # None: the attention kernel's
    @property
    def num_gpu_blocks_override(self) -> int | None: ...
    @property
    def kv_cache_memory_bytes(self) -> int | None: ...  # of each rank; None: what the share leaves
    def is_text_only(self, model: "Architecture", /) -> bool: ...  # loaded without its encoder
    @property
    def splits_encoder(self) -> bool: ...  # over the ranks of a layer, where the model allows it
    @property
    def enforce_eager(self) -> bool: ...
    @property
    def has_cuda_graphs(self) -> bool: ...  # whether any steps are replayed
    @property
    def has_full_cuda_graphs(self) -> bool: ...  # whether some steps are replayed whole, attention included
    @property
    def enable_prefix_caching(self) -> bool: ...
    @property
    def async_scheduling(self) -> bool: ...
    @property
    def kv_offloading_size(self) -> float | None: ...  # GiB of host memory for KV; None: none
    @property
    def kv_store_size(self) -> float | None: ...  # GiB of a store that all engines share; None: none
    @property
    def kv_store_rate(self) -> float | None: ...  # GB/s of it, one way; None: no limit
    @property
    def lmcache(self) -> LMCacheMemory | None: ...  # instead of it; None: without
    @property
    def speculation(self) -> DraftSettings | None: ...
    @property
    def lora(self) -> AdapterSettings | None: ...  # None: without
    @property
    def vllm_version(self) -> str: ...


def batches_in_flight(pipeline_parallel_size: int, async_scheduling: bool) -> int:
    """How many steps may be decided and not yet complete (vLLM `max_concurrent_batches`): one in each pipeline stage,
    and the next one where it is decided while they run."""
    return pipeline_parallel_size + (1 if async_scheduling else 0)


def max_in_flight_tokens(settings: MemorySettings) -> int:
    """The most tokens scheduled and not yet complete for which a window's blocks are counted."""
    if not BATCH_IN_FLIGHT_PER_STAGE.holds_in(settings.vllm_version):
        return settings.max_num_batched_tokens
    batches = batches_in_flight(settings.pipeline_parallel_size, settings.async_scheduling)
    return batches * settings.max_num_batched_tokens
