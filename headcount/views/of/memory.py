"""Whether a model fits and where its memory goes, in words."""

from collections.abc import Sequence

from headcount.queries.memory import LoggedTerm, MemoryResult, is_doubtful, may_start
from headcount.queries.report_data.waterfall import waterfall
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import GIB, change
from headcount.text.words import host_text, kv_pool, model_title, pool_owner, pool_text, sentence
from headcount.views.report_data.memory import WORDS, memory_details, unfit_page
from headcount.views.summary.summary import Summary, risk_of
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.terms import gib_text
from simulator.engines.memory import Remedy, remedy_words, why_too_few_blocks


def summary(answer: MemoryResult) -> Summary:
    budget = answer.budget
    gpu = budget.gpu if answer.asked_about is None else answer.asked_about.gpu.title
    question = f"Does {model_title(budget.model)} fit on {budget.num_gpus} × {gpu} ({setting(answer)})?"
    if not answer.fits:
        return unfit_page(budget, answer.asked_about, question)
    return Summary(
        question=question,
        answer=headline(answer),
        figures=(
            ("KV cache", f"{budget.kv_cache_tokens:,} tokens"),
            (f"conversations of {answer.context.tokens:,} tokens at once", f"{answer.conversations_at_once:,}"),
        ),
        sure=sentence(f"{pool_text(budget)}."),
        risk=risk_of(answer.diagnostics, "A conversation longer than the mean takes more memory. The latency that "
                     "users see is another question."),
        words=WORDS,
    )  # fmt: skip


def head(answer: MemoryResult) -> list[Block]:
    return [Line(f" on {answer.budget.gpu}, {setting(answer)}", bold=answer.budget.model), Line(bold=headline(answer))]


def body(answer: MemoryResult) -> list[Block]:
    budget, text = answer.budget, "left to others: what --gpu-memory-utilization {:g} keeps from vLLM"
    others = [] if budget.engine == "sglang" else [Line(text.format(budget.gpu_memory_utilization))]
    return [_waterfall_table(budget), *others, Line(), *map(Line, pool(answer)), *_beside_log(answer)]


def setting(answer: MemoryResult) -> str:
    """How it is split and stored."""
    return f"{answer.budget.split}, {answer.budget.weights_format} weights, {answer.budget.kv_cache_dtype} KV cache"


def _beside_log(answer: MemoryResult) -> list[Block]:
    """The server's start-up log compared with what would have been predicted for it; the log is what counts."""
    if answer.log is None:
        return []
    whose = "SGLang" if answer.log.engine == "sglang" else f"vLLM {answer.log.vllm_version}"
    title = f"compared with {answer.log.path.name} of {whose}; the KV {kv_pool(answer.budget)[0]} are the log's"
    rows = [_term_cells(term) for term in answer.log_terms]
    return [Line(), Line(title), Table(columns=("GiB per GPU", "logged", "modelled", "error"), rows=rows), Line()]


def _term_cells(term: LoggedTerm) -> tuple[str, ...]:
    digits = 0 if term.name in ("KV blocks", "KV tokens") else 2
    off = "–" if not term.logged else change(term.modelled / term.logged - 1, 1)
    logged = "–" if term.logged is None else f"{term.logged:,.{digits}f}"
    return term.name, logged, f"{term.modelled:,.{digits}f}", off


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


def details(answer: MemoryResult) -> dict[str, object]:
    terms = [*answer.architecture_assumptions, *answer.budget.assumptions]
    return memory_details(answer.budget, terms)


def headline(answer: MemoryResult) -> str:
    """Whether it fits, by how much, what to change."""
    budget = answer.budget
    is_sglang = budget.engine == "sglang"  # which starts with whatever is left for the KV cache
    request = f"one request of the full {budget.max_model_len:,} tokens"
    if budget.missing_blocks and not budget.missing_bytes:
        return f"Does not start: {why_too_few_blocks(budget)}. {_advice(answer.remedies)}"
    if not budget.fits:
        missing, needed = gib_text(max(budget.missing_bytes, 1)), "a KV cache" if is_sglang else request
        close = " But it is close: at the high end of the 90 % interval of KV blocks, vLLM would start."
        short = f"Does not fit: {missing} short per GPU for {needed}. {_advice(answer.remedies)}"
        return short + close * may_start(budget)
    if not is_sglang:
        doubt = " But it is close: at the low end of the 90 % interval of KV blocks, vLLM would not start."
        spare = f"Fits: {gib_text(budget.spare_bytes)} per GPU are free beyond {request}."
        return spare + doubt * is_doubtful(budget)
    if budget.kv_cache_tokens >= budget.max_model_len:
        return f"Fits: the KV cache holds requests of the full {budget.max_model_len:,} tokens."
    return (
        f"Fits, with requests of at most {budget.kv_cache_tokens:,} tokens: the KV cache is too small for the full "
        f"context of {budget.max_model_len:,}."
    )


