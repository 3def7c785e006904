"""In which formats and on how many GPUs does a model fit?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headcount.diagnostics import facts_about, find_diagnostics
from headcount.inputs.deployments import resolve_model_and_gpu
from headcount.queries.memory import MemoryResult, is_doubtful, memory_answer, memory_details
from headcount.queries.report_data.memory import NOWHERE, candidates_of, format_name, gpus_needed
from headcount.queries.result import Result, Verdict, question
from headcount.views.summary.summary import Summary, risk_of
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import GIB
from headcount.text.words import longest_name, model_title, sentence
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.conversations import conversations_at_once
from simulator.engines.engines import SGLANG
from simulator.engines.vllm.comparison import Candidate, fewest_gpus

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

KEYS = (
    "tensor_parallel_size", "quantization", "kv_cache_dtype", "fits", "missing_bytes", "spare_bytes", "weights_bytes",
    "available_kv_bytes", "num_gpu_blocks", "kv_cache_tokens", "max_concurrency",
)  # fmt: skip
_BUDGET_TERMS = (  # of one row, not of the comparison
    "total memory", "weights", "activation peak", "non-torch", "CUDA graphs", "non-torch beyond 4 ranks",
)  # fmt: skip
COLUMNS = (
    "weights", "KV cache", "TP", "weights GiB/GPU", "KV GiB/GPU", "KV tokens", "max concurrency", "conversations",
    "fits",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MemoryComparison(Result):
    """Every way to run the model that the question leaves open; `single` is the one with vLLM's defaults."""

    kind = "memory"
    single: MemoryResult
    candidates: tuple[Candidate, ...]

    def figures(self) -> dict[str, Any]:
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

    def rows(self) -> list[dict[str, Any]]:
        return [
            {key: getattr(row.budget, key) for key in KEYS}
            | {
                "is_checkpoint_format": row.quantization is None,
                "conversations_at_once": conversations_at_once(row.budget, self.single.context.tokens),
            }
            for row in self.candidates
            if row.budget is not None
        ]

    def summary(self) -> Summary:
        budget = self.single.budget
        found = gpus_needed(self.candidates)
        return Summary(
            question=f"How many {budget.gpu} does {model_title(budget.model)} need, and in which formats?",
            answer=sentence(found),
            figures=(("context", f"{budget.max_model_len:,} tokens at most"),),
            sure="The memory model is held beside start-up logs of real servers; 'barely' marks rows in doubt.",
            risk=risk_of(
                self.diagnostics,
                "A smaller format of weights or of the KV cache may change answers: test them on your own prompts.",
            ),
            is_good=found != NOWHERE,
        )

    def details(self) -> dict[str, Any]:
        """Of the first way that fits, or of the one with vLLM's defaults."""
        fitting = [row.budget for row in self.candidates if row.budget is not None and row.fits]
        budget = self.single.budget if self.single.fits or not fitting else fitting[0]
        return memory_details(budget, budget.assumptions)

    def head(self) -> list[Block]:
        budget = self.single.budget
        title = f" on {budget.gpu}, {longest_name(budget.engine)} {budget.max_model_len:,}"
        return [Line(title, bold=budget.model), Line(), *map(Line, self.conclusions)]

    def body(self) -> list[Block]:
        table = Table(columns=COLUMNS, rows=self.cells(), keys=3, text_columns=(0, 1, len(COLUMNS) - 1))
        return [table, Line(), *(Line(text, dim=True) for text in self.remarks)]

    @property
    def conclusions(self) -> list[str]:
        """One line per weight format: from which size on it fits."""
        by_format: dict[str, dict[str, str]] = {}
        for (quantization, kv_cache_dtype), size in fewest_gpus(self.candidates).items():
            fits = f"fits from TP {size}" if size is not None else "does not fit at these sizes"
            by_format.setdefault(quantization, {})[kv_cache_dtype] = fits
        own = {row.budget.quantization for row in self.candidates if row.budget and row.quantization is None}
        return [f"{_named(name, name in own)}: {_either(found)}" for name, found in by_format.items()]

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

    @property
    def remarks(self) -> list[str]:
        """What the columns count, what vLLM refuses (each reason once), what every row rests on."""
        context, reasons = self.single.context, dict[str, list[str]]()
        budget = self.single.budget
        is_sglang = budget.engine == SGLANG
        for row in self.candidates:
            if row.refusal is not None:
                where = f"{row.quantization or 'checkpoint'} at TP {row.tensor_parallel_size}"
                reasons.setdefault(row.refusal, []).append(where)
        terms = [dict.fromkeys(row.budget.assumptions) for row in self.candidates if row.budget is not None]
        common = [term for term in terms[0] if all(term in other for other in terms)]
        return [
            f"own: the checkpoint's format; conversations: of {context.tokens:,} tokens ({context.source}) at once, "
            f"without shared {'prefixes' if is_sglang else 'blocks'}; max concurrency: requests of "
            f"{budget.max_model_len:,} tokens{'' if is_sglang else ', as vLLM logs it'}; both per replica; barely: "
            "not at the low end of the 90 % interval",
            *(f"left out: {', '.join(dict.fromkeys(where))}: {reason}" for reason, where in reasons.items()),
            *(f"{name}: {value} ({why})" for name, value, why in common if name not in _BUDGET_TERMS),
        ]


@question
def memory_comparison(
    model: str,
    gpu: str,
    *,
    users: Sequence[int] = (),
    mean_context: int | None = None,
    startup_log: "StartupLog | None" = None,
    strict: bool = False,
    **engine: Any,
) -> MemoryComparison:
    """Memory over tensor-parallel sizes, weight formats and KV-cache formats, as far as none is given.

    Arguments as for `memory`. Raises ValueError where vLLM refuses every way.
    """
    asked = resolve_model_and_gpu(model, gpu, engine, startup_log)
    args = asked.args
    if args.num_gpu_blocks_override is not None:
        raise ValueError(
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


def _either(fits: dict[str, str]) -> str:
    if len(set(fits.values())) == 1:
        return next(iter(fits.values()))
    return ", ".join(f"{text} with KV cache {dtype}" for dtype, text in fits.items())


def _named(quantization: str, is_own: bool) -> str:
    name = format_name(quantization)
    return f"{name} (own)" if is_own else name


def _fit(budget: MemoryBudget) -> str:
    if budget.fits:
        return f"{'barely' if is_doubtful(budget) else 'yes'}, {budget.spare_bytes / GIB:,.1f} GiB to spare"
    return f"no, {max(0.1, budget.missing_bytes / GIB):,.1f} GiB short"
