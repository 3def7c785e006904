"""Does a model fit on a GPU, in which formats, where does the memory go, and what does the KV cache hold?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from files.documents import Json
from files.errors import HeadcountError
from files.reading import InputError
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import ModelOnGPU, check_counts
from headcount.queries.report_data.waterfall import waterfall
from headcount.queries.result import Result, Verdict
from headcount.text.units import GIB, assumptions_json
from headcount.text.words import longest_name
from kvcache.memory.assumptions import STARTS
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.conversations import conversations_at_once, tokens_per_user
from kvcache.memory.terms import gib_text
from simulator.engines.engines import SGLANG
from simulator.engines.memory import Remedy, memory_budget, remedies, why_unfit
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.comparison import (
    TENSOR_PARALLEL_SIZES,
    Candidate,
    compare,
    kv_cache_formats,
)
from workloads.load import load_preset
from workloads.populations.equilibrium import equilibrium

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

PRESET = "chat"
USERS = (1, 10, 100, 1000)
BUDGET_KEYS = (
    "model", "gpu", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel",
    "dtype", "quantization", "kv_cache_dtype", "gpu_memory_utilization", "max_model_len", "max_num_seqs",
    "max_num_batched_tokens", "vllm_version", "fits", "missing_bytes", "spare_bytes", "total_bytes", "requested_bytes",
    "weights_bytes", "activation_peak_bytes", "non_torch_bytes", "cuda_graph_bytes", "available_kv_bytes",
    "required_kv_bytes", "num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high", "block_size", "kv_cache_tokens",
    "kv_cache_tokens_low", "kv_cache_tokens_high", "max_concurrency", "kv_bytes_per_token",
    "kv_bytes_per_token_per_gpu", "state_bytes_per_request",
)  # fmt: skip
LOGGED = {  # parts of the waterfall, under their names in a start-up log
    "weights": "weights", "activation peak": "activation_peak", "non-torch": "non_torch", "KV cache": "available_kv",
}  # fmt: skip
KEYS = (
    "tensor_parallel_size", "quantization", "kv_cache_dtype", "fits", "missing_bytes", "spare_bytes", "weights_bytes",
    "available_kv_bytes", "num_gpu_blocks", "kv_cache_tokens", "max_concurrency",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MeanContext:
    """The length that stands for a typical conversation, with where it comes from."""

    tokens: int
    source: str


@dataclass(frozen=True)
class LoggedTerm:
    """What a server logged beside what the memory model says: GiB per GPU, or blocks."""

    name: str
    key: str  # in JSON
    logged: float | None
    modelled: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MemoryResult(Result):
    """A budget, what it means for people, and what would make it fit."""

    kind = "memory"
    view = "memory"
    budget: MemoryBudget
    users: tuple[int, ...] = USERS
    given_context_tokens: int | None = None  # None: the chat preset's mean
    remedies: Sequence[Remedy] = ()
    asked_about: ModelOnGPU | None = None
    architecture_assumptions: Sequence[tuple[str, str, str]] = ()
    log: "StartupLog | None" = None
    log_terms: Sequence[LoggedTerm] = ()

    @property
    def fits(self) -> bool:
        """Whether vLLM would start."""
        return self.budget.fits

    @cached_property
    def context(self) -> MeanContext:
        """What stands for a typical conversation; drawn only when asked for."""
        budget = self.budget
        return mean_context(self.given_context_tokens, budget.max_model_len, longest_name(budget.engine))

    @property
    def conversations_at_once(self) -> int:
        """Conversations of the mean context that fit at once."""
        return conversations_at_once(self.budget, self.context.tokens)

    @property
    def tokens_per_user(self) -> dict[int, int]:
        """How long a context each of so many users can hold at once."""
        return {users: tokens_per_user(self.budget, users) for users in self.users}

    def figures(self) -> Json:
        found = {key: getattr(self.budget, key) for key in BUDGET_KEYS}
        found |= {"adapter_bytes": self.budget.adapter_bytes} if self.budget.adapter_bytes else {}
        if self.budget.engine == "sglang":
            found |= {"engine": "sglang", "max_total_num_tokens": self.budget.kv_cache_tokens}
            windows = self.budget.window_kv_tokens
            found |= {} if windows is None else {"swa_max_total_num_tokens": windows}
            slots = self.budget.state_slots
            found |= {} if slots is None else {"max_mamba_cache_size": slots}
        found |= {
            "remedies": list(self.remedies),
            "mean_context_tokens": self.context.tokens,
            "mean_context_source": self.context.source,
            "conversations_at_once": self.conversations_at_once,
            "tokens_per_user": [{"users": n, "tokens_per_user": tokens} for n, tokens in self.tokens_per_user.items()],
            "architecture_assumptions": assumptions_json(self.architecture_assumptions),
            "assumptions": assumptions_json(self.budget.assumptions),
        }
        if (host := self.budget.host) is not None and host.is_shared:
            found |= {
                "kv_store_chunks": host.num_chunks,
                "kv_store_tokens": host.num_tokens,
                "kv_store_bytes": host.num_bytes,
                "kv_store_copy_bytes_per_s": host.copied_bytes_per_s,
                "kv_store_bytes_per_s": host.store_bytes_per_s,
            }
        elif host is not None:
            found |= {
                "host_kv_chunks": host.num_chunks,
                "host_kv_tokens": host.num_tokens,
                "host_kv_bytes": host.num_bytes,
                "host_kv_bytes_per_server": host.num_bytes * self.budget.data_parallel_size,
                "host_copy_bytes_per_s": host.copied_bytes_per_s,
            }
        if self.log_terms:
            terms = {term.key: {"logged": term.logged, "modelled": term.modelled} for term in self.log_terms}
            found["startup_log"] = terms
        return found

    def rows(self) -> list[Json]:
        return [{"part": name, "bytes": size, "gib": size / GIB} for name, size in waterfall(self.budget)]


@question
def memory(
    model: str,
    gpu: str,
    *,
    users: Sequence[int] = USERS,
    mean_context: int | None = None,
    engine: EngineInput = EngineInput(),
    strict: bool = False,
) -> MemoryResult:
    """Whether a model fits on a GPU under vLLM or SGLang, where the memory goes, what the KV cache holds.

    Engine arguments are vLLM's under their names, or with `engine="sglang"` SGLang's; `mean_context` is a typical
    conversation in tokens. Raises ValueError for a bad argument, RefusedError where `strict` refuses a note.
    """
    asked = engine.on(model, gpu)
    return memory_answer(asked, users, mean_context, engine.startup_log, strict=strict)


def memory_answer(
    asked: ModelOnGPU,
    users: Sequence[int],
    mean_context: int | None,
    log: "StartupLog | None" = None,
    *,
    strict: bool,
) -> MemoryResult:
    """The budget of one deployment with its notes."""
    check_counts("users", users)
    if mean_context is not None:
        check_counts("mean_context", [mean_context])
    budget = memory_budget(asked.architecture, asked.gpu, asked.args)
    found = [] if budget.fits else remedies(asked.architecture, asked.gpu, budget, asked.args)
    missing = None if budget.fits else why_unfit(budget, asked.args, found)
    return MemoryResult(
        diagnostics=find_diagnostics(facts_about(asked, terms=budget.assumptions, why_unfit=missing), strict=strict),
        verdict=Verdict.DONE if budget.fits else Verdict.BAD_INPUT,
        budget=budget,
        users=tuple(users),
        given_context_tokens=mean_context,
        remedies=found,
        asked_about=asked,
        architecture_assumptions=asked.architecture.assumptions,
        log=log,
        log_terms=() if log is None else _log_terms(asked, log, budget),
    )


def _log_terms(asked: ModelOnGPU, log: "StartupLog", budget: MemoryBudget) -> list[LoggedTerm]:
    """What the server logged beside what would have been predicted."""
    is_sglang = isinstance(asked.args, SGLangArgs)
    given = "max_total_num_tokens" if is_sglang else "num_gpu_blocks_override"
    modelled = memory_budget(asked.architecture, asked.gpu, asked.args, **{given: None})
    sizes = dict(waterfall(modelled))
    found = [
        LoggedTerm(name, f"{kind}_gib", log.memory_gib.get(kind), sizes[name] / GIB)
        for name, kind in LOGGED.items()
        if name in sizes
    ]
    if is_sglang:
        tokens = budget.kv_cache_tokens, modelled.kv_cache_tokens
        return [*found, LoggedTerm("KV tokens", "max_total_num_tokens", *tokens)]
    return [*found, LoggedTerm("KV blocks", "num_gpu_blocks", budget.num_gpu_blocks, modelled.num_gpu_blocks)]


def mean_context(given: int | None, max_model_len: int, longest: str = "max_model_len") -> MeanContext:
    """The context given, at most `max_model_len`, or the chat preset's mean at that length; `longest`: its name."""
    if given is not None:
        cut = f", cut to {longest} {max_model_len:,}" if given > max_model_len else ""
        return MeanContext(tokens=min(given, max_model_len), source=f"--mean-context{cut}")
    try:
        tokens = round(equilibrium(load_preset(PRESET), max_model_len).context)
    except InputError:
        return MeanContext(tokens=max_model_len, source=f"{longest}, too short for the {PRESET} preset")
    return MeanContext(tokens=tokens, source=f"mean prompt and answer of the {PRESET} preset")


