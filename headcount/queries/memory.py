"""Does a model fit on a GPU, where does the memory go, and how many conversations does the KV cache hold?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from files.reading import InputError
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.deployments import ModelOnGPU, check_counts, resolve_model_and_gpu
from headcount.queries.report_data.assumptions import of_terms
from headcount.queries.report_data.memory import (
    WORDS,
    memory_json,
    unfit_page,
    waterfall,
)
from headcount.queries.result import Result, Verdict, question
from headcount.views.summary.summary import Summary, risk_of
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import GIB, assumptions_json
from headcount.text.words import host_text, longest_name, model_title, pool_text, sentence
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.conversations import conversations_at_once, tokens_per_user
from simulator.engines.memory import Remedy, memory_budget, remedies, why_unfit
from simulator.engines.sglang.arguments import SGLangArgs
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
    budget: MemoryBudget
    users: tuple[int, ...] = USERS
    given_context_tokens: int | None = None  # None: the chat preset's mean
    remedies: Sequence[Remedy] = ()
    resolve_model_and_gpu: ModelOnGPU | None = None
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

    def figures(self) -> dict[str, Any]:
        found = {key: getattr(self.budget, key) for key in BUDGET_KEYS}
        if self.budget.engine == "sglang":
            found |= {"engine": "sglang", "max_total_num_tokens": self.budget.kv_cache_tokens}
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

    def rows(self) -> list[dict[str, Any]]:
        return [{"part": name, "bytes": size, "gib": size / GIB} for name, size in waterfall(self.budget)]

    def summary(self) -> Summary:
        budget = self.budget
        question = f"Does {model_title(budget.model)} fit on {budget.num_gpus} × {self._gpu_title} ({self.setting})?"
        if not self.fits:
            return unfit_page(budget, self.resolve_model_and_gpu, question)
        return Summary(
            question=question,
            answer=self.headline,
            figures=(
                ("KV cache", f"{budget.kv_cache_tokens:,} tokens"),
                (f"conversations of {self.context.tokens:,} tokens at once", f"{self.conversations_at_once:,}"),
            ),
            sure=sentence(f"{pool_text(budget)}."),
            risk=risk_of(self.diagnostics, "A conversation longer than the mean takes more; what latency users see is "
                         "another question: headcount capacity."),
            words=WORDS,
        )  # fmt: skip

    @property
    def _gpu_title(self) -> str:
        return self.budget.gpu if self.resolve_model_and_gpu is None else self.resolve_model_and_gpu.gpu.title

    def details(self) -> dict[str, Any]:
        terms = [*self.architecture_assumptions, *self.budget.assumptions]
        return memory_details(self.budget, terms)

    def head(self) -> list[Block]:
        return [Line(f" on {self.budget.gpu}, {self.setting}", bold=self.budget.model), Line(bold=self.headline)]

    def body(self) -> list[Block]:
        return [_waterfall_table(self.budget), Line(), *map(Line, self.pool), *self._beside_log()]

    @property
    def setting(self) -> str:
        """How it is split and stored."""
        return f"{self.budget.split}, {self.budget.weights_format} weights, {self.budget.kv_cache_dtype} KV cache"

    @property
    def headline(self) -> str:
        """Whether it fits, by how much, what to change."""
        budget = self.budget
        request = f"one request of the full {budget.max_model_len:,} tokens"
        if budget.engine == "sglang":
            return self._sglang_headline
        if budget.fits:
            doubt = " Only just: at the low end of the 90 % interval of its KV blocks vLLM would not start."
            spare = f"Fits: {budget.spare_bytes / GIB:,.1f} GiB per GPU more than {request} needs."
            return spare + (doubt if is_doubtful(budget) else "")
        missing = max(0.1, budget.missing_bytes / GIB)
        return f"Does not fit: {missing:,.1f} GiB short per GPU for {request}. {_advice(self.remedies)}"

    @property
    def _sglang_headline(self) -> str:
        """Of SGLang, which starts with whatever is left for the KV cache."""
        budget = self.budget
        if not budget.fits:
            missing = max(0.1, budget.missing_bytes / GIB)
            return f"Does not fit: {missing:,.1f} GiB short per GPU for a KV cache. {_advice(self.remedies)}"
        if budget.kv_cache_tokens >= budget.max_model_len:
            return f"Fits: the KV cache holds requests of the full {budget.max_model_len:,} tokens."
        return (
            f"Fits, with requests of at most {budget.kv_cache_tokens:,} tokens: the KV cache holds no more of the "
            f"context of {budget.max_model_len:,}."
        )

    @property
    def pool(self) -> list[str]:
        """What the KV cache holds, a sentence per line; nothing where vLLM would not start."""
        budget = self.budget
        if not budget.fits:
            return []
        low, high = budget.num_gpu_blocks_low, budget.num_gpu_blocks_high
        interval = "as given" if low == high else f"90 % interval: {low:,} to {high:,}"
        ranks = budget.data_parallel_size
        each = f"; each of the {ranks} attention replicas has its own cache of this size" if ranks > 1 else ""
        count, most = self.conversations_at_once, budget.max_num_seqs
        running = f"; at most {most:,} of them run in one step (max_num_seqs)" if count > most else ""
        parts = [f"{users:,} → {tokens:,}" for users, tokens in self.tokens_per_user.items()]
        if budget.engine == "sglang":
            return self._sglang_pool(parts)
        return [
            f"{budget.num_gpu_blocks:,} KV blocks of {budget.block_size} tokens ({interval}): "
            f"{budget.kv_cache_tokens:,} tokens{_bytes_per_token(budget)}{each}",
            f"{budget.max_concurrency:.2f} requests of the full {budget.max_model_len:,} tokens at once "
            "(vLLM's 'Maximum concurrency')",
            f"{count:,} conversations of {self.context.tokens:,} tokens ({self.context.source}) at once, "
            f"without shared blocks{running}",
            *([sentence(text)] if (text := host_text(budget)) else []),
            *([f"tokens per user if N users hold their context at once: {', '.join(parts)}"] if parts else []),
        ]

    def _sglang_pool(self, per_user: Sequence[str]) -> list[str]:
        """The same of SGLang, in tokens."""
        budget, count = self.budget, self.conversations_at_once
        low, high = budget.kv_cache_tokens_low, budget.kv_cache_tokens_high
        interval = "as given" if low == high else f"90 % interval: {low:,} to {high:,}"
        pages = f" in pages of {budget.block_size}" if budget.block_size > 1 else ""
        each = (
            f"; each of the {budget.data_parallel_size} replicas has as many" if budget.data_parallel_size > 1 else ""
        )
        most = budget.max_num_seqs
        running = f"; at most {most:,} of them run at once (max_running_requests)" if count > most else ""
        return [
            f"max_total_num_tokens {budget.kv_cache_tokens:,}{pages} ({interval}){_bytes_per_token(budget)}{each}",
            f"{count:,} conversations of {self.context.tokens:,} tokens ({self.context.source}) at once, "
            f"without shared prefixes{running}",
            *([f"tokens per user if N users hold their context at once: {', '.join(per_user)}"] if per_user else []),
        ]

    @property
    def _pool_unit(self) -> str:
        return "tokens" if self.budget.engine == "sglang" else "blocks"

    def _beside_log(self) -> list[Block]:
        """The server's start-up log beside what would have been predicted for it; the log is what counts."""
        if self.log is None:
            return []
        whose = "SGLang" if self.log.engine == "sglang" else f"vLLM {self.log.vllm_version}"
        title = f"compared with {self.log.path.name} of {whose}; the KV {self._pool_unit} are the log's"
        rows = [_term_cells(term) for term in self.log_terms]
        return [Line(), Line(title), Table(columns=("GiB per GPU", "logged", "modelled", "error"), rows=rows), Line()]