def pool(answer: MemoryResult) -> list[str]:
    """What the KV cache holds, a sentence per line; nothing where the engine would not start."""
    budget, count = answer.budget, answer.conversations_at_once
    if not budget.fits:
        return []
    is_sglang, most = budget.engine == "sglang", budget.max_num_seqs
    size, ranks = budget.block_size, budget.data_parallel_size
    _, _, low, high = kv_pool(budget)
    interval = "as given" if low == high else f"90 % interval: {low:,} to {high:,}"
    owners = f"{ranks} {pool_owner(budget)}s"
    each = f"; each of the {owners} has its own cache of this size" if ranks > 1 else ""
    at_once = "run at once (max_running_requests)" if is_sglang else "run in one step (max_num_seqs)"
    running = f"; at most {most:,} of them {at_once}" if count > most else ""
    held = f"max_total_num_tokens {budget.kv_cache_tokens:,}{f' in pages of {size}' * (size > 1)} ({interval})"
    if budget.window_kv_tokens is not None:
        held += f", {budget.window_kv_tokens:,} in layers with sliding windows,"
    if budget.state_slots is not None:
        held += f", {budget.state_slots:,} SSM states (max_mamba_cache_size),"
    if not is_sglang:
        blocks = f"{budget.num_gpu_blocks:,} KV blocks of {size} tokens ({interval})"
        held = f"{blocks}: {budget.kv_cache_tokens:,} tokens"
        if budget.kv_cache_tokens != budget.num_gpu_blocks * size:
            held += " in requests of the full length, vLLM's 'GPU KV cache size',"
            each += f"; {_other_blocks(budget)} the other blocks"
    whole = f"{budget.max_concurrency:.2f} requests of the full {budget.max_model_len:,} tokens at once"
    host = "" if is_sglang else host_text(budget)
    per_user = ", ".join(f"{users:,} → {tokens:,}" for users, tokens in answer.tokens_per_user.items())
    return [
        f"{held}{_bytes_per_token(budget)}{each}",
        *[f"{whole} (vLLM's 'Maximum concurrency')"] * (not is_sglang),
        f"{count:,} conversations of {answer.context.tokens:,} tokens ({answer.context.source}) at once, "
        f"without shared {'prefixes' if is_sglang else 'blocks'}{running}",
        *([sentence(host)] if host else []),
        *[f"context tokens per user if N users are active at once: {per_user}"] * bool(per_user),
    ]


def _other_blocks(budget: MemoryBudget) -> str:
    """What blocks hold that grows with requests, not with their tokens."""
    windows = any(group.window is not None for group in budget.layout.groups)
    found = ["sliding windows"] * windows + ["states"] * bool(budget.state_bytes_per_request)
    return f"{' and '.join(found)} take" if found else "padding takes"


def _advice(found: Sequence[Remedy]) -> str:
    """Which change helps."""
    if not found:
        return "A larger TP or a smaller format does not help: choose a larger GPU."
    return f"It fits with {', or with '.join(remedy_words(found))}."


def _bytes_per_token(budget: MemoryBudget) -> str:
    """What a token and a request's SSM state take on all GPUs that share them."""
    state = budget.state_bytes_per_request
    fixed = f" and {state * budget.tp / 2**20:,.1f} MiB of state per request" if state else ""
    windows = any(group.window is not None for group in budget.layout.groups)
    until = " while all layers attend to it" if windows else ""
    until = " in compressed entries" if budget.layout.compresses else until
    gpus = budget.tensor_parallel_size * budget.pipeline_parallel_size
    over = f", over {gpus} GPUs together{copies_of_kv(budget)}" if gpus > 1 else ""
    return f" at {kv_bytes_held(budget) / 1024:,.1f} KiB each{until}{fixed}{over}"


def kv_bytes_held(budget: MemoryBudget) -> int:
    """What a token takes over all GPUs of a replica, or of a data-parallel rank, with every copy counted."""
    return budget.layout.bytes_per_token * budget.tensor_parallel_size


def copies_of_kv(budget: MemoryBudget) -> str:
    """How much of that is there once, where GPUs keep the same KV heads or latents."""
    if kv_bytes_held(budget) == budget.kv_bytes_per_token:
        return ""
    return f"; {budget.kv_bytes_per_token / 1024:,.1f} KiB without the copies that several GPUs keep"