def is_doubtful(budget: MemoryBudget) -> bool:
    """Whether it fits, but would not start at the low end of the KV blocks' interval."""
    if budget.engine == "sglang":
        return budget.fits and budget.num_gpu_blocks_low == 0
    low = budget.num_gpu_blocks_low
    is_short = low * budget.available_kv_bytes < budget.required_kv_bytes * budget.num_gpu_blocks
    return budget.fits and (is_short or budget.may_lack_blocks)


def may_start(budget: MemoryBudget) -> bool:
    """Whether it does not fit, but would start at the high end of the KV blocks' interval."""
    return not budget.fits and any(name == STARTS for name, _, _ in budget.assumptions)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MemoryComparison(Result):
    """Every way to run the model that the question leaves open; `single` is the one with vLLM's defaults."""

    kind = "memory"
    view = "memory_comparison"
    single: MemoryResult
    candidates: tuple[Candidate, ...]

    def figures(self) -> Json:
        budget = self.single.budget
        names = ("model", "gpu", "pipeline_parallel_size", "max_model_len", "gpu_memory_utilization", "vllm_version")
        refused = ("tensor_parallel_size", "quantization", "kv_cache_dtype")
        return {
            **{name: getattr(budget, name) for name in names},
            **({"engine": budget.engine} if budget.engine == SGLANG else {}),
            "mean_context_tokens": self.single.context.tokens,
            "mean_context_source": self.single.context.source,
            "comparison": self.rows(),
            "refused": [
                {name: getattr(row, name) for name in refused} | {"reason": row.refusal}
                for row in self.candidates
                if row.budget is None
            ],
        }

    def rows(self) -> list[Json]:
        return [
            {key: getattr(row.budget, key) for key in KEYS}
            | {
                "is_checkpoint_format": row.quantization is None,
                "conversations_at_once": conversations_at_once(row.budget, self.single.context.tokens),
            }
            for row in self.candidates
            if row.budget is not None
        ]

    def cells(self) -> list[tuple[str, ...]]:
        """Cells under COLUMNS; what vLLM refuses is left out (see `remarks`)."""
        found: list[tuple[str, ...]] = []
        for row in self.candidates:
            budget = row.budget
            if budget is None:
                continue
            name = _named(budget.quantization, row.quantization is None)
            start = (name, budget.kv_cache_dtype, f"{budget.tp}", f"{budget.weights_bytes / GIB:,.2f}")
            held: tuple[str, ...] = ("–",) * 4
            if budget.fits:
                count = conversations_at_once(budget, self.single.context.tokens)
                kv = f"{budget.available_kv_bytes / GIB:,.2f}"
                held = (kv, f"{budget.kv_cache_tokens:,}", f"{budget.max_concurrency:,.2f}", f"{count:,}")
            found.append((*start, *held, _fit(budget)))
        return found


