"""Where one GPU's memory goes; on how many GPUs, and in which formats, a model fits."""

import math
from collections.abc import Sequence
from typing import Final

from headcount.inputs.reading.deployments import ModelOnGPU
from headcount.queries.memory import candidates_of
from headcount.queries.report_data.waterfall import NEEDED, _parts
from headcount.text.units import GIB, counted
from headcount.text.words import joined, longest_name
from headcount.views.report_data.assumptions import of_terms
from headcount.views.summary.summary import Summary
from kvcache.memory.budget import MemoryBudget
from simulator.engines.vllm.comparison import TENSOR_PARALLEL_SIZES, Candidate

NOWHERE: Final = "it does not fit with any of these options: choose a larger GPU"
_MEMORY = (
    "gpu", "tp", "fits", "total_bytes", "num_gpu_blocks", "num_gpu_blocks_low", "num_gpu_blocks_high", "block_size",
    "kv_cache_tokens", "max_concurrency", "max_model_len", "gpu_memory_utilization", "kv_bytes_per_token",
)  # fmt: skip


WORDS: Final = (
    ("TP", "tensor parallelism: the number of GPUs that share each layer of the model."),
    ("KV cache", "what the GPU stores of each conversation. Longer conversations take more memory."),
    ("auto KV cache", "the model's own number format, mostly 16 bits."),
    ("16-bit, fp8, awq", "number formats with 16, 8 (fp8) or 4 bits (awq, weights only). Fewer bits take less memory."),
    ("GiB", "1.07 GB."),
)  # fmt: skip
SIZES: Final = (
    "GPUs",
    f"{joined(list(map(str, TENSOR_PARALLEL_SIZES)))} are tried. Engines refuse a number that does not divide the "
    "model's attention heads.",
)


def unfit_page(budget: MemoryBudget, asked: ModelOnGPU | None, question: str) -> Summary:
    """The summary where it does not fit: what it needs instead."""
    needed = NOWHERE if asked is None else gpus_needed(candidates_of(asked))
    if budget.missing_blocks and not budget.missing_bytes:
        needed = f"it starts with --max-num-seqs {budget.num_gpu_blocks_low}"
    is_longest = asked is not None and budget.max_model_len == asked.architecture.max_position_embeddings
    longest = ": the model's limit (default)" if is_longest else ""
    flag, held = longest_name(budget.engine).replace("_", "-"), sum(max(size, 0) for _, size in _parts(budget))
    return Summary(
        question=question,
        answer=f"No: {needed}",
        figures=(
            ("memory of each GPU, as asked", f"{held / GIB:,.1f} GiB needed, it has {budget.total_bytes / GIB:,.1f}"),
            ("longest request", f"{budget.max_model_len:,} tokens{longest}"),
        ),
        risk=f"The GPUs hold requests of up to {budget.max_model_len:,} tokens. A lower --{flag} takes "
        "less memory. Smaller number formats may change the model's answers: test them on your own prompts. "
        "How many users these GPUs serve is another question.",
        words=(*WORDS, *([SIZES] if asked is not None and asked.args.tensor_parallel_size is None else ())),
        is_good=needed != NOWHERE,
    )


def memory_json(budget: MemoryBudget) -> dict[str, object]:
    """Parts of one GPU's memory that add up to it, or to what starting takes where vLLM would not start."""
    found = {name: getattr(budget, name) for name in _MEMORY}
    found |= {"engine": budget.engine} if budget.engine != "vllm" else {}
    parts = [{"name": name, "bytes": size, "is_missing": name == NEEDED} for name, size in _parts(budget)]
    return found | {"parts": parts}


def gpus_needed(candidates: Sequence[Candidate]) -> str:
    """Such as `it needs 4 GPUs; 2 with fp8 weights`: as the model is stored, then formats that need fewer."""
    own, *_ = (_formats(each.budget) for each in candidates if each.budget is not None)
    fewest: dict[tuple[str, str], int] = {}
    for budget in (each.budget for each in candidates if each.budget is not None and each.fits):
        way = _formats(budget)
        fewest[way] = min(budget.num_gpus, fewest.get(way, budget.num_gpus))
    ways: dict[int, list[str]] = {}
    for (weights, cache), gpus in fewest.items():
        simpler = {own, (own[0], cache), (weights, own[1])} - {(weights, cache)}
        if all(gpus < fewest.get(way, math.inf) for way in simpler):
            named = [f"{weights} weights"] * (weights != own[0]) + [f"an {cache} KV cache"] * (cache != own[1])
            ways.setdefault(gpus, []).append(" and ".join(named))
    parts = [(gpus, f" with {' or '.join(named)}" if all(named) else "") for gpus, named in ways.items()]
    if not parts:
        return NOWHERE
    (most, how), *fewer = sorted(parts, reverse=True)
    return "; ".join([f"it needs {counted(most, 'GPU')}{how}", *(f"{gpus:,}{how}" for gpus, how in fewer)])


def _formats(budget: MemoryBudget) -> tuple[str, str]:
    """Of the weights, and of the KV cache."""
    return budget.weights_format, budget.kv_cache_dtype


def memory_details(budget: MemoryBudget, terms: Sequence[tuple[str, str, str]]) -> dict[str, object]:
    """What a report shows of a budget."""
    return {"memory": memory_json(budget), "assumptions": of_terms("memory", terms)}
