"""A model on GPUs under an engine's arguments: everything that follows from them, ready to be simulated."""

import shlex
from dataclasses import dataclass, replace
from typing import Any

from files.errors import HeadcountError
from kvcache.errors import DoesNotFitError, SplitError
from kvcache.gpus.gpu import GPU
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.architecture import Architecture
from simulator.engines.argument import command_line
from simulator.engines.engines import TITLES, VLLM, AnyArgs, engine_of, with_settings
from simulator.engines.memory import require_fit, startable
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.drafts import words_of as draft_words
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.sglang.engine_config import engine_config as sglang_config
from simulator.engines.vllm.adapter_args import lora_words
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.engine import EngineConfig, engine_config
from simulator.engines.vllm.images import encoder_limits
from simulator.engines.vllm.kv_transfer import KVTransfer
from simulator.fleet.fleet import Fleet, Pool
from simulator.fleet.router import RouterFactory
from simulator.latency.cold_start import cold_start
from simulator.latency.forms import latency_model
from simulator.latency.model import LatencyModel, ServedModel, served_model
from simulator.latency.profile_file import read_profile
from simulator.once import once

MAX_TENSOR_PARALLEL_SIZE = 8  # GPUs of one node: TP across nodes is not modelled
Assumption = tuple[str, str, str]  # name, value, source
_SGLANG_SETTINGS = (
    "sglang_version", "quantization", "kv_cache_dtype", "mem_fraction_static", "context_length", "page_size",
    "chunked_prefill_size", "max_prefill_tokens", "max_running_requests", "schedule_policy", "enable_mixed_chunk",
    "disable_overlap_schedule", "disable_radix_cache", "radix_eviction_policy",
)  # fmt: skip
NO_CACHING: Assumption = (
    "prefix caching",
    "off",
    "not simulated for models with KV blocks of unequal size, nor before 0.32 with SSM state; with prefix caching "
    "vLLM serves at least as many users",
)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One replica: what it serves on what under which arguments, its memory, its scheduler's settings, its step times.

    `given` are the arguments as they were asked for; `args` have the engine's default for each that was not.
    """

    given: AnyArgs
    served: ServedModel
    budget: MemoryBudget
    engine: EngineConfig | SGLangConfig
    latency: LatencyModel

    @property
    def args(self) -> AnyArgs:
        return self.served.args

    @property
    def title(self) -> str:
        """Whose engine it is: vLLM or SGLang, with its release."""
        return f"{TITLES[engine_of(self.args)]} {self.release}"

    @property
    def release(self) -> str:
        """The engine's."""
        return self.args.sglang_version if isinstance(self.args, SGLangArgs) else self.args.vllm_version

    @property
    def architecture(self) -> Architecture:
        """In the dtype that it is served in."""
        return self.served.architecture

    @property
    def gpu(self) -> GPU:
        return self.served.gpu

    @property
    def tensor_parallel_size(self) -> int:
        """GPUs that share a layer's attention."""
        return self.args.attention_ranks

    @property
    def pipeline_parallel_size(self) -> int:
        return self.args.pipeline_parallel_size

    @property
    def data_parallel_size(self) -> int:
        return self.budget.data_parallel_size

    @property
    def ranks_in_step(self) -> int:
        """Attention replicas whose steps begin and end together: those of a mixture that share its experts."""
        return self.args.data_parallel_size if self.architecture.is_moe else 1

    @property
    def api_servers(self) -> int:
        """Of a server. Ranks that share nothing are servers of their own here, with their part of the API servers."""
        count = self.args.api_server_count if isinstance(self.args, EngineArgs) else 1
        return max(count * self.ranks_in_step // self.data_parallel_size, 1)

    def num_api_servers(self, replicas: int) -> int:
        """Of so many replicas."""
        return replicas * self.data_parallel_size // self.ranks_in_step * self.api_servers

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.args.num_gpus

    @property
    def serve_line(self) -> str:
        """The command that starts such a server."""
        words = command_line(self.given)
        if isinstance(self.given, SGLangArgs):
            words += draft_words(self.given.speculation) if self.given.speculation else []
            return shlex.join(["python", "-m", "sglang.launch_server", "--model-path", self.architecture.name, *words])
        if self.shares_kv_store and self.given.kv_transfer_config is None:
            words += ["--kv-transfer-config", str(KVTransfer(is_store=True))]
        words += lora_words(self.given, self.args)
        return shlex.join(["vllm", "serve", self.architecture.name, *words])

    @property
    def shares_kv_store(self) -> bool:
        """Whether its replicas keep KV in one store."""
        return self.engine.host_tier is not None and self.engine.host_tier.is_shared

    def fleet(self, num_replicas: int, router: str | RouterFactory | None) -> Fleet:
        """Ranks that keep step form a server; others share nothing, so each is a replica.

        Without a router it is `default_router`'s.
        """
        together = self.ranks_in_step
        pool = Pool(
            engine=self.engine,
            step_times=self.latency.step_times,
            num_servers=num_replicas * self.data_parallel_size // together,
            data_parallel_size=together,
            api_servers=self.api_servers,
        )
        own = default_router(self.data_parallel_size, num_replicas, engine_of(self.args))
        return Fleet(pools=(pool,), router=own if router is None else router)

    def with_step_times(self, factor: float) -> "Deployment":
        """The same, each step of which takes so many times as long."""
        step_times = self.latency.step_times.times(factor)
        return replace(self, latency=replace(self.latency, step_times=step_times))

    def with_kv_blocks(self, blocks: int) -> "Deployment":
        """The same with another number of KV blocks to schedule with."""
        if isinstance(self.engine, SGLangConfig):
            return replace(self, engine=self.engine.with_pages(blocks))
        return replace(self, engine=replace(self.engine, num_gpu_blocks=blocks))

    @property
    def vllm_engine(self) -> EngineConfig:
        """The settings of vLLM's scheduler. Raises HeadcountError for what is simulated with vLLM alone."""
        if not isinstance(self.engine, EngineConfig):
            raise HeadcountError(f"this is not simulated with {self.title}; choose vLLM")
        return self.engine

    @property
    def num_gpu_blocks(self) -> int:
        """KV blocks to schedule with; of SGLang, pages."""
        engine = self.engine
        return engine.num_usable_blocks if isinstance(engine, SGLangConfig) else engine.num_gpu_blocks

    @property
    def settings(self) -> dict[str, str | int | float]:
        """The engine's arguments that decide the answer, given or assumed."""
        if isinstance(self.args, SGLangArgs):
            return {name: getattr(self.args, name) for name in _SGLANG_SETTINGS}
        names = (
            "vllm_version", "quantization", "kv_cache_dtype", "gpu_memory_utilization", "max_model_len",
            "max_num_batched_tokens", "max_num_seqs",
        )  # fmt: skip
        found = {name: getattr(self.budget, name) for name in names}
        sizes = {name: getattr(self.args, name) for name in ("kv_offloading_size", "kv_store_size", "kv_store_rate")}
        host: dict[str, str | float] = {name: size for name, size in sizes.items() if size is not None}
        if self.args.kv_transfer_config is not None:
            host["kv_transfer_config"] = str(self.args.kv_transfer_config)
        return found | {"async_scheduling": self.args.async_scheduling} | host

    @property
    def resolved(self) -> tuple[object, ...]:
        """All that it serves by, whether it was given or is a default: the same of two that serve alike."""
        found: dict[str, Any] = {"quantization": self.budget.quantization}
        if self.args.kv_cache_dtype == "auto":
            found["kv_cache_dtype"] = self.args.kv_cache_spelling(self.architecture.dtype)
        if isinstance(self.args, EngineArgs):
            found["block_size"] = None  # the scheduler's settings have it
        args = replace(self.args, **found)
        return args, self.architecture, self.gpu, self.engine, replace(self.budget, kv_cache_dtype=args.kv_cache_dtype)

    @property
    def not_simulated(self) -> tuple[Assumption, ...]:
        """What vLLM would do by default and the simulation leaves out."""
        if isinstance(self.engine, SGLangConfig):
            return ()
        has_caching = self.engine.enable_prefix_caching or self.budget.layout.mamba_cache_mode == "none"
        return (NO_CACHING,) if self.args.enable_prefix_caching and not has_caching else ()

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (*self.budget.assumptions, *self.not_simulated, *self.latency.assumptions)


def default_router(data_parallel_size: int, num_servers: int, engine: str = VLLM) -> str:
    """Who gives requests to engines: one server does so itself for those that it starts.

    SGLang by `--load-balance-method auto`, in turn (`srt/managers/data_parallel_controller.py`).
    """
    if data_parallel_size == 1 or num_servers > 1:
        return "least-outstanding"
    return "vllm-dp" if engine == VLLM else "round-robin"


def resolve(model: str | Architecture, gpu: str | GPU, args: AnyArgs | None = None, **settings: object) -> Deployment:
    """What follows from a model, a GPU and an engine's arguments; `settings` are arguments by name, and the `engine`.

    Raises DoesNotFitError where the engine would not start, with the smallest change that lets it.
    """
    given = with_settings(args, settings)
    architecture = load_model(model) if isinstance(model, str) else model
    gpu = find_gpu(gpu) if isinstance(gpu, str) else gpu
    budget = require_fit(architecture, gpu, given)
    if architecture.is_moe and given.data_parallel_size > 1 and budget.host is not None:
        own = "--kv-store-size" if budget.host.is_shared else "--kv-offloading-size"
        raise HeadcountError(
            "CPU KV-cache offloading with data parallelism is not simulated; leave "
            f"{'--kv-transfer-config' if given.lmcache else own} out"
        )
    served = served_model(architecture, gpu, given, kv_cache_dtype=given.kv_cache_spelling(budget.kv_cache_dtype))
    latency = latency_model(served, form=given.latency_model, **_latency_settings(given))
    return Deployment(
        given=given,
        served=served,
        budget=budget,
        engine=_engine(served.args, budget, architecture),
        latency=replace(
            latency, step_times=latency.step_times.with_cold_start(*cold_start(served, given.cold_start_s))
        ),
    )


def _engine(args: AnyArgs, budget: MemoryBudget, architecture: Architecture) -> EngineConfig | SGLangConfig:
    if isinstance(args, SGLangArgs):
        return sglang_config(args, budget)
    return replace(engine_config(args, budget), encoder=encoder_limits(args, architecture))


def _latency_settings(args: AnyArgs) -> dict[str, object]:
    """What the latency model takes beside the deployment. Raises HeadcountError where it takes nothing."""
    if args.latency_profile is not None:
        if args.latency_model != "physical" or args.step_s is not None:
            raise HeadcountError("--latency-profile needs --latency-model physical; leave out one of them")
        return {"profile": read_profile(args.latency_profile)}
    if args.step_s is None:
        return {}
    if args.latency_model != "constant":
        raise HeadcountError("--step-s needs --latency-model constant; give both or neither")
    return {"step_s": args.step_s}


def layouts(architecture: Architecture, gpu: GPU, args: AnyArgs, *, num_gpus: int) -> dict[int, Deployment | str]:
    """By tensor-parallel size: the asked one, or every one that may be; with why it cannot run.

    That is what divides the GPU count, and powers of two, which may leave GPUs over.
    """
    ranks = args.pipeline_parallel_size * args.num_engines
    gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    groups = args.attention_groups
    if args.tensor_parallel_size is not None:
        size = args.tensor_parallel_size
        if num_gpus % args.num_gpus:
            sizes = ("tensor", size), ("pipeline", args.pipeline_parallel_size), ("data", args.num_engines)
            named = " × ".join(f"{what} parallel size {n}" for what, n in sizes if n > 1 or what == "tensor")
            return {size: f"{named} does not divide {gpus}; leave it out to try each that does"}
        return {size // groups: _resolved_or_why(architecture, gpu, args, ValueError)}
    if num_gpus % (ranks * groups):
        flags = ("pipeline", args.pipeline_parallel_size), ("data", args.num_engines)
        named = [f"--{what}-parallel-size {n}" for what, n in flags if n > 1]
        return {1: f"{' × '.join([*named, *([f'--attn-dp-size {groups}'] * (groups > 1))])} does not divide {gpus}"}
    ranks *= groups
    most = min(num_gpus // ranks, MAX_TENSOR_PARALLEL_SIZE)
    usual = (1, 2, 4, 8)
    sizes_tried = [size for size in range(1, most + 1) if num_gpus // ranks % size == 0 or size in usual]
    tried = {size: args.with_attention_ranks(size) for size in sizes_tried}
    return {
        size: _resolved_or_why(architecture, gpu, changed, DoesNotFitError, SplitError)
        for size, changed in tried.items()
        if architecture.num_attention_heads % size == 0  # vLLM refuses others, and nobody asks for them
    }


@once
def _resolved_or_why(
    architecture: Architecture, gpu: GPU, args: AnyArgs, *refusals: type[ValueError]
) -> Deployment | str:
    try:
        return resolve(architecture, gpu, startable(architecture, gpu, args))
    except refusals as error:
        return str(error)