@question
def memory(
    model: str,
    gpu: str,
    *,
    users: Sequence[int] = USERS,
    mean_context: int | None = None,
    startup_log: "StartupLog | None" = None,
    strict: bool = False,
    **engine: Any,
) -> MemoryResult:
    """Whether a model fits on a GPU under vLLM or SGLang, where the memory goes, what the KV cache holds.

    `engine` are vLLM's engine arguments under their names, or with `engine="sglang"` SGLang's; `mean_context` is a
    typical conversation in tokens. Raises ValueError for a bad argument, RefusedError where `strict` refuses a note.
    """
    asked = resolve_model_and_gpu(model, gpu, engine, startup_log)
    return memory_answer(asked, users, mean_context, startup_log, strict=strict)


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
        resolve_model_and_gpu=asked,
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


def _term_cells(term: LoggedTerm) -> tuple[str, ...]:
    digits = 0 if term.name in ("KV blocks", "KV tokens") else 2
    off = "–" if not term.logged else f"{term.modelled / term.logged - 1:+.1%}"
    logged = "–" if term.logged is None else f"{term.logged:,.{digits}f}"
    return term.name, logged, f"{term.modelled:,.{digits}f}", off


def memory_details(budget: MemoryBudget, terms: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """What a report shows of a budget."""
    return {"memory": memory_json(budget), "assumptions": of_terms("memory", terms)}


def mean_context(given: int | None, max_model_len: int, longest: str = "max_model_len") -> MeanContext:
    """The context given, at most `max_model_len`, or the chat preset's mean at that length; `longest`: its name."""
    if given is not None:
        cut = f", cut to {longest} {max_model_len:,}" if given > max_model_len else ""
        return MeanContext(tokens=min(given, max_model_len), source=f"--mean-context{cut}")
    try:
        tokens = round(equilibrium(load_preset(PRESET), max_model_len).context)
    except InputError:
        return MeanContext(tokens=max_model_len, source=f"{longest}, too short for the {PRESET} preset")
    return MeanContext(tokens=tokens, source=f"mean prompt with answer of the {PRESET} preset")


def _waterfall_table(budget: MemoryBudget) -> Table:
    """Bars one after the other, as wide as the GPU's memory or as what is needed where that is more."""
    (_, total), *parts = found = waterfall(budget)
    scale = max(total, sum(max(value, 0) for _, value in parts))
    bars, begin = [(0.0, total / scale)], 0.0
    for _, value in parts:
        bars.append((begin, begin + max(value, 0) / scale))
        begin = bars[-1][1]
    rows = [(name, f"{value / GIB:,.2f}") for name, value in found]
    return Table(columns=("per GPU", "GiB"), rows=rows, bars=bars)


def is_doubtful(budget: MemoryBudget) -> bool:
    """Whether it fits, but a request of the full length needs more blocks than the low end of their interval."""
    if budget.engine == "sglang":
        return budget.fits and budget.num_gpu_blocks_low == 0
    low = budget.num_gpu_blocks_low
    return budget.fits and low * budget.available_kv_bytes < budget.required_kv_bytes * budget.num_gpu_blocks


def _advice(found: Sequence[Remedy]) -> str:
    """Which change helps."""
    if not found:
        return "No larger TP and no smaller format helps: take a larger GPU."
    words = [" ".join(f"{option} {value}" for option, value in remedy.items()) for remedy in found]
    return f"It fits with {', or with '.join(words)}."


def _bytes_per_token(budget: MemoryBudget) -> str:
    """What a token and a request's states take on all GPUs that share them."""
    state = budget.state_bytes_per_request
    fixed = f" and {state * budget.tp / 2**20:,.1f} MiB of state per request" if state else ""
    windows = any(group.window is not None for group in budget.layout.groups)
    until = " while all layers attend to it" if windows else ""
    gpus = budget.tensor_parallel_size * budget.pipeline_parallel_size
    over = f", over {gpus} GPUs together{copies_of_kv(budget)}" if gpus > 1 else ""
    return f" at {kv_bytes_held(budget) / 1024:,.1f} KiB each{until}{fixed}{over}"


def kv_bytes_held(budget: MemoryBudget) -> int:
    """What a token takes over all GPUs of a replica, or of an attention replica, with every copy counted."""
    return budget.layout.bytes_per_token * budget.tensor_parallel_size


def copies_of_kv(budget: MemoryBudget) -> str:
    """How much of that is there once, where GPUs keep the same KV heads or latents."""
    if kv_bytes_held(budget) == budget.kv_bytes_per_token:
        return ""
    return f"; {budget.kv_bytes_per_token / 1024:,.1f} KiB without the copies that several GPUs keep"
