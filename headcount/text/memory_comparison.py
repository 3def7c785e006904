"""The ways to run one model on one GPU type, side by side."""

from collections.abc import Sequence
from typing import Any

from headcount.text.memory_answer import MemoryAnswer, is_doubtful
from headcount.text.tables import print_table
from headcount.text.text import GIB, console, table
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.comparison import Candidate, fewest_gpus
from kvcache.memory.conversations import conversations_at_once

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


def comparison_json(answer: MemoryAnswer, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """The keys of `headcount memory --compare --json`."""
    rows = [
        {key: getattr(row.budget, key) for key in KEYS}
        | {
            "is_checkpoint_format": row.quantization is None,
            "conversations_at_once": conversations_at_once(row.budget, answer.context.tokens),
        }
        for row in candidates
        if row.budget is not None
    ]
    refused = [
        {
            "tensor_parallel_size": row.tensor_parallel_size,
            "quantization": row.quantization,
            "kv_cache_dtype": row.kv_cache_dtype,
            "reason": row.refusal,
        }
        for row in candidates
        if row.budget is None
    ]
    budget = answer.budget
    return {
        "schema_version": 1,
        "model": budget.model,
        "gpu": budget.gpu,
        "pipeline_parallel_size": budget.pipeline_parallel_size,
        "max_model_len": budget.max_model_len,
        "gpu_memory_utilization": budget.gpu_memory_utilization,
        "vllm_version": budget.vllm_version,
        "mean_context_tokens": answer.context.tokens,
        "mean_context_source": answer.context.source,
        "comparison": rows,
        "refused": refused,
    }


def comparison_text(answer: MemoryAnswer, candidates: Sequence[Candidate]) -> None:
    """What each format needs, the table, what vLLM refuses."""
    from rich.markup import escape  # noqa: PLC0415  loaded by the command that calls this

    out, budget = console(), answer.budget
    out.print(f"[bold]{escape(budget.model)}[/] on {budget.gpu}, max_model_len {budget.max_model_len:,}\n")
    for line in summary(candidates):
        out.print(line)
    made = table(*COLUMNS)
    for column in (made.columns[1], made.columns[-1]):
        column.justify = "left"
    before = None
    for cells in comparison_rows(answer, candidates):
        if before not in (None, cells[:2]):
            made.add_row()
        made.add_row(*cells)
        before = cells[:2]
    out.print()
    print_table(out, made, keys=3)
    out.print(f"\n{conversations_note(answer)}", style="dim")
    for line in (*refusals(candidates), *conditions(candidates)):
        out.print(escape(line), style="dim")


def summary(candidates: Sequence[Candidate]) -> list[str]:
    """One line per weight format: from which size on it fits."""
    by_format: dict[str, dict[str, str]] = {}
    for (quantization, kv_cache_dtype), size in fewest_gpus(candidates).items():
        fits = f"fits from TP {size}" if size is not None else "does not fit at these sizes"
        by_format.setdefault(quantization, {})[kv_cache_dtype] = fits
    own = {row.budget.quantization for row in candidates if row.budget is not None and row.quantization is None}
    return [f"{_named(name, name in own)}: {_either(found)}" for name, found in by_format.items()]


def _either(fits: dict[str, str]) -> str:
    if len(set(fits.values())) == 1:
        return next(iter(fits.values()))
    return ", ".join(f"{text} with KV cache {dtype}" for dtype, text in fits.items())


def comparison_rows(answer: MemoryAnswer, candidates: Sequence[Candidate]) -> list[tuple[str, ...]]:
    """Cells under COLUMNS; what vLLM refuses is left out (see `refusals`)."""
    found: list[tuple[str, ...]] = []
    for row in candidates:
        budget = row.budget
        if budget is None:
            continue
        name = _named(budget.quantization, row.quantization is None)
        start = (name, budget.kv_cache_dtype, f"{budget.tp}", f"{budget.weights_bytes / GIB:,.2f}")
        if budget.fits:
            count = f"{conversations_at_once(budget, answer.context.tokens):,}"
            kv = f"{budget.available_kv_bytes / GIB:,.2f}"
            held = (kv, f"{budget.kv_cache_tokens:,}", f"{budget.max_concurrency:,.2f}", count)
        else:
            held = ("–",) * 4
        found.append((*start, *held, _fit(budget)))
    return found


def conversations_note(answer: MemoryAnswer) -> str:
    """What the columns count."""
    context = answer.context
    return (
        f"own: the checkpoint's format; conversations: of {context.tokens:,} tokens ({context.source}), at once, "
        f"no blocks shared; max concurrency: requests of {answer.budget.max_model_len:,} tokens, as vLLM logs it; both "
        "per replica; barely: not at the low end of the 90 % interval"
    )


def refusals(candidates: Sequence[Candidate]) -> list[str]:
    """What vLLM refuses, each reason once."""
    found: dict[str, list[str]] = {}
    for row in candidates:
        if row.refusal is not None:
            where = f"{row.quantization or 'checkpoint'} at TP {row.tensor_parallel_size}"
            found.setdefault(row.refusal, []).append(where)
    return [f"left out: {', '.join(dict.fromkeys(where))}: {reason}" for reason, where in found.items()]


def conditions(candidates: Sequence[Candidate]) -> list[str]:
    """What every row rests on beside the terms of its own budget."""
    rows = [dict.fromkeys(candidate.budget.assumptions) for candidate in candidates if candidate.budget is not None]
    common = [row for row in rows[0] if all(row in other for other in rows)]
    return [f"{name}: {value} ({why})" for name, value, why in common if name not in _BUDGET_TERMS]


def _named(quantization: str, is_own: bool) -> str:
    name = "16 bits" if quantization == "none" else quantization
    return f"{name} (own)" if is_own else name


def _fit(budget: MemoryBudget) -> str:
    if budget.fits:
        return f"{'barely' if is_doubtful(budget) else 'yes'}, {budget.spare_bytes / GIB:,.1f} GiB to spare"
    return f"no, {max(0.1, budget.missing_bytes / GIB):,.1f} GiB short"
