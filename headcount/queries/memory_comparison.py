"""In which formats and on how many GPUs does a model fit?"""

from collections.abc import Sequence
from dataclasses import dataclass

from files.documents import Json
from files.errors import HeadcountError
from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.engine import EngineInput
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import ModelOnGPU
from headcount.queries.memory import MemoryResult, is_doubtful, memory_answer
from headcount.queries.result import Result, Verdict
from headcount.text.units import GIB
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.conversations import conversations_at_once
from simulator.engines.engines import SGLANG
from simulator.engines.vllm.comparison import (
    TENSOR_PARALLEL_SIZES,
    Candidate,
    compare,
    kv_cache_formats,
)

KEYS = (
    "tensor_parallel_size", "quantization", "kv_cache_dtype", "fits", "missing_bytes", "spare_bytes", "weights_bytes",
    "available_kv_bytes", "num_gpu_blocks", "kv_cache_tokens", "max_concurrency",
)  # fmt: skip


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
        return f"{'barely' if is_doubtful(budget) else 'yes'}, {budget.spare_bytes / GIB:,.1f} GiB to spare"
    return f"no, {max(0.1, budget.missing_bytes / GIB):,.1f} GiB short"


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
