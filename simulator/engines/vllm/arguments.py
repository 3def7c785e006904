"""vLLM's engine arguments under its own names, with its defaults by release and GPU."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from files.errors import HeadcountError
from files.names import UnknownNameError, check_names, nearest_hint, shortened
from kvcache.memory.settings import LMCacheMemory
from kvcache.releases import (
    DEFAULT_RELEASE,
    ENGINE_V1,
    FULL_CUDA_GRAPHS,
    FUSED_ALL_REDUCES,
    FUSED_ALL_REDUCES_ON_B300,
    LANGUAGE_MODEL_ONLY,
    NO_ENCODER_FOR_TEXT,
    SORTS_TO_SAMPLE,
)
from simulator.engines.argument import MEMORY, SCHEDULER, STEP_TIME, argument, arguments_of
from simulator.engines.values import COUNT, LARGEST_TEXT, Gibibytes, Number, Switch, Text, TokenCount, WholeNumber
from simulator.engines.vllm.compilation import FULL_AND_PIECEWISE, NONE, PIECEWISE, Compilation, CompilationConfig
from simulator.engines.vllm.defaults import (
    AUTO,
    ENCODER_MODES,
    GIB,
    MOE_BACKENDS,
    MOST_API_SERVERS,
    default_api_servers,
    default_async_scheduling,
    default_batched_tokens,
    default_memory_share,
    default_retention_interval,
    default_sequences,
)
from simulator.engines.vllm.environment import Variables, allows_tf32, check_environment, not_modelled, routes_evenly
from simulator.engines.vllm.expert_args import ExpertArgs
from simulator.engines.vllm.kv_outside import MOST_HOST_GIB, MOST_STORE_GIB, check_kv_offloading, check_kv_store
from simulator.engines.vllm.kv_transfer import KVTransfer, KVTransferConfig
from simulator.engines.vllm.modalities import LimitPerPrompt, ModalityLimits
from simulator.engines.vllm.speculation import Speculation, SpeculativeConfig, check_async_drafting

if TYPE_CHECKING:
    from kvcache.gpus.gpu import GPU
    from kvcache.shape.architecture import Architecture


@dataclass(frozen=True, kw_only=True)
class EngineArgs(ExpertArgs):
    """What `vllm serve` takes that decides an answer, then what only its simulation takes.

    None stands for vLLM's default, where that depends on the release, the GPU, the model or other arguments: `filled`
    puts it in, and what is typed here as always there is there from then on. An argument that is added here is an
    option of the command line, a key of --config, a flag of --vllm-args and a row of the reference table.
    """

    tensor_parallel_size: int = argument(
        WholeNumber(1),
        "GPUs that share each layer.",
        decides=MEMORY,
        default_of=lambda *_: 1,
        default_text="1",
        short="tp",
    )
    pipeline_parallel_size: int = argument(
        WholeNumber(1), "Pipeline stages. Each has a part of the layers.", decides=MEMORY, default=1, short="pp"
    )
    decode_context_parallel_size: int = argument(
        WholeNumber(1),
        "Decode context parallelism (DCP): so many of a layer's GPUs hold different tokens instead of copies.",
        decides=MEMORY,
        default=1,
        short="dcp",
    )
    data_parallel_size: int = argument(
        WholeNumber(1),
        "Data-parallel (DP) ranks of one server. In a MoE model they share the experts.",
        decides=MEMORY,
        default=1,
        short="dp",
    )
    api_server_count: int = argument(
        WholeNumber(1, most=MOST_API_SERVERS),
        "API servers: processes that tokenize prompts and stream answers side by side.",
        decides=SCHEDULER,
        default_of=lambda args, *_: default_api_servers(args.vllm_version, args.data_parallel_size),
        default_text="1; since 0.15 one for each DP rank",
        short="asc",
    )
    enable_expert_parallel: bool = argument(
        Switch(),
        "Expert parallelism: whole experts on each GPU instead of a part of each expert.",
        decides=MEMORY,
        default=False,
        aliases=("ep",),
    )
    dtype: str = argument(Text(), "Data type of unquantized weights: auto, float16, …", decides=MEMORY, default="auto")
    quantization: str | None = argument(
        Text(), "Weight format, such as fp8 or awq.", decides=MEMORY, default_text="the checkpoint's", short="q"
    )
    kv_cache_dtype: str = argument(
        Text(), "KV-cache format, such as fp8. auto: the checkpoint's own.", decides=MEMORY, default="auto"
    )
    mamba_ssm_cache_dtype: str = argument(
        Text(),
        "Format of the states of SSM and linear-attention layers, such as float16. auto: the model's.",
        decides=MEMORY,
        default="auto",
    )
    max_model_len: int = argument(
        TokenCount(),
        "Longest context in tokens, prompt and answer.",
        decides=MEMORY,
        default_of=lambda _, model, __: model.max_position_embeddings,
        default_text="the model's",
    )
    max_num_batched_tokens: int = argument(
        TokenCount(),
        "Most tokens in a step.",
        decides=MEMORY,
        default_of=default_batched_tokens,
        default_text="by GPU memory: 2,048, 8,192 or 16,384",
    )
    max_num_seqs: int = argument(
        COUNT,
        "Most sequences in a step.",
        decides=MEMORY,
        default_of=lambda args, _, gpu: default_sequences(args.vllm_version, args.max_num_batched_tokens, gpu),
        default_text="by GPU memory: 256 or 1,024",
    )
    gpu_memory_utilization: float = argument(
        Number("a share above 0, at most 1, such as 0.9"),
        "Share of GPU memory that vLLM uses.",
        decides=MEMORY,
        default_of=lambda args, *_: default_memory_share(args.vllm_version),
        default_text="0.92, or 0.9 before 0.21",
        aliases=("device-memory-utilization",),
    )
    block_size: int | None = argument(
        TokenCount(), "Tokens per KV block.", decides=MEMORY, default_text="the attention kernel's, mostly 16"
    )
    num_gpu_blocks_override: int | None = argument(
        COUNT, "Number of KV blocks, instead of the memory model's.", decides=MEMORY
    )
    kv_cache_memory_bytes: int | None = argument(
        TokenCount("BYTES", most=LARGEST_TEXT),
        "KV cache of each GPU, such as 40G. --gpu-memory-utilization then decides nothing.",
        decides=MEMORY,
        default_text="what the memory share leaves",
    )
    language_model_only: bool = argument(
        Switch(), "Text only: do not load the encoder of a multimodal model.", decides=MEMORY, default=False
    )
    limit_mm_per_prompt: ModalityLimits | None = argument(
        LimitPerPrompt(),
        'Most images, videos, … in a prompt: \'{"image": 0, "video": 0}\'. With 0 for all, the encoder is not loaded.',
        decides=MEMORY,
        default_text="no limit",
    )
    mm_encoder_tp_mode: str = argument(
        Text(),
        "weights: the encoder is split like other layers. data: each GPU has all of it.",
        decides=MEMORY,
        default=ENCODER_MODES[0],
    )
    enforce_eager: bool = argument(Switch(), "Run without CUDA graphs.", decides=MEMORY, default=False)
    enable_prefix_caching: bool = argument(
        Switch(), "Prefix caching: requests with the same prefix share KV blocks.", decides=MEMORY, default=True
    )
    kv_offloading_size: float | None = argument(
        Gibibytes(MOST_HOST_GIB),
        "CPU KV-cache offloading: CPU memory per engine, over all its GPUs. Blocks that the GPU evicts can be loaded "
        "again.",
        decides=MEMORY,
        default_text="none",
    )
    kv_offloading_backend: str = argument(
        Text(), "Backend of CPU KV-cache offloading: native.", decides=MEMORY, default="native"
    )
    kv_transfer_config: KVTransfer | None = argument(
        KVTransferConfig(),
        'As in vLLM, for CPU KV-cache offloading: \'{"kv_connector_extra_config": {"eviction_policy": "arc"}}\' '
        'with --kv-offloading-size, or LMCache\'s: \'{"kv_connector": "LMCacheConnectorV1", '
        '"kv_connector_extra_config": {"lmcache.max_local_cpu_size": 64}}\'.',
        decides=MEMORY,
        default_text="none",
    )
    kv_store_size: float | None = argument(
        Gibibytes(MOST_STORE_GIB, may_be_zero=True),
        "Remote KV cache: memory that all engines share over the network. Each engine loads what another has stored.",
        decides=MEMORY,
        default_text="none",
        is_engine_s=False,
    )
    kv_store_rate: float | None = argument(
        Number("GB/s above 0, such as 100"),
        "Bandwidth of the remote KV cache, one way, for all engines together.",
        decides=MEMORY,
        default_text="no limit but each GPU's network card",
        is_engine_s=False,
    )
    async_scheduling: bool = argument(
        Switch(),
        "Schedule the next step while one runs.",
        decides=MEMORY,
        default_of=lambda args, *_: default_async_scheduling(args.vllm_version, args.speculation),
        default_text="on since 0.14, except with most kinds of speculative decoding",
    )
    vllm_version: str = argument(
        Text(), "vLLM release to simulate.", decides=MEMORY, default=DEFAULT_RELEASE, is_engine_s=False
    )
    scheduling_policy: str = argument(Text(), "Scheduling policy: fcfs or priority.", decides=SCHEDULER, default="fcfs")
    long_prefill_token_threshold: int = argument(
        WholeNumber(0), "Most prompt tokens of one request in a step. 0: no limit.", decides=SCHEDULER, default=0
    )
    enable_chunked_prefill: bool = argument(
        Switch(), "Chunked prefill: compute a long prompt over several steps.", decides=MEMORY, default=True
    )
    scheduler_reserve_full_isl: bool = argument(
        Switch(), "Admit a request only if its whole prompt fits in the KV cache.", decides=SCHEDULER, default=True
    )
    watermark: float = argument(
        Number("a share from 0 to below 1, such as 0.01"),
        "Share of KV blocks that must stay free to admit a request while others run.",
        decides=SCHEDULER,
        default=0.0,
    )
    prefix_cache_retention_interval: int | None = argument(
        WholeNumber(0),
        "Prefix cache of sliding-window and SSM layers: tokens between cached positions.",
        decides=SCHEDULER,
        default_of=lambda args, *_: default_retention_interval(args.vllm_version),
        default_text="0 since 0.29; all positions before",
    )
    speculation: Speculation | None = argument(
        SpeculativeConfig(),
        'As in vLLM, plus the share of draft tokens that is accepted: \'{"method": "eagle3", '
        '"num_speculative_tokens": 3, "acceptance_rate": 0.7}\'.',
        decides=MEMORY,
        flag="speculative-config",
    )
    moe_backend: str = argument(
        Text(), "Kernels of MoE experts, such as triton or marlin.", decides=STEP_TIME, default=AUTO
    )
    top_p_sampling: bool = argument(
        Switch(),
        "Requests sample with top-p or top-k, as in many models' default settings. Slow before vLLM 0.17.",
        decides=STEP_TIME,
        default=False,
        is_engine_s=False,
    )
    compilation: Compilation | None = argument(
        CompilationConfig(),
        "As in vLLM. It sets which steps use CUDA graphs, and whether all-reduces are fused with norms: "
        '\'{"cudagraph_mode": "PIECEWISE", "pass_config": {"fuse_allreduce_rms": false}}\'.',
        decides=MEMORY,
        default_text="the release's",
        flag="compilation-config",
    )
    environment: tuple[str, ...] = argument(
        Variables(),
        "Environment variables of the server, such as 'VLLM_FLOAT32_MATMUL_PRECISION=high'.",
        decides=MEMORY,
        default=(),
        is_engine_s=False,
    )
    max_cudagraph_capture_size: int | None = None  # no option: the memory of graphs does not follow it yet

    def __post_init__(self) -> None:
        described = arguments_of(type(self))
        if isinstance(self.moe_backend, str):  # as vLLM reads it
            object.__setattr__(self, "moe_backend", self.moe_backend.lower().replace("-", "_"))
        for name in ("speculation", "compilation", "limit_mm_per_prompt", "eplb_config"):
            if isinstance(given := getattr(self, name), dict | str):  # JSON, or what it says
                object.__setattr__(self, name, described[name].kind.read(given))
        if self.kv_store_size == 0:
            object.__setattr__(self, "kv_store_size", None)
        self._read_kv_transfer()
        super().__post_init__()
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise HeadcountError(f"gpu_memory_utilization is {share}, must lie in (0, 1]")
        if self.block_size not in (None, 1, 8) and self.block_size % 16:
            raise HeadcountError(f"block_size is {self.block_size}; vLLM takes a multiple of 16, such as 16, 32 or 64")
        if self.moe_backend not in MOE_BACKENDS:
            hint = nearest_hint(self.moe_backend, MOE_BACKENDS)
            raise UnknownNameError(f"no moe_backend {shortened(self.moe_backend, 40)!r}; {hint}")
        if self.language_model_only and not LANGUAGE_MODEL_ONLY.holds_in(self.vllm_version):
            raise HeadcountError(f"vLLM has --language-model-only from {LANGUAGE_MODEL_ONLY.first} on; leave it out")
        check_names([self.mm_encoder_tp_mode], ENCODER_MODES, "mm_encoder_tp_mode")
        size, transfer = self.kv_offloading_size, self.kv_transfer_config
        check_kv_store(self.kv_store_size, self.kv_store_rate, transfer, size)
        has_store = self.kv_store_size is not None
        check_kv_offloading(size, self.kv_offloading_backend, transfer, self.vllm_version, has_store=has_store)
        if self.speculation is not None and self.speculation.topk > 1:
            raise HeadcountError(
                "vLLM has no trees of draft tokens: topk of --speculative-config belongs to --engine sglang"
            )
        if self.async_scheduling and self.speculation is not None:
            check_async_drafting(self.speculation, self.vllm_version)

    def _read_kv_transfer(self) -> None:
        """A size that stands in `kv_transfer_config` is that of host memory, unless that is given too, as in vLLM."""
        config = self.kv_transfer_config
        if isinstance(config, dict | str):
            config = KVTransferConfig().read(config)
        if isinstance(config, KVTransfer) and config.cpu_bytes_to_use is not None:
            if self.kv_offloading_size is None:
                object.__setattr__(self, "kv_offloading_size", config.cpu_bytes_to_use / GIB)
            config = replace(config, cpu_bytes_to_use=None)
        object.__setattr__(self, "kv_transfer_config", config)

    @property
    def lmcache(self) -> LMCacheMemory | None:
        """LMCache's part of host memory."""
        return self.kv_transfer_config.lmcache if self.kv_transfer_config else None

    @property
    def decode_width(self) -> int:
        """Tokens that a decoding sequence takes of a step: its own, and the drafts that are verified."""
        return 1 + (self.speculation.num_speculative_tokens if self.speculation else 0)

    def is_text_only(self, model: "Architecture") -> bool:
        """Whether vLLM loads the model without its encoder."""
        limits = self.limit_mm_per_prompt or ModalityLimits()
        excludes = self.language_model_only or limits.excludes(model.modalities)
        return bool(model.modalities) and excludes and NO_ENCODER_FOR_TEXT.holds_in(self.vllm_version)

    @property
    def splits_encoder(self) -> bool:
        return self.mm_encoder_tp_mode != "data"

    @property
    def sorts_to_sample(self) -> bool:
        """The whole vocabulary, for every token."""
        return self.top_p_sampling and SORTS_TO_SAMPLE.holds_in(self.vllm_version)

    @property
    def allows_tf32(self) -> bool:
        """In multiplies of 32 bits."""
        return allows_tf32(self.environment)

    @property
    def routes_evenly(self) -> bool:
        """Each token's experts drawn evenly, instead of chosen by the model."""
        return routes_evenly(self.environment)

    @property
    def cudagraph_mode(self) -> str:
        """Which steps CUDA graphs replay; engine V0 replayed whole decodes, too."""
        asked = self.compilation.cudagraph_mode if self.compilation else None
        if self.enforce_eager or self.dispatch_rules_out_graphs:
            return NONE
        has_full = FULL_CUDA_GRAPHS.holds_in(self.vllm_version) or not ENGINE_V1.holds_in(self.vllm_version)
        return asked or (FULL_AND_PIECEWISE if has_full else PIECEWISE)

    @property
    def has_cuda_graphs(self) -> bool:
        """Whether they replay any steps."""
        return self.cudagraph_mode != NONE

    @property
    def has_full_cuda_graphs(self) -> bool:
        """Whether they replay whole decodes, attention included."""
        return self.cudagraph_mode not in (NONE, PIECEWISE)

    def fuses_all_reduces(self, gpu: "GPU") -> bool:
        """With the norms after them, by FlashInfer's kernel."""
        asked = self.compilation.fuse_allreduce_rms if self.compilation else None
        rule = FUSED_ALL_REDUCES_ON_B300 if gpu.name in ("b300-sxm", "gb300") else FUSED_ALL_REDUCES
        is_known = gpu.family in ("hopper", "blackwell")
        return is_known and (rule.holds_in(self.vllm_version) if asked is None else asked)

    @property
    def num_engines(self) -> int:
        """Schedulers of one replica."""
        return self.data_parallel_size

    @property
    def num_gpus(self) -> int:
        """Of one replica."""
        return (self.tensor_parallel_size or 1) * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def ignored_environment(self) -> tuple[str, ...]:
        """Variables that may change the answer, and are not looked at."""
        return not_modelled(self.environment)

    def filled(self, model: "Architecture", gpu: "GPU") -> "EngineArgs":
        """The same arguments with vLLM's default for every one that is None.

        Raises ValueError for more sequences than tokens in a step, which vLLM refuses, or a drafter split otherwise.
        """
        check_environment(self.environment, self.num_gpus)
        self.check_balancing(model)
        args = self.with_defaults(model, gpu)
        of_drafts = args.speculation.draft_tensor_parallel_size if args.speculation else None
        if of_drafts not in (None, args.tensor_parallel_size):
            raise HeadcountError(
                f"draft_tensor_parallel_size is {of_drafts}, not tensor_parallel_size, {args.tensor_parallel_size}; "
                "such drafting is not simulated: leave it out"
            )
        if args.max_num_seqs > args.max_num_batched_tokens:
            raise HeadcountError(
                f"max_num_seqs is {args.max_num_seqs:,}, above max_num_batched_tokens "
                f"{args.max_num_batched_tokens:,}; lower it or raise that"
            )
        return args