@question
def memory_comparison(
    model: str,
    gpu: str,
    *,
    users: Sequence[int] = (),
    mean_context: int | None = None,
    engine: EngineInput = EngineInput(),
    strict: bool = False,
) -> MemoryComparison:
    """Memory over tensor-parallel sizes, weight formats and KV-cache formats, as far as none is given.

    Arguments as for `memory`. Raises HeadcountError where vLLM refuses every way.
    """
    asked = engine.on(model, gpu)
    args = asked.args
    if args.num_gpu_blocks_override is not None:
        raise HeadcountError(
            "--compare works out each row's KV blocks; leave out --num-gpu-blocks-override and --startup-log"
        )
    candidates = candidates_of(asked)
    single = memory_answer(asked, users, mean_context, strict=strict)
    budget, fits = single.budget, any(row.fits for row in candidates)
    nowhere = f"{budget.model} fits on {budget.gpu} in none of these ways; take a larger GPU"
    facts = facts_about(asked, why_unfit=None if fits else nowhere)
    return MemoryComparison(
        diagnostics=find_diagnostics(facts, strict=strict),
        verdict=Verdict.DONE if fits else Verdict.BAD_INPUT,
        single=single,
        candidates=candidates,
    )


def _named(quantization: str, is_own: bool) -> str:
    name = format_name(quantization)
    return f"{name} (own)" if is_own else name


def _fit(budget: MemoryBudget) -> str:
    if budget.fits:
        return f"{'barely' if is_doubtful(budget) else 'yes'}, {gib_text(budget.spare_bytes)} to spare"
    if not budget.missing_bytes:
        return f"no, {budget.missing_blocks:,} KV blocks short"
    return f"no, {gib_text(max(budget.missing_bytes, 1))} short"


def candidates_of(asked: ModelOnGPU) -> tuple[Candidate, ...]:
    """Every way to run the model that the question leaves open."""
    args = asked.args
    size, quantization = args.tensor_parallel_size, args.quantization
    return compare(
        asked.architecture,
        asked.gpu,
        args,
        tensor_parallel_sizes=TENSOR_PARALLEL_SIZES if size is None else (size,),
        quantizations=None if quantization is None else (quantization,),
        kv_cache_dtypes=kv_cache_formats(args) if args.kv_cache_dtype == "auto" else (args.kv_cache_dtype,),
    )


def format_name(quantization: str) -> str:
    """As a table names a weight format."""
    return "16 bits" if quantization == "none" else quantization
