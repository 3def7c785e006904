"""What follows from SGLang's arguments, and how they are called in vLLM's words, for what is common to engines."""

from typing import TYPE_CHECKING, ClassVar

from kvcache.releases import DEFAULT_RELEASE
from simulator.engines.argument import SimulatedArgs
from simulator.engines.sglang.defaults import NO_CHUNKS, NO_EXCHANGE
from simulator.engines.vllm.compilation import FULL_AND_PIECEWISE, NONE
from simulator.engines.vllm.environment import not_modelled
from simulator.engines.vllm.expert_args import DEEPEP_AUTO, DEEPEP_HIGH_THROUGHPUT, DEEPEP_LOW_LATENCY, GATHER
from simulator.engines.vllm.speculation import Speculation

if TYPE_CHECKING:
    from kvcache.gpus.gpu import GPU
    from kvcache.shape.architecture import Architecture


class DerivedArgs(SimulatedArgs):
    """Beside the fields of `arguments.SGLangArgs`, which has them all."""

    tensor_parallel_size: int
    dp_size: int
    attn_dp_size: int
    enable_dp_lm_head: bool
    ep_size: int
    moe_a2a_backend: str
    deepep_mode: str
    moe_dense_tp_size: int | None
    attention_backend: str | None
    context_length: int
    page_size: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    max_running_requests: int
    max_mamba_cache_size: int | None
    max_total_num_tokens: int | None
    mem_fraction_static: float
    mamba_ssm_dtype: str
    language_model_only: bool
    disable_cuda_graph: bool
    disable_radix_cache: bool
    disable_overlap_schedule: bool
    speculation: Speculation | None
    environment: tuple[str, ...]

    @property
    def num_engines(self) -> int:
        """Schedulers that one command starts."""
        return self.dp_size

    @property
    def num_gpus(self) -> int:
        """Of what one command starts."""
        return (self.tensor_parallel_size or 1) * self.dp_size

    # -- under vLLM's names, for what is common to engines

    sorts_to_sample: ClassVar[bool] = False  # FlashInfer's kernels do not sort
    allows_tf32: ClassVar[bool] = False  # in multiplies of 32 bits
    routes_evenly: ClassVar[bool] = False  # the model chooses each token's experts
    pipeline_parallel_size: ClassVar[int] = 1  # pipeline stages are not simulated
    lora: ClassVar[None] = None
    kv_offloading_size: ClassVar[None] = None  # HiCache is not simulated
    kv_store_size: ClassVar[None] = None
    kv_store_rate: ClassVar[None] = None
    lmcache: ClassVar[None] = None
    kv_cache_memory_bytes: ClassVar[None] = None  # nor are they given in bytes
    splits_encoder: ClassVar[bool] = True
    decode_context_parallel_size: ClassVar[int] = 1
    # As vLLM's, whose step times stand in for SGLang's.
    moe_backend: ClassVar[str] = "auto"
    enable_eplb: ClassVar[bool] = False
    num_redundant_experts: ClassVar[int] = 0
    all_to_all_buffers: ClassVar[str] = ""
    max_cudagraph_capture_size: ClassVar[None] = None
    vllm_version: ClassVar[str] = DEFAULT_RELEASE

    def kv_cache_spelling(self, kept: str) -> str:
        """Of FP8 there is one, whatever kernels make of it; a model's own 16 bits have no name of their own."""
        if kept.startswith("fp8") and kept != "fp8_e5m2":
            return "fp8_e4m3"
        return "auto" if kept == "float16" else kept

    @property
    def all2all_backend(self) -> str:
        """As vLLM calls it; of DeepEP's two, SGLang takes one for decodes and one for prompts."""
        if self.moe_a2a_backend == NO_EXCHANGE:
            return GATHER
        kernels = {"normal": DEEPEP_HIGH_THROUGHPUT, "low_latency": DEEPEP_LOW_LATENCY}
        return kernels.get(self.deepep_mode, DEEPEP_AUTO)

    @property
    def splits_dense_over_groups(self) -> bool:
        return self.moe_dense_tp_size != 1

    @property
    def splits_shared_over_groups(self) -> bool:
        """DeepEP's ranks hold shared experts whole (`srt/models/deepseek_v2.py`)."""
        return self.moe_a2a_backend == NO_EXCHANGE

    @property
    def attention_groups(self) -> int:
        return self.attn_dp_size

    @property
    def splits_head_over_groups(self) -> bool:
        return not self.enable_dp_lm_head

    @property
    def data_parallel_size(self) -> int:
        """Attention replicas that share experts; those of `dp_size` share nothing."""
        return self.attn_dp_size

    @property
    def enable_expert_parallel(self) -> bool:
        return self.ep_size > 1 or self.moe_a2a_backend != NO_EXCHANGE

    @property
    def chunk_of_rank(self) -> int:
        """Each attention group takes its part of a chunk (`handle_data_parallelism`)."""
        return self.chunked_prefill_size // self.attn_dp_size

    @property
    def requests_of_rank(self) -> int | None:
        """And of the running requests (`resolve_max_num_reqs`)."""
        most = self.max_running_requests
        return None if most is None else max(1, most // self.attn_dp_size)

    @property
    def states_of_rank(self) -> int | None:
        """And of the pool of states (`_handle_max_mamba_cache`)."""
        return None if self.max_mamba_cache_size is None else self.max_mamba_cache_size // self.attn_dp_size

    def is_text_only(self, model: "Architecture") -> bool:
        """Whether SGLang loads the model without its encoder."""
        return self.language_model_only and bool(model.modalities)

    @property
    def mamba_ssm_cache_dtype(self) -> str:
        return self.mamba_ssm_dtype

    @property
    def max_model_len(self) -> int:
        return self.context_length

    @property
    def max_num_batched_tokens(self) -> int:
        """Most tokens of a batch: prompts that are never cut are taken whole."""
        whole = self.max_prefill_tokens + self.context_length
        chunk = whole if self.chunked_prefill_size == NO_CHUNKS else self.chunk_of_rank
        return max(chunk, (self.requests_of_rank or 1) * self.decode_width)

    @property
    def decode_width(self) -> int:
        """Tokens that a decoding sequence takes of a step: its own, and the drafts that are verified."""
        return self.speculation.width if self.speculation else 1

    @property
    def max_num_seqs(self) -> int:
        return self.requests_of_rank or 1

    @property
    def gpu_memory_utilization(self) -> float:
        return self.mem_fraction_static

    @property
    def block_size(self) -> int:
        return self.page_size

    @property
    def num_gpu_blocks_override(self) -> int | None:
        return None if self.max_total_num_tokens is None else self.max_total_num_tokens // (self.page_size or 1)

    @property
    def enforce_eager(self) -> bool:
        """DeepEP's kernels for prompts are not captured (`srt/arg_groups/moe_hook.py`)."""
        is_normal = self.moe_a2a_backend != NO_EXCHANGE and self.deepep_mode == "normal"
        return self.disable_cuda_graph or is_normal

    @property
    def enable_prefix_caching(self) -> bool:
        return not self.disable_radix_cache

    @property
    def async_scheduling(self) -> bool:
        return not self.disable_overlap_schedule

    @property
    def cudagraph_mode(self) -> str:
        """As vLLM's, whose step times stand in for SGLang's."""
        return NONE if self.enforce_eager else FULL_AND_PIECEWISE

    @property
    def has_cuda_graphs(self) -> bool:
        """Whether they replay any steps."""
        return not self.enforce_eager

    @property
    def has_full_cuda_graphs(self) -> bool:
        """Whether they replay whole decodes, attention included."""
        return not self.enforce_eager

    def fuses_all_reduces(self, _: "GPU") -> bool:
        """With the norms after them: SGLang has to be asked for it."""
        return False

    @property
    def ignored_environment(self) -> tuple[str, ...]:
        """Variables that may change the answer, and are not looked at."""
        return not_modelled(self.environment)
