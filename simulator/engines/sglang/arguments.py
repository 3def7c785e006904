"""SGLang's server arguments under its own names, with its defaults by GPU and release.

Read from SGLang 0.5.23: `srt/arg_groups/fields/`, `memory_hook.py`, `cuda_graph_hook.py`, `overrides.py`.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from files.errors import HeadcountError
from files.names import check_names
from kvcache.memory.state_pools import NO_BUFFER, STRATEGIES
from kvcache.memory.static_budget import refuse_caches
from kvcache.releases import SGLANG_RELEASE
from simulator.engines.argument import MEMORY, SCHEDULER, argument
from simulator.engines.sglang import attention_groups, defaults, drafts, kernels
from simulator.engines.sglang.defaults import NO_CHUNKS, NO_EXCHANGE
from simulator.engines.sglang.derived_args import DerivedArgs
from simulator.engines.sglang.engine import SCHEDULE_POLICIES
from simulator.engines.sglang.eviction import EVICTION_POLICIES
from simulator.engines.values import (
    COUNT,
    LARGEST,
    Number,
    Switch,
    Text,
    TokenCount,
    WholeNumber,
)
from simulator.engines.vllm.environment import Variables, check_environment
from simulator.engines.vllm.speculation import Speculation, SpeculativeConfig

if TYPE_CHECKING:
    from kvcache.gpus.gpu import GPU
    from kvcache.shape.architecture import Architecture

FLAG = Switch(has_opposite=False)
DEEPEP_MODES = ("auto", "normal", "low_latency")
STATE_DTYPES = ("float32", "bfloat16", "float16")
TEXT_ALONE = ("muse_glimmer",)  # models that `LANGUAGE_MODEL_ONLY_ARCHITECTURES` lets run without their encoder
KV_CACHE_DTYPES = ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16")


@dataclass(frozen=True)
class ChunkSize:
    """Tokens, or -1 for prompts that are never cut."""

    name: str = "TOKENS"

    def read(self, given: object) -> int:
        return NO_CHUNKS if str(given).strip() == str(NO_CHUNKS) else TokenCount().read(given)


@dataclass(frozen=True, kw_only=True)
class SGLangArgs(DerivedArgs):
    """What `python -m sglang.launch_server` takes that decides an answer, then what only its simulation takes.

    None stands for SGLang's default, where that depends on the GPU, the model or other arguments: `filled` puts it in,
    and what is typed here as always there is there from then on. An argument that is added here is an option of the
    command line, a key of --config, a flag of --sglang-args and a row of the reference table.
    """

    tensor_parallel_size: int = argument(
        WholeNumber(1),
        "GPUs that share each layer of a replica.",
        decides=MEMORY,
        default_of=lambda args, *_: args.attn_dp_size,
        default_text="1, or attn-dp-size",
        flag="tp-size",
        aliases=("tensor-parallel-size", "tp"),
    )
    dp_size: int = argument(
        WholeNumber(1),
        "Data-parallel replicas that one command starts, each with its own GPUs, scheduler and KV cache.",
        decides=MEMORY,
        default=1,
        aliases=("data-parallel-size", "dp"),
    )
    attn_dp_size: int = argument(
        WholeNumber(1),
        "Groups of a replica's GPUs that each compute attention for requests of their own, with a scheduler and a KV "
        "cache each; they share experts and MLPs. It divides tp-size.",
        decides=MEMORY,
        default=1,
        aliases=("attention-data-parallel-size",),
    )
    enable_dp_lm_head: bool = argument(
        FLAG, "Each attention group holds the whole head, instead of a part of it.", decides=MEMORY, default=False
    )
    ep_size: int = argument(
        WholeNumber(1),
        "GPUs among which whole experts are dealt out: 1 splits each expert instead; else all of tp-size.",
        decides=MEMORY,
        default=1,
        aliases=("expert-parallel-size", "ep"),
    )
    moe_a2a_backend: str = argument(
        Text(),
        "How tokens reach experts on other GPUs: none (every GPU gathers all tokens), or deepep, which deals whole "
        "experts out; with --attn-dp-size.",
        decides=MEMORY,
        default=NO_EXCHANGE,
    )
    deepep_mode: str = argument(
        Text(),
        f"DeepEP's kernels: {', '.join(DEEPEP_MODES)}; auto takes low_latency for decodes, normal for prompts.",
        decides=MEMORY,
        default=DEEPEP_MODES[0],
    )
    moe_dense_tp_size: int | None = argument(
        COUNT,
        "GPUs that share an MLP without experts, beside layers with experts: 1, or all of tp-size.",
        decides=MEMORY,
        default_text="all of tp-size",
    )
    dtype: str = argument(Text(), "Data type of unquantized weights.", decides=MEMORY, default="auto")
    quantization: str | None = argument(
        Text(), "Weight format, such as fp8 or awq.", decides=MEMORY, default_text="the checkpoint's"
    )
    kv_cache_dtype: str = argument(
        Text(), "KV-cache format: auto, fp8_e4m3, fp8_e5m2 or bf16.", decides=MEMORY, default="auto"
    )
    context_length: int = argument(
        TokenCount(),
        "Longest context in tokens, prompt and answer.",
        decides=MEMORY,
        default_of=defaults.model_s_length,
        default_text="the model's",
    )
    attention_backend: str | None = argument(
        Text(),
        "Attention kernels. What they ask of pages is simulated; step times are those of SGLang's own choice.",
        decides=MEMORY,
        default_text="by model and GPU",
    )
    page_size: int = argument(
        TokenCount(),
        "Tokens per page of the KV cache.",
        decides=MEMORY,
        default_of=kernels.page_size,
        default_text="1; 64 or 128 where the attention kernels ask for it",
    )
    chunked_prefill_size: int = argument(
        ChunkSize(),
        "Most prompt tokens in a chunk of a prefill batch. -1: no chunks.",
        decides=MEMORY,
        default_of=defaults.default_chunk,
        default_text="by GPU memory: 2,048 to 16,384",
    )
    max_prefill_tokens: int = argument(
        TokenCount(), "Most prompt tokens in a prefill batch, without the chunk.", decides=MEMORY, default=16384
    )
    disable_cuda_graph: bool = argument(
        FLAG, "Run without CUDA graphs.", decides=MEMORY, default=False, aliases=("disable-decode-cuda-graph",)
    )
    cuda_graph_max_bs_decode: int = argument(
        COUNT,
        "Largest decode batch with a CUDA graph. It affects memory here, not step times.",
        decides=MEMORY,
        default_of=defaults.default_graph_batch,
        default_text="by GPU memory: 8 to 512",
        aliases=("cuda-graph-max-bs",),
    )
    mem_fraction_static: float = argument(
        Number("a share above 0, below 1, such as 0.85"),
        "Share of GPU memory for weights and KV cache.",
        decides=MEMORY,
        default_of=defaults.default_share,
        default_text="what activations and CUDA graphs are expected to leave",
    )
    max_total_tokens: int | None = argument(TokenCount(), "Most tokens in the KV cache.", decides=MEMORY)
    swa_full_tokens_ratio: float = argument(
        Number("a share above 0, at most 1, such as 0.8"),
        "KV-cache tokens of layers with sliding windows over those of the other layers, if they have a pool of their "
        "own.",
        decides=MEMORY,
        default=0.8,
    )
    disable_hybrid_swa_memory: bool = argument(
        FLAG, "No pool of their own for layers with sliding windows.", decides=MEMORY, default=False
    )
    max_mamba_cache_size: int | None = argument(
        COUNT, "SSM or linear-attention states that the pool holds.", decides=MEMORY, default_text="by memory"
    )
    mamba_full_memory_ratio: float = argument(
        Number("a number above 0, such as 0.9"),
        "Memory of SSM or linear-attention states over that of the KV cache.",
        decides=MEMORY,
        default=0.9,
    )
    mamba_radix_cache_strategy: str = argument(
        Text(),
        "How states are kept for the radix tree: extra_buffer or no_buffer.",
        decides=MEMORY,
        default_of=defaults.default_state_strategy,
        default_text="extra_buffer; LFM2: no_buffer, which turns the overlap schedule off",
        aliases=("mamba-scheduler-strategy",),
    )
    mamba_track_interval: int = argument(
        TokenCount(), "Tokens of an answer after which its state is kept for the tree.", decides=SCHEDULER, default=256
    )
    mamba_ssm_dtype: str = argument(
        Text(), "Format of the recurrent state: float32, bfloat16 or float16.", decides=MEMORY, default="float32"
    )
    language_model_only: bool = argument(
        FLAG, "Text only: do not load the encoder of a multimodal model.", decides=MEMORY, default=False
    )
    max_total_num_tokens: int | None = argument(
        TokenCount(),
        "KV-cache tokens that your server logged, instead of the memory model's.",
        decides=MEMORY,
        is_engine_s=False,
    )
    max_running_requests: int = argument(
        COUNT,
        "Most requests in a decode batch.",
        decides=MEMORY,
        default_of=defaults.default_requests,
        default_text="2,048 to 4,096, by context length; 48 with draft tokens",
    )
    schedule_policy: str = argument(
        Text(), f"Scheduling policy: {', '.join(SCHEDULE_POLICIES)}.", decides=SCHEDULER, default="fcfs"
    )
    schedule_conservativeness: float = argument(
        Number("a number of at least 0, such as 0.3"),
        "Expected share of their longest answers that running requests still write.",
        decides=SCHEDULER,
        default=1.0,
    )
    enable_mixed_chunk: bool = argument(
        FLAG, "Mix decode requests into prefill batches.", decides=SCHEDULER, default=False
    )
    disable_overlap_schedule: bool = argument(
        FLAG, "Schedule a batch only after the one before it is processed.", decides=SCHEDULER, default=False
    )
    disable_radix_cache: bool = argument(FLAG, "Do not share prefixes.", decides=SCHEDULER, default=False)
    radix_eviction_policy: str = argument(
        Text(), "Eviction policy: lru, lfu, slru, tlru or priority.", decides=SCHEDULER, default="lru"
    )
    speculation: Speculation | None = argument(
        SpeculativeConfig(),
        "As in vLLM, plus the share of draft tokens that is accepted; a tree by topk and num_draft_tokens.",
        decides=MEMORY,
        flag="speculative-config",
        is_engine_s=False,
    )
    environment: tuple[str, ...] = argument(
        Variables(),
        "Environment variables of the server.",
        decides=MEMORY,
        default=(),
        is_engine_s=False,
    )
    sglang_version: str = argument(
        Text(), "SGLang release to simulate.", decides=MEMORY, default=SGLANG_RELEASE, is_engine_s=False
    )

    def __post_init__(self) -> None:
        if isinstance(self.speculation, dict | str):
            object.__setattr__(self, "speculation", SpeculativeConfig().read(self.speculation))
        super().__post_init__()
        if self.speculation is not None:
            drafts.check(self.speculation, has_groups=self.attn_dp_size > 1)
        check_names([self.schedule_policy], SCHEDULE_POLICIES, "schedule_policy")
        check_names([self.radix_eviction_policy], EVICTION_POLICIES, "radix_eviction_policy")
        check_names([self.moe_a2a_backend], (NO_EXCHANGE, "deepep"), "moe_a2a_backend simulated")
        if self.attention_backend is not None:
            check_names([self.attention_backend], kernels.ATTENTION_BACKENDS, "attention_backend of SGLang")
        check_names([self.deepep_mode], DEEPEP_MODES, "deepep_mode")
        check_names([self.kv_cache_dtype], KV_CACHE_DTYPES, "kv_cache_dtype of SGLang")
        if self.mamba_radix_cache_strategy is not None:
            check_names([self.mamba_radix_cache_strategy], STRATEGIES, "mamba_radix_cache_strategy simulated")
        check_names([self.mamba_ssm_dtype], STATE_DTYPES, "mamba_ssm_dtype")
        if not 0 < self.mamba_full_memory_ratio <= LARGEST:
            raise HeadcountError(f"mamba_full_memory_ratio is {self.mamba_full_memory_ratio:g}, must be above 0")
        if self.mem_fraction_static is not None and not 0 < self.mem_fraction_static < 1:
            raise HeadcountError(f"mem_fraction_static is {self.mem_fraction_static}, must lie between 0 and 1")
        if not 0 < self.swa_full_tokens_ratio <= 1:
            raise HeadcountError(
                f"swa_full_tokens_ratio is {self.swa_full_tokens_ratio:g}, must lie above 0 and be at most 1"
            )
        size = self.chunked_prefill_size
        if size is not None and size < 1 and size != NO_CHUNKS:
            raise HeadcountError(f"chunked_prefill_size is {size}; give a number of tokens, or -1 for no chunks")
        attention_groups.check_ranks(self)
        if not 0 <= self.schedule_conservativeness <= LARGEST:
            raise HeadcountError(
                f"schedule_conservativeness is {self.schedule_conservativeness:g}; give 0 or a little more"
            )
        if self.sglang_version != SGLANG_RELEASE:
            raise HeadcountError(
                f"sglang_version is {self.sglang_version!r}; the rules of {SGLANG_RELEASE} alone are known: leave it "
                "out to take them"
            )

    def filled(self, model: "Architecture", gpu: "GPU") -> "SGLangArgs":
        """The same arguments with SGLang's default for every one that is None. Raises HeadcountError as SGLang does."""
        refuse_caches(model, self)
        if not model.is_moe and self.attn_dp_size > 1:
            raise HeadcountError(
                f"attn_dp_size is simulated for models with experts, and {model.name} has none; leave it out, or give "
                "--dp-size for replicas"
            )
        kernels.check_kernels(self, model, gpu)
        if self.language_model_only and model.served_type not in TEXT_ALONE:
            raise HeadcountError(
                f"SGLang {SGLANG_RELEASE} refuses --language-model-only for {model.name}; leave it out: the encoder is "
                "loaded"
            )
        check_environment(self.environment, self.num_gpus)
        strategy = self.mamba_radix_cache_strategy or defaults.default_state_strategy(self, model, gpu)
        args = replace(
            self,
            mamba_radix_cache_strategy=strategy,  # decided before kernels set a page
            page_size=kernels.page_size(self, model, gpu),
            kv_cache_dtype=kernels.kv_cache_dtype(self, model, gpu),
        ).with_defaults(model, gpu)
        kernels.check_groups(args, model)
        is_chosen = model.state_space is not None and self.mamba_radix_cache_strategy is None
        if is_chosen and args.mamba_radix_cache_strategy == NO_BUFFER and not args.disable_radix_cache:
            args = replace(args, disable_overlap_schedule=True)
        size = args.chunk_of_rank
        if size != NO_CHUNKS and (size % args.page_size or size < 1):
            each = f" for each of {args.attn_dp_size} attention groups" if args.attn_dp_size > 1 else ""
            raise HeadcountError(
                f"chunked_prefill_size ({size}{each}) must be a multiple of the page size ({args.page_size})"
            )
        return args
