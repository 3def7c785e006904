"""Memory of many formats and parallel sizes, in words."""

from headcount.queries.memory import MemoryComparison, _named
from headcount.text.blocks import Block, Line, Table
from headcount.text.words import longest_name, model_title, sentence
from headcount.views.report_data.memory import NOWHERE, gpus_needed, memory_details
from headcount.views.summary.summary import Summary, risk_of
from simulator.engines.engines import SGLANG
from simulator.engines.vllm.comparison import fewest_gpus

_BUDGET_TERMS = (  # of one row, not of the comparison
    "total memory", "weights", "activation peak", "non-torch", "CUDA graphs", "non-torch beyond 4 ranks",
)  # fmt: skip

COLUMNS = (
    "weights", "KV cache", "TP", "weights GiB/GPU", "KV GiB/GPU", "KV tokens", "max concurrency", "conversations",
    "fits",
)  # fmt: skip


def summary(answer: MemoryComparison) -> Summary:
    budget = answer.single.budget
    found = gpus_needed(answer.candidates)
    return Summary(
        question=f"How many {budget.gpu} does {model_title(budget.model)} need, and in which formats?",
        answer=sentence(found),
        figures=(("context", f"{budget.max_model_len:,} tokens at most"),),
        sure="The memory model is checked against start-up logs of real servers. 'barely' marks uncertain rows.",
        risk=risk_of(
            answer.diagnostics,
            "Smaller number formats for weights or KV cache may change answers: test them on your own prompts.",
        ),
        is_good=found != NOWHERE,
    )


def head(answer: MemoryComparison) -> list[Block]:
    budget = answer.single.budget
    title = f" on {budget.gpu}, {longest_name(budget.engine)} {budget.max_model_len:,}"
    return [Line(title, bold=budget.model), Line(), *map(Line, conclusions(answer))]


def body(answer: MemoryComparison) -> list[Block]:
    table = Table(columns=COLUMNS, rows=answer.cells(), keys=3, text_columns=(0, 1, len(COLUMNS) - 1))
    return [table, Line(), *(Line(text, dim=True) for text in remarks(answer))]


def conclusions(answer: MemoryComparison) -> list[str]:
    """One line per weight format: from which size on it fits."""
    by_format: dict[str, dict[str, str]] = {}
    for (quantization, kv_cache_dtype), size in fewest_gpus(answer.candidates).items():
        fits = f"fits from TP {size}" if size is not None else "does not fit at these sizes"
        by_format.setdefault(quantization, {})[kv_cache_dtype] = fits
    own = {row.budget.quantization for row in answer.candidates if row.budget and row.quantization is None}
    return [
        f"{_named(name, name in own)}: "
        + (next(iter(found.values())) if len(set(found.values())) == 1 else
           ", ".join(f"{text} with KV cache {dtype}" for dtype, text in found.items()))
        for name, found in by_format.items()
    ]  # fmt: skip


def remarks(answer: MemoryComparison) -> list[str]:
    """What the columns count, what vLLM refuses (each reason once), what every row rests on."""
    context, reasons = answer.single.context, dict[str, list[str]]()
    budget = answer.single.budget
    is_sglang = budget.engine == SGLANG
    for row in answer.candidates:
        if row.refusal is not None:
            where = f"{row.quantization or 'checkpoint'} at TP {row.tensor_parallel_size}"
            reasons.setdefault(row.refusal, []).append(where)
    terms = [dict.fromkeys(row.budget.assumptions) for row in answer.candidates if row.budget is not None]
    common = [term for term in terms[0] if all(term in other for other in terms)]
    return [
        f"own: the checkpoint's format; conversations: of {context.tokens:,} tokens ({context.source}) at once, "
        f"without shared {'prefixes' if is_sglang else 'blocks'}; max concurrency: requests of "
        f"{budget.max_model_len:,} tokens{'' if is_sglang else ', as vLLM logs it'}; both per replica; barely: "
        "it does not fit at the low end of the 90 % interval",
        *(f"left out: {', '.join(dict.fromkeys(where))}: {reason}" for reason, where in reasons.items()),
        *(f"{name}: {value} ({why})" for name, value, why in common if name not in _BUDGET_TERMS),
    ]


def details(answer: MemoryComparison) -> dict[str, object]:
    """Of the first way that fits, or of the one with vLLM's defaults."""
    fitting = [row.budget for row in answer.candidates if row.budget is not None and row.fits]
    budget = answer.single.budget if answer.single.fits or not fitting else fitting[0]
    return memory_details(budget, budget.assumptions)
